"""The embedded control plane: an API server, simulated machines and the controllers around them, in one process."""
