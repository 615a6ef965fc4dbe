"""DELETE: preconditions, grace periods, finalizers and propagation.

What a deletion leaves to controllers: removing dependents and orphaning them (garbage collector), emptying a namespace
(namespace controller), ending containers (kubelet). Here an object is only marked, or removed when nothing holds it.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from homelab_autoscaler.sandbox.apiserver.semantics.options import DeleteOptions, list_options
from homelab_autoscaler.sandbox.apiserver.semantics.plane import SYSTEM_NAMESPACES, Call, Plane
from homelab_autoscaler.sandbox.apiserver.semantics.reading import Reader, Selection
from homelab_autoscaler.sandbox.status import conflict, details_of, forbidden, not_found, stale, success

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.apiserver.semantics.resources import Resource
    from homelab_autoscaler.sandbox.apiserver.store import Key, Stored

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
CRD_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
_CRDS = "apiextensions.k8s.io/customresourcedefinitions"
_ATTEMPTS = 6
_ORPHAN_WARNING = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)


class Deleter:
    """The deletion path of one server."""

    def __init__(self, plane: Plane, reader: Reader) -> None:
        self._plane = plane
        self._reader = reader

    async def delete(self, call: Call, options: DeleteOptions) -> JsonObject:
        """Delete one object.

        Returns:
            A Success Status when the object is gone, else the object as it now is.

        Raises:
            ApiStatusError: 404, 409 for preconditions, whatever admission says.
        """
        resource = call.resource
        if resource.rules.orphans_by_default and not options.propagation and options.orphan is None:
            call.warn(_ORPHAN_WARNING)
        body, gone = await self.remove(call, call.key, options, name=call.target.name)
        if gone and not resource.rules.returns_deleted:
            details = details_of(resource.plural, resource.group, call.target.name)
            return success(details={**details, "uid": body["metadata"]["uid"]})
        return body

    async def delete_collection(self, call: Call, options: DeleteOptions) -> tuple[list[JsonObject], JsonObject]:
        """Delete what the selectors match; answer the objects and the metadata of the list that was made of them."""
        chosen = list_options(call.request)
        selection = Selection.of(call, chosen)
        items, metadata = self._reader.page(selection, chosen)
        removed = []
        for item in items:
            present = self._plane.collection(call.resource).get(item.key)
            if present is not None and present.uid == item.uid:
                before = self._plane.load(call.resource, present)
                await self.remove(call, item.key, options, name="")
                removed.append(before)
        return removed, metadata

    async def remove(self, call: Call, key: Key, options: DeleteOptions, *, name: str) -> tuple[JsonObject, bool]:
        """Delete an object or mark it; returns its last state and whether it is gone.

        Args:
            call: for identity, warnings and the record of writes.
            key: which object.
            options: of the deletion.
            name: as admission reviews show it; empty in collection deletes.
        """
        resource = call.resource
        plane = self._plane
        for _ in range(_ATTEMPTS):
            stored = plane.collection(resource).get(key)
            if stored is None:
                raise not_found(resource.plural, resource.group, key.name)
            _check_preconditions(resource, key, options, stored)
            old = plane.load(resource, stored)
            if resource.collection == "/namespaces" and key.name in SYSTEM_NAMESPACES[:3]:
                raise forbidden("namespaces", "", key.name, "this namespace may not be deleted")
            if plane.reviewer.wanted(call, "DELETE", ""):
                await plane.reviewer.review(
                    call, "DELETE", None, old, options.to_json(), name=name, dry_run=options.dry_run
                )
                if plane.collection(resource).get(key) is not stored:
                    continue
            return self._mark_or_remove(call, key, old, options)
        raise stale(resource.plural, resource.group, key.name)

    def _mark_or_remove(self, call: Call, key: Key, old: JsonObject, options: DeleteOptions) -> tuple[JsonObject, bool]:
        resource = call.resource
        body = {**old, "metadata": dict(old["metadata"])}
        meta = body["metadata"]
        _set_finalizers(resource, meta, options)
        grace = _grace(resource, old, options)
        held = bool(meta.get("finalizers")) or grace > 0 or _namespace_held(resource, body)
        if not held:
            if options.dry_run:
                return old, True
            return self._plane.remove(call, key), True
        changed = meta.get("finalizers") != old["metadata"].get("finalizers")
        changed |= self._mark(resource, body, grace)
        if not changed:
            return old, False
        if options.dry_run:
            return body, False
        return self._plane.put(call, key, body), False

    def _mark(self, resource: Resource, body: JsonObject, grace: int) -> bool:
        """Set what says that an object is on its way out; False when that changes nothing."""
        meta = body["metadata"]
        now = self._plane.clock.now()
        if "deletionTimestamp" not in meta:
            meta["deletionTimestamp"] = _text(now + timedelta(seconds=grace))
            if resource.collection != "/namespaces":
                meta["deletionGracePeriodSeconds"] = grace
            if "generation" in meta:
                meta["generation"] += 1
            if resource.collection == "/namespaces":
                body["status"] = {**body.get("status", {}), "phase": "Terminating"}
            if resource.collection == _CRDS:
                _mark_crd(body, _text(now))
            return True
        present = meta.get("deletionGracePeriodSeconds", 0)
        if grace >= present:
            return False
        # A shorter period counts from the first request and moves the end forward.
        end = datetime.fromisoformat(meta["deletionTimestamp"]) - timedelta(seconds=present - grace)
        meta["deletionTimestamp"] = _text(max(end, now))
        meta["deletionGracePeriodSeconds"] = grace
        return True


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _check_preconditions(resource: Resource, key: Key, options: DeleteOptions, stored: Stored) -> None:
    if options.uid and options.uid != stored.uid:
        raise conflict(
            resource.kind,
            resource.group,
            key.name,
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({stored.uid}). "
            "The object might have been deleted and then recreated",
        )
    if options.resource_version and options.resource_version != str(stored.revision):
        raise conflict(
            resource.kind,
            resource.group,
            key.name,
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match the ResourceVersion "
            f"in record ({stored.revision}). The object might have been modified",
        )


def _set_finalizers(resource: Resource, meta: JsonObject, options: DeleteOptions) -> None:
    """Put the garbage collector's finalizer for the wanted propagation in place of the other one."""
    finalizers = list(meta.get("finalizers") or [])
    policy = options.propagation if resource.rules.collected else ""
    if not policy and resource.rules.collected:
        if options.orphan is not None:
            policy = "Orphan" if options.orphan else "Background"
        elif ORPHAN in finalizers or FOREGROUND in finalizers:
            policy = ""
        elif resource.rules.orphans_by_default:
            policy = "Orphan"
    if policy:
        finalizers = [item for item in finalizers if item not in {FOREGROUND, ORPHAN}]
        if policy == "Orphan":
            finalizers.append(ORPHAN)
        elif policy == "Foreground":
            finalizers.append(FOREGROUND)
    if resource.collection == _CRDS and "deletionTimestamp" not in meta and CRD_FINALIZER not in finalizers:
        finalizers.append(CRD_FINALIZER)
    if finalizers:
        meta["finalizers"] = finalizers
    else:
        meta.pop("finalizers", None)


def _grace(resource: Resource, old: JsonObject, options: DeleteOptions) -> int:
    """How long a kubelet has to end the Pod; 0 for everything that no kubelet runs."""
    if resource.collection != "/pods":
        return 0
    spec, status = old.get("spec") or {}, old.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in {"Succeeded", "Failed"}:
        return 0
    if options.grace_period is not None:
        return options.grace_period
    wanted: int = spec.get("terminationGracePeriodSeconds", 30)
    return wanted


def _namespace_held(resource: Resource, body: JsonObject) -> bool:
    return resource.collection == "/namespaces" and bool((body.get("spec") or {}).get("finalizers"))


def _mark_crd(body: JsonObject, now: str) -> None:
    status = {**body.get("status", {})}
    conditions = [item for item in status.get("conditions") or [] if item["type"] != "Terminating"]
    conditions.append(
        {
            "type": "Terminating",
            "status": "True",
            "lastTransitionTime": now,
            "reason": "InstanceDeletionPending",
            "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        }
    )
    status["conditions"] = conditions
    body["status"] = status
