"""Good objects of many kinds, and what a careless or hostile client makes of them."""

from __future__ import annotations

import copy

from hypothesis import strategies as st

_IN = "/namespaces/default"
_LABELS = {"a": "b"}
_CONTAINER = {
    "name": "c",
    "image": "i",
    "command": ["x"],
    "env": [{"name": "E", "value": "v"}],
    "resources": {"requests": {"cpu": "10m"}, "limits": {"memory": "16Mi"}},
    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    "ports": [{"containerPort": 80}],
}
_POD = {
    "restartPolicy": "Never",
    "serviceAccountName": "sa",
    "nodeSelector": _LABELS,
    "tolerations": [{"key": "a", "operator": "Equal", "value": "v", "effect": "NoExecute", "tolerationSeconds": 5}],
    "volumes": [{"name": "v", "secret": {"secretName": "s"}}, {"name": "w", "emptyDir": {}}],
    "containers": [_CONTAINER],
}
_ABOUT = {"kind": "Pod", "name": "p", "namespace": "default"}
_RBAC = "rbac.authorization.k8s.io"
_HOOK = {
    "name": "a.b.c",
    "clientConfig": {"url": "https://127.0.0.1:1/x"},
    "rules": [{"apiGroups": ["z.dev"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["zs"]}],
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
}


def _kind(api_version, kind, plural, place=_IN, **content):
    root = "/api" if "/" not in api_version else "/apis"
    body = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x", "labels": _LABELS}, **content}
    return f"{root}/{api_version}{place}/{plural}", body


GOOD = {
    body["kind"]: (path, body)
    for path, body in (
        _kind("v1", "ConfigMap", "configmaps", data={"k": "v"}),
        _kind("v1", "Secret", "secrets", data={"k": "dg=="}, type="Opaque"),
        _kind(
            "v1",
            "Node",
            "nodes",
            "",
            spec={"taints": [{"key": "a", "effect": "NoSchedule"}], "providerID": "p"},
            status={"conditions": [{"type": "Ready", "status": "True"}], "capacity": {"cpu": "4"}},
        ),
        _kind("v1", "Namespace", "namespaces", ""),
        _kind("v1", "Pod", "pods", spec=_POD),
        _kind("batch/v1", "Job", "jobs", spec={"template": {"metadata": {"labels": _LABELS}, "spec": _POD}}),
        _kind(
            "coordination.k8s.io/v1",
            "Lease",
            "leases",
            spec={"holderIdentity": "a", "leaseDurationSeconds": 5, "renewTime": "2026-01-01T00:00:00.000000Z"},
        ),
        _kind("v1", "Event", "events", involvedObject=_ABOUT, reason="R", message="m", type="Normal", count=1),
        _kind(
            "policy/v1",
            "PodDisruptionBudget",
            "poddisruptionbudgets",
            spec={"minAvailable": 1, "selector": {"matchLabels": _LABELS}},
        ),
        _kind(
            f"{_RBAC}/v1",
            "ClusterRole",
            "clusterroles",
            "",
            rules=[{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
        ),
        _kind(
            f"{_RBAC}/v1",
            "RoleBinding",
            "rolebindings",
            roleRef={"apiGroup": _RBAC, "kind": "Role", "name": "r"},
            subjects=[{"kind": "User", "apiGroup": _RBAC, "name": "u"}],
        ),
        _kind(
            "admissionregistration.k8s.io/v1",
            "ValidatingWebhookConfiguration",
            "validatingwebhookconfigurations",
            "",
            webhooks=[_HOOK],
        ),
        _kind(
            "apps/v1",
            "Deployment",
            "deployments",
            spec={
                "selector": {"matchLabels": _LABELS},
                "template": {
                    "metadata": {"labels": _LABELS},
                    "spec": {"containers": [{"name": "c", "image": "i"}]},
                },
            },
        ),
        _kind(
            "test.example.dev/v1",
            "Widget",
            "widgets",
            spec={
                "size": 3,
                "low": 1,
                "high": 2,
                "fixed": "f",
                "free": {"q": 1},
                "parts": [{"name": "a", "value": "b"}],
            },
        ),
    )
}
"""Path of the collection and a good body, by kind."""

JUNK = [
    *(None, True, False, 0, 1, -1, 2**31, 1.5, 2.0),
    *("", "x", "X_Y", "-a", "a" * 64, "a" * 254, "a/b", "a/b/c", "ä", "{}", "1", "1.5", "10Gi"),
    *("2026-01-01T00:00:00Z", "tomorrow", "%", "a.b.c", "http://x", "a=b", "Always", "None", "\x00", "a\nb"),
    *([], [1], ["a"], [None], [{}], {}, {"a": 1}, {"a": None}, {"a": "b"}, {"": ""}, {"a b": "c"}),
]


def _places(value, path=()):
    if path:
        yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from _places(child, (*path, key))


@st.composite
def spoilt(draw, body):
    """The body with one place set to junk, taken out, repeated or added to."""
    found = copy.deepcopy(body)
    path = draw(st.sampled_from(list(_places(found))))
    parent = found
    for key in path[:-1]:
        parent = parent[key]
    last, value = path[-1], parent[path[-1]]
    ways = ["set", "set", "remove"] + ["repeat"] * isinstance(value, list) + ["add"] * isinstance(value, dict)
    way = draw(st.sampled_from(ways))
    if way == "set":
        parent[last] = draw(st.sampled_from(JUNK))
    elif way == "remove":
        del parent[last]
    elif way == "repeat":
        value.append(copy.deepcopy(value[0]))
    else:
        value[draw(st.sampled_from(["odd", "Name", ""]))] = draw(st.sampled_from(JUNK))
    return found
