"""The manager as it is installed: a process of its own, with its own service account and the roles in config/."""
