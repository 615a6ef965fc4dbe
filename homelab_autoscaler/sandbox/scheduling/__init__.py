"""The scheduler-lite: binds pods to nodes that fit, and says why others do not."""
