"""The manager: everything that one process runs, in order."""

from homelab_autoscaler.runtime.manager.group import GroupStopped
from homelab_autoscaler.runtime.manager.manager import GracePeriodExceeded, Manager
from homelab_autoscaler.runtime.manager.options import ManagerOptions, Runnable
from homelab_autoscaler.runtime.manager.process import exit_now, run_process, stop_on_signals

__all__ = [
    "GracePeriodExceeded",
    "GroupStopped",
    "Manager",
    "ManagerOptions",
    "Runnable",
    "exit_now",
    "run_process",
    "stop_on_signals",
]
