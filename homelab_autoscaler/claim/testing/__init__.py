"""Support for tests of whatever reads and writes claims."""

from homelab_autoscaler.claim.testing.memory import Fault, MemoryStore

__all__ = ["Fault", "MemoryStore"]
