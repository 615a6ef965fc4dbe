"""Controllers: the contract (`Controller`), the engine behind it, and the read-your-writes gate."""

from homelab_autoscaler.runtime.controller.controller import Controller
from homelab_autoscaler.runtime.controller.engine import CacheSyncError, Engine
from homelab_autoscaler.runtime.controller.gate import ConsistencyGate, record_writes

__all__ = ["CacheSyncError", "ConsistencyGate", "Controller", "Engine", "record_writes"]
