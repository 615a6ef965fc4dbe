"""Create, update and patch.

One write is: read the body, bring it into the kind's form, fill in what the server sets, validate, ask admission
webhooks, store. Up to the webhooks everything happens in one step of the loop, so a write that is not reviewed is
atomic; after a review the object is read again, and the write starts over if somebody else was faster.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, TypeAlias

from homelab_autoscaler.sandbox.apiserver.semantics import metadata, ownership
from homelab_autoscaler.sandbox.apiserver.semantics.decode import zero_value
from homelab_autoscaler.sandbox.apiserver.semantics.incoming import check_name
from homelab_autoscaler.sandbox.apiserver.semantics.json_patch import same
from homelab_autoscaler.sandbox.apiserver.semantics.ownership import Manager, Owners
from homelab_autoscaler.sandbox.apiserver.store import Key
from homelab_autoscaler.sandbox.status import (
    Cause,
    already_exists,
    bad_request,
    conflict,
    failure,
    forbidden,
    invalid,
    invalid_value,
    not_found,
    stale,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.apiserver.semantics.options import WriteOptions
    from homelab_autoscaler.sandbox.apiserver.semantics.plane import Call, Plane
    from homelab_autoscaler.sandbox.apiserver.semantics.resources import Resource

# How often a patch is made again when another write came in between.
_ATTEMPTS = 6
# Top-level keys that are no part of the kind's own content.
_FRAME = {"apiVersion", "kind", "metadata"}

# Makes the new object from the old one; gets None when there is none, may refuse, and may return owners it worked out.
Make: TypeAlias = "Callable[[JsonObject | None], tuple[JsonObject, Owners | None]]"


class Writer:
    """The write path of one server."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane

    # Create

    async def create(
        self, call: Call, body: JsonObject, options: WriteOptions, owners: Owners | None = None
    ) -> JsonObject:
        """Store a new object.

        Args:
            call: where it goes.
            body: the decoded object.
            options: of the request.
            owners: field owners when they are known already (server-side apply).

        Raises:
            ApiStatusError: whatever speaks against it.
        """
        resource = call.resource
        plane = self._plane
        meta = body["metadata"]
        namespace = call.target.namespace or ""
        self._check_namespace(call, meta, namespace)
        if not options.dry_run and _names_a_revision(meta.get("resourceVersion", "")):
            raise failure(500, "", "resourceVersion should not be set on objects to be created")
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = metadata.generated_name(meta["generateName"])
        metadata.for_create(
            meta,
            namespace=namespace,
            uid=str(uuid.uuid4()),
            now=plane.now(),
            generation=1 if resource.custom or resource.rules.generation else None,
        )
        if resource.has_status and not resource.rules.keeps_status_on_create:
            body.pop("status", None)
            if "status" in resource.shape.zero:
                body["status"] = zero_value(resource.shape.fields["status"])
        resource.rules.default(body)
        resource.rules.prepare_create(body)
        metadata.tidy(meta)
        self._validate(resource, body, None)
        key = Key(namespace, meta["name"])
        if owners is None:
            owners = ownership.after_update(
                {},
                None,
                body,
                resource.shape,
                Manager(options.field_manager or call.manager, "Update"),
                resource.api_version,
                plane.now(),
                self._ignored(resource, ""),
            )
        ownership.write(meta, owners)
        if plane.reviewer.wanted(call, "CREATE", ""):
            await plane.reviewer.review(
                call, "CREATE", body, None, _with_kind(options, "CreateOptions"), name=key.name, dry_run=options.dry_run
            )
        self._refuse_if_there(resource, key)
        if options.dry_run:
            return body
        return plane.put(call, key, body)

    def _refuse_if_there(self, resource: Resource, key: Key) -> None:
        present = self._plane.collection(resource).get(key)
        if present is not None:
            deleting = "deletionTimestamp" in present.load()["metadata"]
            raise already_exists(resource.plural, resource.group, key.name, deleting=deleting)

    def _check_namespace(self, call: Call, meta: JsonObject, namespace: str) -> None:
        resource = call.resource
        if not resource.namespaced:
            meta.pop("namespace", None)
            return
        given = meta.get("namespace")
        if given and given != namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        self.admit_into(resource, namespace, meta.get("name", ""))

    def admit_into(self, resource: Resource, namespace: str, name: str) -> None:
        """Refuse new content in a namespace that is missing or on its way out.

        Raises:
            ApiStatusError: 404 or 403.
        """
        found = self._plane.store.collection("/namespaces").get(Key("", namespace))
        if found is None:
            raise not_found("namespaces", "", namespace)
        if b'"deletionTimestamp"' in found.raw and "deletionTimestamp" in found.load()["metadata"]:
            raise forbidden(
                resource.plural,
                resource.group,
                name,
                f"unable to create new content in namespace {namespace} because it is being terminated",
                [Cause("NamespaceTerminating", f"namespace {namespace} is being terminated", "metadata.namespace")],
            )

    # Update

    async def change(
        self, call: Call, make: Make, options: WriteOptions, *, patching: bool, operation: str = "Update"
    ) -> tuple[JsonObject, bool]:
        """Replace an object by what `make` makes of it.

        Args:
            call: which object, and through which subresource.
            make: called again when another write came in between.
            options: of the request.
            patching: the change is relative to the present state, so it may be made again after a conflict.
            operation: Update or Apply, for managedFields.

        Returns:
            The object as stored, and whether it was created.

        Raises:
            ApiStatusError: whatever speaks against it.
        """
        resource = call.resource
        plane = self._plane
        for _ in range(_ATTEMPTS):
            stored = plane.collection(resource).get(call.key)
            if stored is None:
                return await self._create_instead(call, make, options)
            old = plane.load(resource, stored)
            new, owners = make(plane.load(resource, stored))
            new = self._prepare(call, new, old, patching=patching)
            changed = not _same_content(old, new)
            if changed and self._counts(resource, old, new, call.target.subresource):
                new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
            self._validate(resource, new, old, call.target.subresource)
            self._own(call, old, new, owners, options, operation, changed=changed)
            if plane.reviewer.wanted(call, "UPDATE", call.target.subresource):
                await plane.reviewer.review(
                    call,
                    "UPDATE",
                    new,
                    old,
                    _with_kind(options, "UpdateOptions"),
                    name=call.target.name,
                    dry_run=options.dry_run,
                )
                if plane.collection(resource).get(call.key) is not stored:
                    continue
            if not changed and ownership.equal_but_times(old, new):
                return old, False
            return self._store_change(call, new, options), False
        raise stale(resource.plural, resource.group, call.target.name)

    async def _create_instead(self, call: Call, make: Make, options: WriteOptions) -> tuple[JsonObject, bool]:
        body, owners = make(None)
        check_name(call, body)
        body["metadata"].pop("resourceVersion", None)
        return await self.create(call, body, options, owners), True

    def _store_change(self, call: Call, new: JsonObject, options: WriteOptions) -> JsonObject:
        meta = new["metadata"]
        done = "deletionTimestamp" in meta and not meta.get("finalizers") and not meta.get("deletionGracePeriodSeconds")
        if call.resource.collection == "/namespaces" and (new.get("spec") or {}).get("finalizers"):
            done = False
        if options.dry_run:
            return new
        if done:
            return self._plane.remove(call, call.key, new)
        return self._plane.put(call, call.key, new)

    def _prepare(self, call: Call, new: JsonObject, old: JsonObject, *, patching: bool) -> JsonObject:
        """Identity and version checks; then what the server keeps from the old object."""
        resource = call.resource
        meta, old_meta = new["metadata"], old["metadata"]
        name = call.target.name
        check_name(call, new)
        if meta.get("namespace") and resource.namespaced and meta["namespace"] != old_meta.get("namespace"):
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        if resource.namespaced:
            meta["namespace"] = old_meta["namespace"]
        else:
            meta.pop("namespace", None)
        if meta.get("uid") and meta["uid"] != old_meta["uid"] and not patching:
            where = f"/registry/{resource.group or 'core'}/{resource.plural}/{call.target.namespace or ''}/{name}"
            raise conflict(
                resource.plural,
                resource.group,
                name,
                f"StorageError: invalid object, Code: 4, Key: {where}, ResourceVersion: 0, AdditionalErrorMsg: "
                f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {old_meta['uid']}",
            )
        version = meta.get("resourceVersion", "")
        if version and version != "0":
            if not (version.isascii() and version.isdigit()):
                raise failure(500, "", f'strconv.ParseUint: parsing "{version}": invalid syntax')
            if version != old_meta["resourceVersion"]:
                raise stale(resource.plural, resource.group, name)
        elif not patching and not resource.rules.unconditional_update:
            raise invalid(
                resource.plural,
                resource.group,
                name,
                [invalid_value("metadata.resourceVersion", 0, "must be specified for an update")],
            )
        new = self._split(call, new, old)
        meta = new["metadata"]
        metadata.for_update(meta, old_meta)
        meta["resourceVersion"] = old_meta["resourceVersion"]
        resource.rules.default(new)
        if call.target.subresource in {"", "status"}:
            resource.rules.prepare_update(new, old)
        metadata.tidy(meta)
        return new

    @staticmethod
    def _split(call: Call, new: JsonObject, old: JsonObject) -> JsonObject:
        """Only status through /status, everything but status without it."""
        resource = call.resource
        if call.target.subresource == "status":
            if resource.custom:
                kept = {**old, "metadata": {**old["metadata"]}}
                if "managedFields" in new["metadata"]:
                    kept["metadata"]["managedFields"] = new["metadata"]["managedFields"]
                for key in ("uid", "resourceVersion"):
                    if key in new["metadata"]:
                        kept["metadata"][key] = new["metadata"][key]
                new_status = new.get("status")
                kept.pop("status", None)
                return {**kept, "status": new_status} if new_status is not None else kept
            kept = {key: value for key, value in old.items() if key not in {"status", "metadata"}}
            return {**kept, "metadata": new["metadata"], **({"status": new["status"]} if "status" in new else {})}
        if resource.has_status and not call.target.subresource:
            new.pop("status", None)
            if "status" in old:
                new["status"] = old["status"]
        return new

    @staticmethod
    def _counts(resource: Resource, old: JsonObject, new: JsonObject, subresource: str) -> bool:
        """Whether a change gives a new generation."""
        if not (resource.custom or resource.rules.generation):
            return False
        ignored = {*_FRAME, "status"} if resource.has_status else _FRAME
        if subresource not in {"", "scale"}:
            return False
        keys = (old.keys() | new.keys()) - ignored
        return any(not same(old.get(key), new.get(key)) or (key in old) != (key in new) for key in keys)

    def _own(
        self,
        call: Call,
        old: JsonObject,
        new: JsonObject,
        owners: Owners | None,
        options: WriteOptions,
        operation: str,
        *,
        changed: bool,
    ) -> None:
        resource = call.resource
        meta = new["metadata"]
        if owners is None:
            owners = ownership.read(meta) or ownership.read(old["metadata"])
            if changed:
                subresource = call.target.subresource
                owners = ownership.after_update(
                    owners,
                    old,
                    new,
                    resource.shape,
                    Manager(options.field_manager or call.manager, operation, subresource),
                    resource.api_version,
                    self._plane.now(),
                    self._ignored(resource, subresource),
                )
        ownership.write(meta, owners)

    @staticmethod
    def _ignored(resource: Resource, subresource: str) -> list[tuple[str, ...]]:
        """Branches that a request cannot write and therefore does not come to own."""
        if subresource == "status":
            return [("f:spec",), ("f:metadata",)] if resource.custom else [("f:spec",)]
        return [("f:status",)] if resource.has_status else []

    # Both

    @staticmethod
    def _validate(resource: Resource, body: JsonObject, old: JsonObject | None, subresource: str = "") -> None:
        meta = body["metadata"]
        rules = resource.rules
        qualified = rules.qualified_finalizers and not resource.custom
        problems = metadata.name_problems(meta, rules.name_rule, new=old is None)
        problems += metadata.problems_of(meta, qualified_finalizers=qualified)
        if old is not None:
            found = metadata.validate_update(meta, old["metadata"])
            # A real server validates metadata of an update twice and lists each problem twice.
            problems += [*found, *found]
        own: list[Cause] = []
        if resource.schema is not None:
            own = resource.schema.problems(body, old, problems)
        elif subresource == "status" and old is not None:
            own = rules.validate_status(body, old)
        else:
            own = rules.validate(body)
            if old is not None and not subresource:
                own += rules.validate_update(body, old)
        problems = own if own and rules.metadata_last else [*problems, *own]
        if problems:
            # Events of either group are validated, and named in errors, as the core kind.
            group = "" if resource.collection == "/events" else resource.group
            raise invalid(resource.kind, group, meta.get("name", ""), problems)


def _names_a_revision(text: str) -> bool:
    """Whether a new object claims to have been stored before; what is no number says nothing."""
    return text.isascii() and text.isdigit() and int(text) != 0


def _with_kind(options: WriteOptions, kind: str) -> JsonObject:
    return {**options.to_json(), "kind": kind}


def _same_content(old: JsonObject, new: JsonObject) -> bool:
    """Whether two objects differ in nothing but managedFields."""
    if old.keys() != new.keys():
        return False
    one, other = old["metadata"], new["metadata"]
    skip = {"managedFields"}
    if one.keys() - skip != other.keys() - skip:
        return False
    return all(same(old[key], new[key]) for key in old if key != "metadata") and all(
        same(one[key], other[key]) for key in one if key not in skip
    )
