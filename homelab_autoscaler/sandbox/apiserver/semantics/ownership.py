"""managedFields: who set which field, for plain writes and for server-side apply."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from homelab_autoscaler.sandbox.apiserver.semantics import fieldset
from homelab_autoscaler.sandbox.status import ApiStatusError, failure

if TYPE_CHECKING:
    from collections.abc import Iterable

    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.apiserver.semantics.fieldset import Fields
    from homelab_autoscaler.sandbox.apiserver.semantics.shape import Shape

# What nobody owns: the server sets it, or it names the object.
_UNOWNED = [
    ("f:apiVersion",),
    ("f:kind",),
    *(
        ("f:metadata", f"f:{name}")
        for name in [
            "name",
            "namespace",
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "deletionTimestamp",
            "selfLink",
            "managedFields",
            "deletionGracePeriodSeconds",
            "generateName",
        ]
    ),
]


_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class Manager(NamedTuple):
    """Who owns fields: a name, how it writes, and through which subresource."""

    name: str
    operation: str
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One manager's set, with the version that it wrote in and when it last changed the set."""

    manager: Manager
    api_version: str
    time: str
    fields: Fields


Owners = dict[Manager, Entry]


def read(metadata: JsonObject) -> Owners:
    """The owners that an object records."""
    found = {}
    for item in metadata.get("managedFields") or ():
        manager = Manager(item.get("manager", ""), item.get("operation", ""), item.get("subresource", ""))
        found[manager] = Entry(manager, item.get("apiVersion", ""), item.get("time", ""), item.get("fieldsV1") or {})
    return found


def write(metadata: JsonObject, owners: Owners) -> None:
    """Record owners on an object, in the order in which a server sorts them."""
    entries = []
    for entry in sorted(owners.values(), key=lambda item: (item.manager.operation, item.time, item.manager)):
        shown: JsonObject = {
            "manager": entry.manager.name,
            "operation": entry.manager.operation,
            "apiVersion": entry.api_version,
            "time": entry.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": entry.fields,
        }
        if entry.manager.subresource:
            shown["subresource"] = entry.manager.subresource
        entries.append(shown)
    if entries:
        metadata["managedFields"] = entries
    else:
        metadata.pop("managedFields", None)


def owned(fields: Fields, ignored: Iterable[tuple[str, ...]] = ()) -> Fields:
    """A set without what nobody owns and without branches that the request cannot write."""
    found = fieldset.without(fields, *_UNOWNED, *ignored)
    found.pop(".", None)
    metadata = found.get("f:metadata")
    if metadata is not None:
        metadata = {key: value for key, value in metadata.items() if key != "."}
        if metadata:
            found["f:metadata"] = metadata
        else:
            del found["f:metadata"]
    return found


def after_update(
    owners: Owners,
    old: JsonObject | None,
    new: JsonObject,
    shape: Shape,
    manager: Manager,
    api_version: str,
    now: str,
    ignored: Iterable[tuple[str, ...]] = (),
) -> Owners:
    """The owners after a plain write: the writer owns what it changed, the others no longer do.

    Args:
        owners: the owners before.
        old: the object before; None when it is created.
        new: the object as it will be stored.
        shape: fields of the kind.
        manager: the writer.
        api_version: the version that it wrote in.
        now: for the time of changed entries.
        ignored: branches that this request cannot write.
    """
    if old is None:
        changed = owned(fieldset.fields_of(new, shape, containers=True), ignored)
        removed: Fields = {}
    else:
        changed, removed = fieldset.compare(old, new, shape)
        changed, removed = owned(changed, ignored), owned(removed, ignored)
    if not changed and not removed:
        return owners
    touched = fieldset.union(changed, removed) if changed and removed else changed or removed
    result: Owners = {}
    for key, entry in owners.items():
        if key == manager:
            continue
        left = fieldset.minus(entry.fields, touched)
        if left:
            result[key] = entry if left == entry.fields else replace(entry, fields=left)
    before = owners.get(manager)
    fields: Fields | None = changed
    if before is not None:
        fields = fieldset.union(before.fields, changed) if changed else before.fields
        if removed:
            fields = fieldset.minus(fields, removed)
    if fields:
        same_set = before is not None and before.fields == fields
        time = before.time if before is not None and same_set else now
        result[manager] = Entry(manager, api_version, time, fields)
    return result


def apply(
    live: JsonObject | None,
    config: JsonObject,
    shape: Shape,
    owners: Owners,
    manager: Manager,
    api_version: str,
    now: str,
    *,
    force: bool,
    ignored: Iterable[tuple[str, ...]] = (),
) -> tuple[JsonObject, Owners]:
    """Server-side apply.

    Args:
        live: the object before, without managedFields; None when it is created.
        config: what the manager wants, in full.
        shape: fields of the kind.
        owners: the owners before.
        manager: who applies.
        api_version: the version of the config.
        now: for the time of changed entries.
        force: take over fields that others hold with other values.
        ignored: branches that this request cannot write.

    Returns:
        The merged object and its owners.

    Raises:
        ApiStatusError: 409 when others hold fields with other values and `force` is not set.
    """
    applied = owned(fieldset.fields_of(config, shape), ignored)
    merged: JsonObject = _merge({} if live is None else live, config, shape)
    result = dict(owners)
    if live is not None:
        changed, _ = fieldset.compare(live, merged, shape)
        contested = fieldset.intersection(applied, owned(changed, ignored)) if changed else None
        if contested:
            result = _settle(owners, manager, contested, _client_side(live, shape, manager), force=force)
    last = owners[manager].fields if manager in owners else {}
    result.pop(manager, None)
    if applied:
        before = owners.get(manager)
        time = before.time if before is not None and before.fields == applied else now
        result[manager] = Entry(manager, api_version, time, applied)
    if last:
        kept: Fields = {}
        for entry in result.values():
            kept = fieldset.union(kept, entry.fields) if kept else entry.fields
        _prune(merged, last, kept, shape)
    return merged, result


def _client_side(live: JsonObject, shape: Shape, manager: Manager) -> Fields:
    """The fields that kubectl may take over without a conflict.

    An object that client-side apply has made goes on with server-side apply: what stands unchanged since the last
    client-side apply is the same person's, whatever manager wrote it then.
    """
    if manager.name != "kubectl":
        return {}
    text = (live["metadata"].get("annotations") or {}).get(_LAST_APPLIED)
    if not text:
        return {}
    try:
        last = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    if not isinstance(last, dict):
        return {}
    changed, _ = fieldset.compare(last, live, shape)
    return fieldset.minus(owned(fieldset.fields_of(last, shape)), owned(changed)) or {}


def _settle(owners: Owners, manager: Manager, contested: Fields, free: Fields, *, force: bool) -> Owners:
    conflicts: list[tuple[Entry, list[str]]] = []
    result: Owners = {}
    for key, entry in owners.items():
        if key == manager:
            result[key] = entry
            continue
        common = fieldset.intersection(entry.fields, contested)
        if not common:
            result[key] = entry
            continue
        held = fieldset.minus(common, free) if free else common
        if held:
            conflicts.append((entry, [fieldset.shown(path) for path in fieldset.leaves(held)]))
        left = fieldset.minus(entry.fields, common)
        if left:
            result[key] = replace(entry, fields=left)
    if conflicts and not force:
        raise _conflict_error(conflicts)
    return result


def _conflict_error(conflicts: list[tuple[Entry, list[str]]]) -> ApiStatusError:
    causes = []
    groups = []
    for entry, fields in sorted(conflicts, key=lambda item: item[0].manager):
        who = f'"{entry.manager.name}"'
        if entry.manager.subresource:
            who += f' with subresource "{entry.manager.subresource}"'
        if entry.manager.operation == "Update":
            who += f" using {entry.api_version}"
        causes += [
            {"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": field} for field in fields
        ]
        groups.append((who, fields))
    total = sum(len(fields) for _, fields in groups)
    if total == 1:
        text = f"Apply failed with 1 conflict: conflict with {groups[0][0]}: {groups[0][1][0]}"
    else:
        parts = [f"conflicts with {who}:" + "".join(f"\n- {field}" for field in fields) for who, fields in groups]
        text = f"Apply failed with {total} conflicts: " + "\n".join(parts)
    return failure(409, "Conflict", text, {"causes": causes})


def _merge(live: Any, config: Any, shape: Shape | None) -> Any:
    """What applying makes of a value: granular maps and associative lists merge, all else is replaced."""
    if isinstance(config, dict) and isinstance(live, dict) and (shape is None or not shape.atomic):
        merged = dict(live)
        for key, value in config.items():
            child = shape.field(key) if shape else None
            merged[key] = _merge(live[key], value, child) if key in live else value
        return merged
    if isinstance(config, list) and isinstance(live, list) and shape is not None and (shape.keys or shape.is_set):
        wanted = {fieldset.item_key(item, shape): item for item in config}
        result = []
        for item in live:
            key = fieldset.item_key(item, shape)
            if key in wanted:
                other = wanted.pop(key)
                result.append(_merge(item, other, shape.items) if shape.keys else item)
            else:
                result.append(item)
        return result + list(wanted.values())
    return config


def _prune(value: Any, last: Fields, kept: Fields, shape: Shape | None) -> None:
    """Remove what the manager no longer applies and nobody else owns. `kept` holds all present owners' fields."""
    if isinstance(value, dict):
        for key in list(last):
            name = key[2:]
            if not key.startswith("f:") or name not in value:
                continue
            child = shape.field(name) if shape else None
            if key not in kept:
                if _prune_child(value[name], last[key], {}, child, held=False):
                    del value[name]
            elif last[key]:
                _prune_child(value[name], last[key], kept[key], child, held=True)
    elif isinstance(value, list) and shape is not None:
        for key in list(last):
            if key == ".":
                continue
            index = next((at for at, item in enumerate(value) if fieldset.item_key(item, shape) == key), None)
            if index is None:
                continue
            if key not in kept:
                del value[index]
            elif last[key]:
                _prune(value[index], last[key], kept[key], shape.items)


def _prune_child(value: Any, last: Fields, kept: Fields, shape: Shape | None, *, held: bool) -> bool:
    """Prune below a field; True when the field itself should go, because nothing that was not applied is left in it."""
    if not last:
        return not held
    _prune(value, last, kept, shape)
    return not held and not value


def equal_but_times(one: JsonObject, other: JsonObject) -> bool:
    """Whether two objects differ in nothing but the times of their managedFields."""
    if orjson.dumps(one) == orjson.dumps(other):
        return True
    return _timeless(one) == _timeless(other)


def _timeless(body: JsonObject) -> JsonObject:
    metadata = dict(body["metadata"])
    metadata["managedFields"] = [
        {key: value for key, value in item.items() if key != "time"} for item in metadata.get("managedFields") or ()
    ]
    return {**body, "metadata": metadata}
