"""The steps of the write orders, as they go over the wire: what a test holds, or interferes with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from homelab_api import names

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.proxy import Asked


def _patch(kind: str, subresource: str, says: Callable[[dict[str, Any]], Any]) -> Callable[[Asked], bool]:
    def matches(asked: Asked) -> bool:
        if (asked.method, asked.kind, asked.subresource) != ("PATCH", kind, subresource):
            return False
        body = asked.json()
        return isinstance(body, dict) and bool(says(body))

    return matches


def _metadata(body: dict[str, Any], field: str) -> Any:
    return body.get("metadata", {}).get(field) or {}


takes_lock = _patch("slots", "", lambda body: _metadata(body, "annotations").get(names.ANNOTATION_LOCK))
commits = _patch("nodeclaims", "", lambda body: names.FINALIZER_MACHINE in _metadata(body, "finalizers"))
lets_go = _patch("nodeclaims", "", lambda body: body.get("metadata", {}).get("finalizers", "unsaid") is None)
seeds = _patch("nodeclaims", "status", lambda body: "attempt" in body["status"])
records_request = _patch("nodeclaims", "status", lambda body: "powerRequestedAt" in body["status"])
counts_shutdown = _patch("nodeclaims", "status", lambda body: "shutdownAttempts" in body["status"])
digests = _patch("slots", "status", lambda body: "lastClaim" in body["status"])
cordons = _patch("nodes", "", lambda body: body.get("spec", {}).get("unschedulable"))
makes_capacity = _patch("nodes", "", lambda body: _metadata(body, "labels").get(names.LABEL_NODE))
clears_deadline = _patch("nodeclaims", "", lambda body: "deadlineAt" in body.get("spec", {}))


def moves_to(phase: str) -> Callable[[Asked], bool]:
    """A claim's move."""
    return _patch("nodeclaims", "status", lambda body: body["status"].get("phase") == phase)


def creates_job(kind: str) -> Callable[[Asked], bool]:
    """The making of a lifecycle Job, `startup` or `shutdown`."""
    return lambda asked: (
        (asked.method, asked.plural) == ("POST", "jobs")
        and asked.json()["metadata"]["labels"][names.LABEL_JOB_TYPE] == kind
    )


def releases_job(kind: str) -> Callable[[Asked], bool]:
    """The release of a suspended lifecycle Job."""
    return lambda asked: (asked.method, asked.plural) == ("PATCH", "jobs") and f"-{kind}" in asked.name


def unlocks(asked: Asked) -> bool:
    """The lock is given back."""
    if (asked.method, asked.kind, asked.subresource) != ("PATCH", "slots", ""):
        return False
    body = asked.json()
    return isinstance(body, list) and any(part["op"] == "remove" for part in body)


def deletes(kind: str) -> Callable[[Asked], bool]:
    """The delete of an object of this kind; see Asked.kind."""
    return lambda asked: (asked.method, asked.kind) == ("DELETE", kind)


def evicts(asked: Asked) -> bool:
    """An eviction of a drain."""
    return asked.method == "POST" and asked.subresource == "eviction"


def reads(kind: str) -> Callable[[Asked], bool]:
    """An uncached read of one object."""
    return lambda asked: asked.method == "GET" and asked.kind == kind and bool(asked.name)


def renews_lead(asked: Asked) -> bool:
    """Anything that the election asks."""
    return asked.plural == "leases"
