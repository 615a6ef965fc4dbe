"""Which group grows by how many for the pods that wait. Pure, but for prices."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from homelab_autoscaler.sandbox import objects
from homelab_autoscaler.sandbox.autoscaler.picture import template_states
from homelab_autoscaler.sandbox.scheduling.fit import NodeState, obstacles, pod_requests

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from homelab_api.meta import JsonObject

_COMPARED: Final = ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to grow.

    Attributes:
        group: id.
        count: machines more.
        pods: the pods that they would hold.
        template: what such a machine is.
    """

    group: str
    count: int
    pods: Sequence[JsonObject]
    template: JsonObject


def waiting(pods: Sequence[JsonObject], now: datetime, delay: float) -> list[JsonObject]:
    """Pods that the scheduler could not place, and that are not brand new."""
    found = []
    for pod in pods:
        scheduled = objects.condition(pod, "PodScheduled") or {}
        refused = scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable"
        created = objects.parse_time(objects.metadata(pod).get("creationTimestamp"))
        settled = created is None or (now - created).total_seconds() >= delay
        if refused and settled and not objects.spec(pod).get("nodeName") and not objects.is_deleting(pod):
            found.append(pod)
    return found


def place(pods: Sequence[JsonObject], states: list[NodeState]) -> list[JsonObject]:
    """Put pods on the first node that takes each; `states` is updated; the pods that are left."""
    left = []
    for pod in pods:
        for number, state in enumerate(states):
            if not obstacles(pod, state):
                states[number] = state.with_pod(pod_requests(pod))
                break
        else:
            left.append(pod)
    return left


def estimate(group: str, template: JsonObject, pods: Sequence[JsonObject], limit: int) -> Choice | None:
    """How many machines like the template the pods need, at most `limit`; None if none would help.

    The largest pods are placed first, each on the first machine that takes it.
    """
    states: list[NodeState] = []
    placed = []
    for pod in sorted(pods, key=_weight, reverse=True):
        if place([pod], states):
            fresh = template_states(template, 1, len(states))
            if len(states) >= limit or place([pod], fresh):
                continue
            states.extend(fresh)
        placed.append(pod)
    return Choice(group, len(states), placed, template) if states else None


def wasted(choice: Choice) -> Fraction:
    """The share of cpu and memory that would stay unused: the least-waste expander takes the smallest."""
    shares = []
    for name in _COMPARED:
        capacity = NodeState(choice.template).allocatable.get(name, Fraction(0)) * choice.count
        used = sum((pod_requests(pod).get(name, Fraction(0)) for pod in choice.pods), Fraction(0))
        shares.append((capacity - used) / capacity if capacity > 0 else Fraction(0))
    return sum(shares, Fraction(0))


def _weight(pod: JsonObject) -> tuple[Fraction, Fraction]:
    requests = pod_requests(pod)
    return (requests.get("cpu", Fraction(0)), requests.get("memory", Fraction(0)))
