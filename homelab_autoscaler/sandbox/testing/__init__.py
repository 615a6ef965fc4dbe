"""API servers for tests: beside synchronous code on a thread, or on the present loop."""

from homelab_autoscaler.sandbox.testing.running import RunningApiServer, local_api_server, running_api_server

__all__ = ["RunningApiServer", "local_api_server", "running_api_server"]
