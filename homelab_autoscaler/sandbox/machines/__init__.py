"""Simulated machines: true power, a firmware that takes its time or lies, a kubelet that goes with the power."""
