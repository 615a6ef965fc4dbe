"""Which machines are on, or may be: the list to keep before what could switch them off is taken away.

For people who take a pool, or the whole product, off a cluster: whatever runs when the manager goes stays on. It reads
what is left: slots and their nodes, and nodes that carry our label though no slot names them any more, also when our
kinds are gone already.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from homelab_api import names
from homelab_api.v2alpha1 import PowerState, Reason, SlotCondition
from homelab_autoscaler.claim.debt import in_debt, owned_by
from homelab_autoscaler.phase import power

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from homelab_api.core import CoreNode
    from homelab_api.v2alpha1 import Node, NodeClaim
    from homelab_autoscaler.cli.snapshot import Snapshot

ON: Final = "on"
MAYBE: Final = "maybe"


@dataclass(frozen=True, slots=True)
class StillOn:
    """A machine that nobody should believe to be off.

    Attributes:
        slot: its slot; "" if no slot names its node any more.
        node: the Kubernetes node.
        power: `on`, or `maybe` when nothing proves either.
        why: in words.
    """

    slot: str
    node: str
    power: str
    why: str


def still_on(snapshot: Snapshot) -> list[StillOn]:
    """Every machine that is on or may be on, those that surely are first."""
    found = [*_of_slots(snapshot), *_of_nobody(snapshot)]
    return sorted(found, key=lambda machine: (machine.power != ON, machine.slot, machine.node))


def still_on_table(snapshot: Snapshot, namespace: str) -> RenderableType:
    """The list for a terminal, or a sentence when it is empty."""
    machines = still_on(snapshot)
    if not machines:
        return Text(f"no machine of namespace {namespace} is on, as far as the cluster can see")
    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for title in ("SLOT", "NODE", "ON"):
        table.add_column(title, no_wrap=True)
    table.add_column("WHY")
    for machine in machines:
        table.add_row(machine.slot or "-", machine.node, machine.power, machine.why)
    return table


def _of_slots(snapshot: Snapshot) -> Iterator[StillOn]:
    nodes = {node.name: node for node in snapshot.nodes}
    for slot in snapshot.slots:
        claims = [claim for claim in snapshot.claims if claim.slot_name == slot.name]
        committed = [claim for claim in claims if claim.committed and claim.status.node_name]
        name = next((claim.status.node_name for claim in committed), None) or slot.spec.kubernetes_node_name
        node = nodes.get(name)
        if power(node) is PowerState.ON:
            yield StillOn(slot.name, name, ON, "its node is Ready")
            continue
        doubt = _doubt(slot, node, claims, snapshot)
        if doubt:
            yield StillOn(slot.name, name, MAYBE, doubt)


def _doubt(slot: Node, node: CoreNode | None, claims: list[NodeClaim], snapshot: Snapshot) -> str:
    """Why a machine that does not look on may be on all the same; "" if nothing speaks for that."""
    jobs = [job for job in snapshot.jobs if any(owned_by(job, owner.uid) for owner in (slot, *claims))]
    if any(in_debt(claim, jobs, gone_silent=False) for claim in claims):
        return "a claim had it switched on, and no shutdown has proven since that it is off"
    if any(entry.type == SlotCondition.POWER_UNKNOWN and entry.status == "True" for entry in slot.status.conditions):
        return "its shutdown was never proven (PowerUnknown)"
    if node is None:
        return ""
    kept = any(group.name == slot.group and not group.spec.delete_node_objects for group in snapshot.groups)
    last = slot.status.last_claim
    if kept and (last is None or last.reason is not Reason.MACHINE_GONE):
        return ""
    return "its node fell silent: off, hung or cut off from the cluster"


def _of_nobody(snapshot: Snapshot) -> Iterator[StillOn]:
    """Nodes that were machines of ours, by the label that they carry."""
    named = {slot.spec.kubernetes_node_name for slot in snapshot.slots}
    named |= {claim.status.node_name for claim in snapshot.claims}
    for node in snapshot.nodes:
        if names.LABEL_NODE not in node.metadata.labels or node.name in named:
            continue
        label = node.metadata.labels[names.LABEL_NODE]
        on = power(node) is PowerState.ON
        seen = "its node is Ready" if on else "its node fell silent"
        yield StillOn("", node.name, ON if on else MAYBE, f"{seen}, and no slot names it (it was {label})")
