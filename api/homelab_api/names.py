"""Labels, annotations, finalizers, taints and field managers: every mark that this product leaves or reads.

A mark of ours is recognisable by its prefix, so that only our own are ever removed (guarantee S7).
"""

from __future__ import annotations

from typing import Final

GROUP: Final = "infra.homecluster.dev"
"""API group of our kinds, and the prefix of our labels, finalizers, taints and most annotations."""
_OPERATION: Final = "homelab-autoscaler.dev"

# --- labels ---------------------------------------------------------------------------------------------------
LABEL_GROUP: Final = f"{GROUP}/group"
"""On a slot: the Group (pool) that it belongs to. Also stamped on claims, Jobs and the machine's node."""
LABEL_NODE: Final = f"{GROUP}/node"
"""On claims and Jobs: the slot's name (shortened if too long for a label). For people; never used to decide."""
LABEL_NODECLAIM: Final = f"{GROUP}/nodeclaim"
"""On Jobs: the claim that asked for the operation. For people; never used to decide."""
LABEL_JOB_TYPE: Final = "type"
"""On Jobs: `startup`, `shutdown` or `reclaim`."""
LABEL_LEADER: Final = f"{GROUP}/leader"
"""On the manager's pod that leads; the provider's Service selects it."""

JOB_TYPE_STARTUP: Final = "startup"
"""A Job that switches a machine on."""
JOB_TYPE_SHUTDOWN: Final = "shutdown"
"""A Job that switches a machine off."""
JOB_TYPE_RECLAIM: Final = "reclaim"
"""A Job that makes a machine leave the cluster and keep running."""

# --- finalizers -----------------------------------------------------------------------------------------------
FINALIZER_SLOT: Final = f"{GROUP}/slot"
"""On a slot from its first pass: its machine is switched off with its own script before it goes."""
FINALIZER_GROUP: Final = f"{GROUP}/group"
"""On a Group: it stays readable while slots of it have live claims."""
FINALIZER_MACHINE: Final = f"{GROUP}/machine"
"""On a claim from the moment its boot is committed: the machine may be on, and the reversal must run."""
FINALIZER_RECLAIM: Final = f"{GROUP}/reclaim"
"""On a NodeReclaim: deleting it starts the return, and the return ends it."""

# --- annotations on slots -------------------------------------------------------------------------------------
ANNOTATION_LOCK: Final = f"{_OPERATION}/operation-lock"
"""`scale-up` or `scale-down`: the operation that owns the slot."""
ANNOTATION_LOCK_OWNER: Final = f"{_OPERATION}/lock-owner"
"""`<identity>/<leaseTransitions>` of the manager process that took the lock."""
ANNOTATION_LOCK_TIMESTAMP: Final = f"{_OPERATION}/lock-timestamp"
"""When the lock was taken or renewed, RFC 3339."""
ANNOTATION_LOCK_TIMEOUT: Final = f"{_OPERATION}/lock-timeout"
"""Seconds that the lock holds from its timestamp."""
ANNOTATION_SHUTDOWN_SEQ: Final = f"{GROUP}/shutdown-seq"
"""Number of the slot's next shutdown Job name; grows with every shutdown that takes the lock."""
ANNOTATION_SHUTDOWN_LEDGER: Final = f"{GROUP}/shutdown-ledger"
"""JSON: releases of shutdown Jobs in the last hour, and the attempts of shutdowns without a claim (row 2)."""
ANNOTATION_RETURN_UNTIL: Final = f"{GROUP}/return-until"
"""Until when a machine that its owner gave back stays on though nobody claims it, RFC 3339."""
ANNOTATION_LAST_RECLAIM: Final = f"{GROUP}/last-reclaim"
"""The last reclaim request that was handled (node uid and requested-at), so that a repeat is recognised."""
ANNOTATION_ABANDON: Final = f"{GROUP}/abandon"
"""On a slot or claim, by a person: the uid of the claim or slot whose parked delete may end ("may still be on")."""

# --- annotations on claims ------------------------------------------------------------------------------------
ANNOTATION_END_REASON: Final = f"{GROUP}/end-reason"
"""Written by whoever deletes a claim; becomes the reason of `completed`. Absent: DeletedByHand."""
ANNOTATION_ACKNOWLEDGED: Final = f"{GROUP}/acknowledged"
"""The autoscaler has asked to delete this failed instance: it is not listed any more."""
ANNOTATION_REQUEST_ID: Final = f"{GROUP}/request-id"
"""Random, written by the creator: tells its own claim from another of the same name after a lost reply."""

# --- on corev1 nodes ------------------------------------------------------------------------------------------
ANNOTATION_CORDONED_BY: Final = f"{GROUP}/cordoned-by"
"""`drain` or `reclaim`: the cordon is ours. Set with the cordon, and only if the node was schedulable."""
TAINT_DRAINING: Final = f"{GROUP}/draining"
"""NoSchedule, while pods leave a machine that is going off; its time is the start of the drain."""
TAINT_RECLAIMED: Final = f"{GROUP}/reclaimed"
"""NoExecute, while the machine is in its owner's hands."""
TAINT_RETURNING: Final = f"{GROUP}/returning"
"""NoSchedule, between the return by the owner and the next readiness gate."""
PROVIDER_ID_SCHEME: Final = "homelab://"
"""Begin of the providerID that we stamp: `homelab://<namespace>/<slot>/<claim uid>`."""

# --- of others, which we read ---------------------------------------------------------------------------------
TAINT_TO_BE_DELETED: Final = "ToBeDeletedByClusterAutoscaler"
"""The autoscaler drains this node; read, and removed when the machine is ready again."""
TAINT_DELETION_CANDIDATE: Final = "DeletionCandidateOfClusterAutoscaler"
"""The autoscaler finds this node unneeded; removed when the machine is ready again."""
ANNOTATION_SCALE_DOWN_DISABLED: Final = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
"""The autoscaler leaves the node alone; ours on machines of Manual and Schedule claims."""
ANNOTATION_SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
"""`false` on pods of lifecycle Jobs: the autoscaler does not move them."""
ANNOTATION_FAKE_NODE_REASON: Final = "k8s.io/cluster-autoscaler/fake-node-reason"
"""On nodes that the autoscaler makes up to ask about instances without a node."""
ANNOTATION_RECLAIM_REQUESTED: Final = "5spot.finos.org/reclaim-requested"
"""`true` on a node: its owner wants the machine back at once."""
ANNOTATION_RECLAIM_REASON: Final = "5spot.finos.org/reclaim-reason"
"""Why, as the agent says."""
ANNOTATION_RECLAIM_REQUESTED_AT: Final = "5spot.finos.org/reclaim-requested-at"
"""When, by the machine's own clock; compared for equality only."""
ANNOTATION_MIRROR_POD: Final = "kubernetes.io/config.mirror"
"""On the shadow of a static pod; such pods cannot be evicted."""
CONTROL_PLANE_LABELS: Final = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
"""A node with one of these is protected."""
NODE_LEASE_NAMESPACE: Final = "kube-node-lease"
"""Where kubelets renew their Leases."""

FIELD_MANAGER: Final = "homelab-autoscaler"
"""Our name in managedFields."""
DEFAULT_NAMESPACE: Final = "homelab-autoscaler-system"
"""Where the manager runs unless it is told otherwise."""
