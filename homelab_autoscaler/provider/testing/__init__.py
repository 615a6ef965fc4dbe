"""Support for tests and benchmarks that need a provider that serves."""

from homelab_autoscaler.provider.testing.harness import MemoryCache, Served, serve

__all__ = ["MemoryCache", "Served", "serve"]
