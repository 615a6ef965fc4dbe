"""Reading Kubernetes objects as the JSON that travels.

The simulators look at few fields of many kinds, also of kinds that they have never heard of (the garbage collector),
so they work on JSON and not on models.
"""

from datetime import UTC, datetime
from typing import Final

from homelab_api.meta import JsonObject, format_time

Key = tuple[str, str]
"""(namespace, name); the namespace of a cluster-scoped object is empty."""

FINISHED_PHASES: Final = frozenset({"Succeeded", "Failed"})


def metadata(obj: JsonObject) -> JsonObject:
    """metadata, empty if there is none."""
    found: JsonObject = obj.get("metadata") or {}
    return found


def key(obj: JsonObject) -> Key:
    """(namespace, name)."""
    found = metadata(obj)
    return found.get("namespace") or "", found.get("name") or ""


def uid(obj: JsonObject) -> str:
    """metadata.uid, empty for an object that was never stored."""
    return str(metadata(obj).get("uid") or "")


def name(obj: JsonObject) -> str:
    """metadata.name."""
    return str(metadata(obj).get("name") or "")


def namespace(obj: JsonObject) -> str:
    """metadata.namespace, empty for cluster-scoped objects."""
    return str(metadata(obj).get("namespace") or "")


def spec(obj: JsonObject) -> JsonObject:
    """spec, empty if there is none."""
    found: JsonObject = obj.get("spec") or {}
    return found


def status(obj: JsonObject) -> JsonObject:
    """status, empty if there is none."""
    found: JsonObject = obj.get("status") or {}
    return found


def labels(obj: JsonObject) -> dict[str, str]:
    """metadata.labels."""
    found: dict[str, str] = metadata(obj).get("labels") or {}
    return found


def annotations(obj: JsonObject) -> dict[str, str]:
    """metadata.annotations."""
    found: dict[str, str] = metadata(obj).get("annotations") or {}
    return found


def finalizers(obj: JsonObject) -> list[str]:
    """metadata.finalizers."""
    found: list[str] = metadata(obj).get("finalizers") or []
    return found


def owners(obj: JsonObject) -> list[JsonObject]:
    """metadata.ownerReferences."""
    found: list[JsonObject] = metadata(obj).get("ownerReferences") or []
    return found


def is_deleting(obj: JsonObject) -> bool:
    """True once deletionTimestamp is set."""
    return bool(metadata(obj).get("deletionTimestamp"))


def controller_of(obj: JsonObject) -> JsonObject | None:
    """The owner reference marked as controller, if any."""
    return next((reference for reference in owners(obj) if reference.get("controller")), None)


def revision(obj: JsonObject) -> int:
    """resourceVersion as a number, for "which of two versions is newer".

    Clients are told not to do that; etcd's revisions, which every server in use hands out, are ordered all the same,
    and Kubernetes states so since 1.35. -1 when it is no number, so that nothing is concluded from it.
    """
    text = str(metadata(obj).get("resourceVersion") or "")
    return int(text) if text.isdecimal() else -1


def condition(obj: JsonObject, kind: str) -> JsonObject | None:
    """The entry of status.conditions with this type."""
    return next((item for item in status(obj).get("conditions") or [] if item.get("type") == kind), None)


def condition_is(obj: JsonObject, kind: str, value: str = "True") -> bool:
    """Whether the condition is there and has this status."""
    found = condition(obj, kind)
    return found is not None and found.get("status") == value


def with_condition(conditions: list[JsonObject], new: JsonObject) -> list[JsonObject]:
    """The conditions with one merged in by type; its transition time is kept when the status is the old one."""
    merged: list[JsonObject] = []
    seen = False
    for item in conditions:
        if item.get("type") != new["type"]:
            merged.append(item)
            continue
        seen = True
        entry = dict(new)
        if item.get("status") == new["status"] and "lastTransitionTime" in item:
            entry["lastTransitionTime"] = item["lastTransitionTime"]
        merged.append(entry)
    return merged if seen else [*merged, new]


def phase(pod: JsonObject) -> str:
    """A pod's status.phase; Pending when unset."""
    return str(status(pod).get("phase") or "Pending")


def is_finished_pod(pod: JsonObject) -> bool:
    """A pod that will never run again."""
    return phase(pod) in FINISHED_PHASES


def parse_time(text: str | None) -> datetime | None:
    """An RFC 3339 instant as an aware datetime, None for None, "" and what is not understood."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def stamp(moment: datetime) -> str:
    """An instant as Kubernetes writes metav1.Time: whole seconds, UTC, `Z`."""
    return format_time(moment.replace(microsecond=0))


def selects(selector: JsonObject | None, obj_labels: dict[str, str]) -> bool:
    """Whether a LabelSelector (matchLabels, matchExpressions) selects these labels. None selects nothing."""
    if selector is None:
        return False
    wanted: dict[str, str] = selector.get("matchLabels") or {}
    if any(obj_labels.get(name_) != value for name_, value in wanted.items()):
        return False
    return all(matches_requirement(item, obj_labels) for item in selector.get("matchExpressions") or [])


def matches_requirement(requirement: JsonObject, values: dict[str, str]) -> bool:
    """One selector requirement: In, NotIn, Exists, DoesNotExist, and Gt, Lt of node affinity.

    An operator that nobody knows matches nothing.
    """
    value = values.get(requirement.get("key", ""))
    wanted: list[str] = requirement.get("values") or []
    match requirement.get("operator"):
        case "In":
            return value is not None and value in wanted
        case "NotIn":
            return value is None or value not in wanted
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            try:
                left, right = int(value or ""), int(wanted[0])
            except (ValueError, IndexError):
                return False
            return left > right if operator == "Gt" else left < right
        case _:
            return False
