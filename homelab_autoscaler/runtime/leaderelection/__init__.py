"""Leader election on Leases."""

from homelab_autoscaler.runtime.leaderelection.elector import LeaderElector
from homelab_autoscaler.runtime.leaderelection.leadership import Leadership, LeadershipLost, always_leading
from homelab_autoscaler.runtime.leaderelection.options import LeaderElectionOptions, new_identity

__all__ = [
    "LeaderElectionOptions",
    "LeaderElector",
    "Leadership",
    "LeadershipLost",
    "always_leading",
    "new_identity",
]
