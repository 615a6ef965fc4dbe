"""Small typed views of built-in kinds: just the fields this project reads or writes.

A view is for reading and for creating; a change to a built-in object is always a patch, so that fields which
the view does not know are never lost.
"""

from homelab_api.core.batch import Job, JobCondition, JobSpec, JobStatus
from homelab_api.core.coordination import Lease, LeaseSpec
from homelab_api.core.node import CoreNode, NodeCondition, NodeSpec, NodeStatus, Taint
from homelab_api.core.pod import Pod, PodSpec, PodStatus
from homelab_api.core.secret import Secret

__all__ = [
    "CoreNode",
    "Job",
    "JobCondition",
    "JobSpec",
    "JobStatus",
    "Lease",
    "LeaseSpec",
    "NodeCondition",
    "NodeSpec",
    "NodeStatus",
    "Pod",
    "PodSpec",
    "PodStatus",
    "Secret",
    "Taint",
]
