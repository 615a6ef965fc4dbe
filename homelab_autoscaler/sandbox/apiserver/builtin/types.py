"""The shapes of the built-in kinds."""

from __future__ import annotations

from importlib.resources import files

import orjson

from homelab_autoscaler.sandbox.apiserver.semantics.shape import UNSET, Shape, resolver

# Fields that a server shows although nobody set them: Go fields without `omitempty`.
_NODE_INFO = (
    "machineID systemUUID bootID kernelVersion osImage containerRuntimeVersion kubeletVersion kubeProxyVersion "
    "operatingSystem architecture"
)
ZEROS: dict[str, dict[str, object]] = {
    "core.v1.Node": {"spec": {}, "status": {}},
    "core.v1.NodeStatus": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 0}}, "nodeInfo": {}},
    "core.v1.NodeSystemInfo": dict.fromkeys(_NODE_INFO.split(), ""),
    "core.v1.NodeCondition": {"lastHeartbeatTime": None, "lastTransitionTime": None},
    "core.v1.PodCondition": {"lastProbeTime": None, "lastTransitionTime": None},
    "core.v1.ContainerStatus": {
        "state": {},
        "lastState": {},
        "ready": False,
        "restartCount": 0,
        "image": "",
        "imageID": "",
    },
    "core.v1.ContainerStateTerminated": {"startedAt": None, "finishedAt": None, "exitCode": 0},
    "core.v1.ContainerStateRunning": {"startedAt": None},
    "core.v1.Container": {"resources": {}},
    "core.v1.EphemeralContainer": {"resources": {}},
    "core.v1.Event": {
        "involvedObject": {},
        "source": {},
        "firstTimestamp": None,
        "lastTimestamp": None,
        "eventTime": None,
        "reportingComponent": "",
        "reportingInstance": "",
    },
    "core.v1.Namespace": {"spec": {}, "status": {}},
    "core.v1.Pod": {"status": {}},
    "core.v1.Service": {"spec": {}, "status": {}},
    "core.v1.ServiceStatus": {"loadBalancer": {}},
    "core.v1.PodTemplateSpec": {"metadata": {}},
    "coordination.v1.Lease": {"spec": {}},
    "batch.v1.Job": {"spec": {}, "status": {}},
    "batch.v1.JobCondition": {"lastProbeTime": None, "lastTransitionTime": None},
    "batch.v1.CronJob": {"spec": {}, "status": {}},
    "batch.v1.JobTemplateSpec": {"metadata": {}},
    "apps.v1.Deployment": {"spec": {}, "status": {}},
    "apps.v1.DeploymentSpec": {"strategy": {}},
    "apps.v1.DeploymentCondition": {"lastUpdateTime": None, "lastTransitionTime": None},
    "apps.v1.ReplicaSet": {"spec": {}, "status": {}},
    "apps.v1.ReplicaSetStatus": {"replicas": 0},
    "apps.v1.DaemonSet": {"spec": {}, "status": {}},
    "apps.v1.DaemonSetStatus": {
        "currentNumberScheduled": 0,
        "numberMisscheduled": 0,
        "desiredNumberScheduled": 0,
        "numberReady": 0,
    },
    "apps.v1.StatefulSet": {"spec": {}, "status": {}},
    "apps.v1.StatefulSetStatus": {"replicas": 0},
    "policy.v1.PodDisruptionBudget": {"spec": {}, "status": {}},
    "policy.v1.PodDisruptionBudgetStatus": {
        "disruptionsAllowed": 0,
        "currentHealthy": 0,
        "desiredHealthy": 0,
        "expectedPods": 0,
    },
    "rbac.v1.Role": {"rules": None},
    "rbac.v1.ClusterRole": {"rules": None},
    "networking.v1.NetworkPolicy": {"spec": {}},
    "networking.v1.NetworkPolicySpec": {"podSelector": {}},
    "events.v1.Event": {"regarding": {}},
    # A pointer: an absent one is not an empty text.
    "admissionregistration.v1.ValidatingWebhook": {"sideEffects": UNSET},
    "apiextensions.v1.CustomResourceDefinition": {"spec": {}, "status": {}},
    "scheduling.v1.PriorityClass": {"value": 0},
}
# Plain Go integers, booleans and strings of status and spec that vanish when they are zero. Pointers keep their zero.
VANISHING: dict[str, frozenset[str]] = {
    "ObjectMeta": frozenset({"generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation"}),
    "NodeSpec": frozenset({"unschedulable", "providerID", "podCIDR", "externalID"}),
    "Taint": frozenset({"value"}),
    "Toleration": frozenset({"key", "operator", "value", "effect"}),
    "JobStatus": frozenset({"active", "succeeded", "failed", "completedIndexes"}),
    "JobCondition": frozenset({"reason", "message"}),
    "PodSpec": frozenset(
        {"nodeName", "hostNetwork", "hostPID", "hostIPC", "hostname", "subdomain", "serviceAccountName"}
        | {"serviceAccount", "priorityClassName", "schedulerName"}
    ),
    "PodStatus": frozenset({"message", "reason", "nominatedNodeName", "hostIP", "podIP"}),
    "NodeCondition": frozenset({"reason", "message"}),
    "PodCondition": frozenset({"reason", "message"}),
    "Event": frozenset({"reason", "message", "note", "count", "type", "action", "deprecatedCount"}),
    "Secret": frozenset({"type"}),
    "EnvVar": frozenset({"value"}),
    "ObjectReference": frozenset({"kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"}),
    "ResourceAttributes": frozenset({"namespace", "verb", "group", "version", "resource", "subresource", "name"}),
    "NonResourceAttributes": frozenset({"path", "verb"}),
    "EventSource": frozenset({"component", "host"}),
}

_table = orjson.loads(files(__package__).joinpath("types.json").read_bytes())
shape_of = resolver(_table, ZEROS)
OBJECT_META: Shape = shape_of("meta.v1.ObjectMeta")
DELETE_OPTIONS: Shape = shape_of("meta.v1.DeleteOptions")
