"""What an installation needs: the rights that the manager's calls take, and the roles that grant exactly them."""
