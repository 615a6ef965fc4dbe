"""Machines declared by people: on the command line or in a YAML file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import yaml

from homelab_autoscaler.sandbox.kubelet.node_agent import NodeSpec
from homelab_autoscaler.sandbox.machines.spec import Behaviour, MachineSpec
from homelab_autoscaler.sandbox.quantity import parse_quantity

if TYPE_CHECKING:
    from pathlib import Path

    from homelab_api.meta import JsonObject

_FIELDS: Final = (
    "name",
    "nodeName",
    "initiallyOn",
    "labels",
    "annotations",
    "taints",
    "providerID",
    "capacity",
    "behaviour",
)


def machine_from_json(entry: object, place: str) -> MachineSpec:
    """One machine.

    Fields: `name` (required), `nodeName`, `initiallyOn`, `labels`, `annotations`, `taints` (list of key, value and
    effect), `providerID`, `capacity` (resource to quantity), `behaviour` (fields of Behaviour, times in seconds).

    Args:
        entry: The declaration.
        place: How to name it in errors, for example `machines[0]`.

    Raises:
        ValueError: naming the field, its value and what it accepts.
    """
    if not isinstance(entry, dict):
        raise ValueError(f"{place}: must be a mapping")  # noqa: TRY004 - one error for bad input
    unknown = set(entry) - set(_FIELDS)
    if unknown:
        raise ValueError(f"{place}.{min(unknown, key=str)}: unknown field; known are {', '.join(_FIELDS)}")
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError(f"{place}.name: every machine needs a name")
    capacity = _strings(entry, "capacity", place)
    for resource, text in capacity.items():
        try:
            parse_quantity(text)
        except ValueError as error:
            raise ValueError(f"{place}.capacity.{resource}: {error}") from None
    taints = entry.get("taints") or []
    if not isinstance(taints, list) or not all(isinstance(item, dict) and item.get("key") for item in taints):
        raise ValueError(f"{place}.taints: must be a list of taints with key and effect")
    more: JsonObject = {"capacity": {"pods": "110", **capacity}} if capacity else {}
    node = NodeSpec(
        str(entry.get("nodeName") or name),
        labels=_strings(entry, "labels", place),
        annotations=_strings(entry, "annotations", place),
        taints=tuple(taints),
        provider_id=str(entry.get("providerID") or ""),
        **more,
    )
    try:
        behaviour = Behaviour().changed(entry.get("behaviour") or {})
    except ValueError as error:
        raise ValueError(f"{place}.behaviour: {error}") from None
    return MachineSpec(name, node, behaviour, initially_on=bool(entry.get("initiallyOn")))


def _strings(entry: JsonObject, field: str, place: str) -> dict[str, str]:
    found: Any = entry.get(field) or {}
    if not isinstance(found, dict):
        raise ValueError(f"{place}.{field}: must be a mapping")  # noqa: TRY004 - one error for bad input
    return {str(key): str(value) for key, value in found.items()}


def machines_from_file(path: Path) -> tuple[MachineSpec, ...]:
    """Machines from a YAML file: a list, or a mapping with the list under `machines`.

    Raises:
        ValueError: the file cannot be read or understood; the message names it.
    """
    try:
        found: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}") from None
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: not YAML: {error}") from None
    entries = found.get("machines") if isinstance(found, dict) else found
    if not isinstance(entries, list):
        raise ValueError(f"{path}: must hold a list of machines")  # noqa: TRY004 - one error for bad input
    return tuple(machine_from_json(entry, f"{path}: machines[{index}]") for index, entry in enumerate(entries))
