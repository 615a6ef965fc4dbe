"""`homelab-autoscaler demo`: a scripted day of a small pool, on this machine alone."""
