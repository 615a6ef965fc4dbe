"""metadata of an object: what a server sets, keeps, and refuses."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from homelab_autoscaler.sandbox.apiserver.semantics import names
from homelab_autoscaler.sandbox.status import Cause, forbidden_field, invalid_value, required

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject

# What only the server decides; an update keeps the stored values whatever it says.
SYSTEM_FIELDS = ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink")
_NAME_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_GENERATED_LIMIT = 58
_ANNOTATIONS_LIMIT = 256 * 1024
_STANDARD_FINALIZERS = {"kubernetes", "orphan", "foregroundDeletion"}
_REFERENCE_ORDER = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")


def generated_name(prefix: str) -> str:
    """A name from generateName: five characters without vowels, so that no words arise."""
    return prefix[:_GENERATED_LIMIT] + "".join(secrets.choice(_NAME_ALPHABET) for _ in range(5))


def name_problems(metadata: JsonObject, name_rule: str, *, new: bool) -> list[Cause]:
    """What is wrong with an object's name, and with the start of one that is generated."""
    problems: list[Cause] = []
    rule = names.NAME_RULES[name_rule]
    prefix = metadata.get("generateName", "")
    if prefix and new:
        # A dash or a dot at its end is followed by more.
        tried = f"{prefix[:-1]}a" if prefix[-1] in "-." else prefix
        problems += [invalid_value("metadata.generateName", prefix, why) for why in rule(tried)]
    name = metadata.get("name", "")
    if not name:
        problems.append(required("metadata.name", "name or generateName is required"))
    else:
        problems += [invalid_value("metadata.name", name, why) for why in rule(name)]
    return problems


def problems_of(metadata: JsonObject, *, qualified_finalizers: bool) -> list[Cause]:
    """What is wrong with everything else, in the order in which a server says it."""
    problems: list[Cause] = []
    for key, value in (metadata.get("labels") or {}).items():
        problems += [invalid_value("metadata.labels", key, why) for why in names.qualified_name_problems(key)]
        problems += [invalid_value("metadata.labels", value, why) for why in names.label_value_problems(value)]
    annotations = metadata.get("annotations") or {}
    for key in annotations:
        problems += [
            invalid_value("metadata.annotations", key, why) for why in names.qualified_name_problems(key.lower())
        ]
    if sum(len(key) + len(value) for key, value in annotations.items()) > _ANNOTATIONS_LIMIT:
        problems.append(
            Cause(
                "FieldValueTooLong",
                f"Too long: may not be more than {_ANNOTATIONS_LIMIT} bytes",
                "metadata.annotations",
            )
        )
    problems += _owner_problems(metadata.get("ownerReferences") or [])
    if metadata.get("generation", 0) < 0:
        problems.append(
            invalid_value("metadata.generation", metadata["generation"], "must be greater than or equal to 0")
        )
    for index, finalizer in enumerate(metadata.get("finalizers") or []):
        if qualified_finalizers and "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            text = "name is neither a standard finalizer name nor is it fully qualified"
            problems.append(invalid_value(f"metadata.finalizers[{index}]", finalizer, text))
        problems += [
            invalid_value("metadata.finalizers", finalizer, why) for why in names.qualified_name_problems(finalizer)
        ]
    return problems


def _owner_problems(references: list[JsonObject]) -> list[Cause]:
    problems = []
    controllers = []
    for reference in references:
        api_version = reference.get("apiVersion", "")
        if not api_version or api_version.count("/") > 1:
            problems.append(
                invalid_value("metadata.ownerReferences.apiVersion", api_version, "version must not be empty")
            )
        problems += [
            invalid_value(f"metadata.ownerReferences.{key}", "", "must not be empty")
            for key in ("kind", "name", "uid")
            if not reference.get(key)
        ]
        if reference.get("controller"):
            controllers.append(reference)
    if len(controllers) > 1:
        first, second = controllers[0], controllers[1]
        shown = [{key: item[key] for key in _REFERENCE_ORDER if key in item} for item in references]
        problems.append(
            invalid_value(
                "metadata.ownerReferences",
                shown,
                'Only one reference can have Controller set to true. Found "true" in references for '
                f"{first['kind']}/{first['name']} and {second['kind']}/{second['name']}",
            )
        )
    return problems


def validate_update(metadata: JsonObject, old: JsonObject) -> list[Cause]:
    """What an update may not do to metadata."""
    problems = []
    if old.get("deletionTimestamp"):
        before = set(old.get("finalizers") or [])
        added = [item for item in metadata.get("finalizers") or [] if item not in before]
        if added:
            listed = ", ".join(f'"{item}"' for item in sorted(added))
            problems.append(
                forbidden_field(
                    "metadata.finalizers",
                    "no new finalizers can be added if the object is being deleted, found new finalizers "
                    f"[]string{{{listed}}}",
                )
            )
    return problems + [
        invalid_value(f"metadata.{key}", metadata.get(key, ""), "field is immutable")
        for key in ("uid", "name", "namespace")
        if metadata.get(key, "") != old.get(key, "")
    ]


def for_create(metadata: JsonObject, *, namespace: str, uid: str, now: str, generation: int | None) -> None:
    """Set what the server sets on a new object, and drop what a client may not set."""
    for key in (*SYSTEM_FIELDS, "resourceVersion", "managedFields"):
        if key != "generation":
            metadata.pop(key, None)
    metadata["uid"] = uid
    metadata["creationTimestamp"] = now
    if generation is not None:
        metadata["generation"] = generation
    if namespace:
        metadata["namespace"] = namespace
    else:
        metadata.pop("namespace", None)


def for_update(metadata: JsonObject, old: JsonObject) -> None:
    """Keep what only the server decides."""
    for key in SYSTEM_FIELDS:
        if key in old:
            metadata[key] = old[key]
        else:
            metadata.pop(key, None)
    if not metadata.get("uid"):
        metadata["uid"] = old["uid"]


def tidy(metadata: JsonObject) -> JsonObject:
    """Without empty lists and maps, which a server never shows."""
    for key in ("labels", "annotations", "finalizers", "ownerReferences", "managedFields"):
        value: Any = metadata.get(key, ...)
        if value is not ... and not value:
            del metadata[key]
    return metadata
