"""Homelab Autoscaler: makes the number of machines that Cluster Autoscaler wants true on metal."""
