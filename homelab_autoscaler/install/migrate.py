"""From v1alpha1 to v2alpha1: what becomes of the Groups and Nodes that somebody keeps in files.

In v1alpha1 a slot said itself whether its machine was to be on (`spec.powerState`). In v2alpha1 no field asks for a
machine: a NodeClaim does. So nothing that a file declares can be carried over as a wish, and what is left out is told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from homelab_api import names
from homelab_api.v2alpha1 import Group, Node
from homelab_api.v2alpha1.group import GroupSpec
from homelab_api.v2alpha1.node import Pricing, SlotSpec
from homelab_api.v2alpha1.pod import MinimalPodSpec, Volume

if TYPE_CHECKING:
    from collections.abc import Iterable

    from homelab_api.meta import JsonObject, KubeModel

OLD_VERSION: Final = f"{names.GROUP}/v1alpha1"
_OLD_GROUP_LABEL: Final = "group"
_OF_THE_SERVER: Final = frozenset(
    {"creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"}
)
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_ON: Final = ("on", "true", True)  # YAML reads an unquoted `on` as true
_SCALING: Final = (
    "scaleDownUtilizationThreshold",
    "scaleDownGpuUtilizationThreshold",
    "scaleDownUnneededTime",
    "scaleDownUnreadyTime",
    "maxNodeProvisionTime",
    "zeroOrMaxNodeScaling",
    "ignoreDaemonSetsUtilization",
)


@dataclass(frozen=True, slots=True)
class Migrated:
    """One object as v2alpha1 has it.

    Attributes:
        body: to be applied.
        notes: what was left out, added or has to be looked at, a sentence each.
    """

    body: JsonObject
    notes: tuple[str, ...]


def migrated(old: JsonObject) -> Migrated:
    """The v2alpha1 form of a Group or Node of v1alpha1. The values themselves are judged by the API server.

    Raises:
        ValueError: it is neither, or has no name, or a part of it is no mapping where one belongs.
    """
    kind = old.get("kind")
    if old.get("apiVersion") != OLD_VERSION or kind not in {"Group", "Node"}:
        raise ValueError(f"{old.get('apiVersion')} {kind} is no Group or Node of {OLD_VERSION}")
    notes: list[str] = []
    metadata = _metadata(_mapping(old, "metadata"), notes)
    spec = _mapping(old, "spec")
    new = _slot(spec, metadata, notes) if kind == "Node" else _group(spec, metadata, notes)
    if old.get("status"):
        notes.append("status is left out: it is observed anew")
    api_version = (Node if kind == "Node" else Group).resource.api_version
    body = {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": new}
    return Migrated(body, tuple(notes))


def _metadata(old: JsonObject, notes: list[str]) -> JsonObject:
    if not isinstance(old.get("name"), str) or not old["name"]:
        raise ValueError("metadata.name is missing")
    metadata = {key: value for key, value in old.items() if key not in _OF_THE_SERVER}
    notes.extend(
        f"metadata.{key} is left out: what v1alpha1 put there would never be taken off again"
        for key in ("finalizers", "ownerReferences")
        if metadata.pop(key, None)
    )
    for key in ("annotations", "labels"):
        if key in metadata:
            metadata[key] = dict(_mapping(metadata, key))
    metadata.get("annotations", {}).pop(_LAST_APPLIED, None)
    if not metadata.get("annotations"):
        metadata.pop("annotations", None)
    return metadata


def _slot(old: JsonObject, metadata: JsonObject, notes: list[str]) -> JsonObject:
    wishes = ("powerState", "desiredPowerState")
    notes.extend(_wish(field, old[field], metadata["name"]) for field in wishes if field in old)
    labels = metadata.setdefault("labels", {})
    group = labels.pop(_OLD_GROUP_LABEL, None)
    if group is not None and labels.setdefault(names.LABEL_GROUP, group) == group:
        notes.append(f'label "{_OLD_GROUP_LABEL}" is now "{names.LABEL_GROUP}"')
    elif group is not None:
        notes.append(f'label "{_OLD_GROUP_LABEL}: {group}" is left out: "{names.LABEL_GROUP}" says otherwise')
    if names.LABEL_GROUP not in labels:
        notes.append(f'no label says which pool it belongs to: set "{names.LABEL_GROUP}" to the name of a Group')
    new = _kept(old, SlotSpec, "spec", notes, ignore=wishes)
    if "pricing" in new:
        new["pricing"] = _kept(_mapping(new, "pricing"), Pricing, "spec.pricing", notes)
    for field in ("startupPodSpec", "shutdownPodSpec"):
        if field in new:
            new[field] = _pod(_mapping(new, field), f"spec.{field}", notes)
    return new


def _wish(field: str, value: object, name: str) -> str:
    if value in _ON:
        return (
            f"spec.{field} asked for the machine to be on, and no field does that any more: if the autoscaler is not "
            f"to decide, keep it on with `homelab-autoscaler claim {name}`"
        )
    return f"spec.{field} is left out: a machine is off while no NodeClaim names its slot"


def _pod(old: JsonObject, path: str, notes: list[str]) -> JsonObject:
    new = _kept(old, MinimalPodSpec, path, notes)
    if "volumes" in new:
        new["volumes"] = [
            _kept(_item(entry, f"{path}.volumes[{place}]"), Volume, f"{path}.volumes[{place}]", notes)
            for place, entry in enumerate(new["volumes"])
        ]
    if "serviceAccount" in new:
        notes.append(f'{path}.serviceAccount "{new["serviceAccount"]}" is kept: the manager must be told to allow it')
    return new


def _group(old: JsonObject, metadata: JsonObject, notes: list[str]) -> JsonObject:
    name = metadata["name"]
    if old.get("name", name) != name:
        notes.append(
            f'spec.name "{old["name"]}" is left out: the pool is called "{name}", and so must its slots\' labels'
        )
    if old.get("nodeSelector"):
        notes.append(
            "spec.nodeSelector is left out: slots belong to a pool by their own label. What its nodes carry "
            "belongs into spec.nodeLabels, what a new one will carry into spec.template.labels"
        )
    new = _kept(old, GroupSpec, "spec", notes, ignore=("name", "nodeSelector"))
    if any(field in new for field in _SCALING):
        notes.append(
            "scaling options are kept, but an autoscaler from 1.35 on that is told any of them may ask for a machine "
            "too many: prefer the autoscaler's own flags"
        )
    new["adoptRunningMachines"] = True
    notes.append("spec.adoptRunningMachines is set, so that machines that are on now stay on")
    return new


def _kept(
    old: JsonObject, model: type[KubeModel], path: str, notes: list[str], *, ignore: Iterable[str] = ()
) -> JsonObject:
    """The fields that there still are and that say something: v1alpha1 wrote "" or null where nothing was meant."""
    known = {field.alias or name for name, field in model.model_fields.items()}
    notes.extend(
        f"{path}.{key} is left out: there is no such field" for key in old if key not in known and key not in ignore
    )
    return {key: value for key, value in old.items() if key in known and value not in (None, "")}


def _mapping(owner: JsonObject, key: str) -> JsonObject:
    return _item(owner.get(key) or {}, key)


def _item(value: object, path: str) -> JsonObject:
    if not isinstance(value, dict):
        raise ValueError(f"{path} is no mapping")  # noqa: TRY004 - a wrong document, not a wrong call
    return value
