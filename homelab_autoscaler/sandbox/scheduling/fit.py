"""Whether a pod fits on a node: cordon, taints, selectors, required affinity, resources. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from homelab_autoscaler.sandbox import objects, taints
from homelab_autoscaler.sandbox.quantity import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from homelab_api.meta import JsonObject

Resources = dict[str, Fraction]

_PODS: Final = "pods"


def pod_requests(pod: JsonObject) -> Resources:
    """What a pod asks for: the sum of its containers, or more where a single init container needs more; one pod."""
    spec = objects.spec(pod)
    total: Counter[str] = Counter()
    for container in spec.get("containers") or []:
        for name, value in _requests(container).items():
            total[name] += value  # type: ignore[assignment]
    found: Resources = {name: Fraction(value) for name, value in total.items()}
    for container in spec.get("initContainers") or []:
        for name, value in _requests(container).items():
            found[name] = max(found.get(name, Fraction(0)), value)
    for name, text in (spec.get("overhead") or {}).items():
        found[name] = found.get(name, Fraction(0)) + parse_quantity(text)
    return {**found, _PODS: Fraction(1)}


def _requests(container: JsonObject) -> Resources:
    resources = container.get("resources") or {}
    # A limit without a request is a request; the API server says so too, but not every client sends through one.
    texts = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: parse_quantity(text) for name, text in texts.items()}


@dataclass(frozen=True)
class NodeState:
    """A node and what is used of it.

    Attributes:
        node: The Node.
        used: Requests of the pods bound to it that have not finished.
    """

    node: JsonObject
    used: Resources = field(default_factory=dict)

    @property
    def allocatable(self) -> Resources:
        """What pods may use; capacity where allocatable is not given."""
        status = objects.status(self.node)
        texts = {**(status.get("capacity") or {}), **(status.get("allocatable") or {})}
        return {name: parse_quantity(text) for name, text in texts.items()}

    def with_pod(self, requests: Resources) -> NodeState:
        """The state once a pod is bound here."""
        names = {*self.used, *requests}
        zero = Fraction(0)
        return NodeState(self.node, {name: self.used.get(name, zero) + requests.get(name, zero) for name in names})

    def free_share(self) -> Fraction:
        """The smaller of the free shares of cpu and memory; larger is better for one more pod."""
        shares = []
        for name in ("cpu", "memory"):
            total = self.allocatable.get(name, Fraction(0))
            if total > 0:
                shares.append((total - self.used.get(name, Fraction(0))) / total)
        return min(shares, default=Fraction(0))


def state_of(node: JsonObject, pods: Iterable[JsonObject]) -> NodeState:
    """The node with these pods on it; finished pods use nothing."""
    state = NodeState(node)
    for pod in pods:
        if not objects.is_finished_pod(pod):
            state = state.with_pod(pod_requests(pod))
    return state


def obstacles(pod: JsonObject, state: NodeState) -> list[str]:
    """Why the pod cannot run on the node, in the scheduler's words; empty when it can."""
    node = state.node
    tolerations = taints.tolerations_of(pod)
    cordon = {"key": taints.UNSCHEDULABLE, "effect": "NoSchedule"}
    if objects.spec(node).get("unschedulable") and taints.untolerated([cordon], tolerations, {"NoSchedule"}):
        return ["node(s) were unschedulable"]
    blocking = taints.untolerated(taints.taints_of(node), tolerations, {"NoSchedule", "NoExecute"})
    if blocking is not None:
        value = f": {blocking['value']}" if blocking.get("value") else ": "
        return [f"node(s) had untolerated taint {{{blocking['key']}{value}}}"]
    if not _selected(pod, node):
        return ["node(s) didn't match Pod's node affinity/selector"]
    allocatable = state.allocatable
    missing = []
    for name, wanted in sorted(pod_requests(pod).items()):
        if wanted > 0 and state.used.get(name, Fraction(0)) + wanted > allocatable.get(name, Fraction(0)):
            missing.append("Too many pods" if name == _PODS else f"Insufficient {name}")
    return missing


def _selected(pod: JsonObject, node: JsonObject) -> bool:
    spec = objects.spec(pod)
    labels = objects.labels(node)
    wanted: dict[str, str] = spec.get("nodeSelector") or {}
    if any(labels.get(name) != value for name, value in wanted.items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    # Terms are alternatives, requirements inside a term are not; an empty term matches nothing.
    return any(_term_matches(term, node, labels) for term in required.get("nodeSelectorTerms") or [])


def _term_matches(term: JsonObject, node: JsonObject, labels: dict[str, str]) -> bool:
    expressions = term.get("matchExpressions") or []
    fields = term.get("matchFields") or []
    if not expressions and not fields:
        return False
    return all(objects.matches_requirement(item, labels) for item in expressions) and all(
        objects.matches_requirement(item, {"metadata.name": objects.name(node)}) for item in fields
    )


def choose(pod: JsonObject, states: Iterable[NodeState]) -> tuple[NodeState | None, str]:
    """The node for a pod, or why there is none.

    Of the nodes that fit the one with the largest free share wins, then the first by name, so that equal states give
    equal answers.

    Returns:
        The node's state and "", or None and a message like `0/3 nodes are available: 1 Insufficient cpu, …`.
    """
    fitting: list[NodeState] = []
    reasons: Counter[str] = Counter()
    count = 0
    for state in states:
        count += 1
        found = obstacles(pod, state)
        reasons.update(found)
        if not found:
            fitting.append(state)
    if fitting:
        return min(fitting, key=lambda state: (-state.free_share(), objects.name(state.node))), ""
    if count == 0:
        return None, "no nodes available to schedule pods"
    told = ", ".join(sorted(f"{times} {reason}" for reason, times in reasons.items()))
    return None, f"0/{count} nodes are available: {told}."
