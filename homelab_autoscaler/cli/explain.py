"""`homelab-autoscaler explain`: why a machine is on or off, and what happens next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from homelab_api.conditions import readable
from homelab_api.v2alpha1 import ClaimPhase, PowerState
from homelab_autoscaler.claim.attempts import exhausted_until
from homelab_autoscaler.claim.deadlines import in_boot_window
from homelab_autoscaler.claim.debt import job_type
from homelab_autoscaler.cli.app import single
from homelab_autoscaler.cli.connection import Context, Kubeconfig, Namespace, connected, find_slot
from homelab_autoscaler.cli.settings_flags import read_settings
from homelab_autoscaler.cli.table import age
from homelab_autoscaler.lifecycle.lock import read_lock
from homelab_autoscaler.lifecycle.pulse import KubeletPulse
from homelab_autoscaler.lifecycle.scope import LiveScopes
from homelab_autoscaler.phase import fires, row

if TYPE_CHECKING:
    from datetime import datetime

    from homelab_api.core import Job
    from homelab_api.meta import Condition
    from homelab_autoscaler.lifecycle.scope import SlotScope
    from homelab_autoscaler.settings import Settings

_EXITS: Final = {
    0: "delete the NodeReclaim when the owner is done with the machine",
    1: "homelab-autoscaler claim {slot}",
    2: "homelab-autoscaler claim {slot}, to keep it on",
    3: "homelab-autoscaler unclaim {slot}",
    4: "homelab-autoscaler unclaim {slot}",
    5: "homelab-autoscaler unclaim {slot}: the boot is reversed to its end",
    6: "homelab-autoscaler unclaim {slot}",
    7: "remove what makes the node unusable, or homelab-autoscaler unclaim {slot}",
    8: "switch the machine on, or homelab-autoscaler unclaim {slot}",
    9: "nothing: a withdrawn claim is not taken back; claim the slot again once it is off",
    10: "nothing: it ends by itself once the machine is surely off",
    11: "homelab-autoscaler claim {slot}, once it is off",
    12: "homelab-autoscaler claim {slot}",
}
"""What a person can do in each row of the law."""


def explain(
    slot: Annotated[str, typer.Argument(help="Name of the slot.")],
    *,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = None,
) -> None:
    """Show what the operator sees of SLOT, which row of the input law that is, what runs, and what you can do.

    It reads the API server itself, as the operator does before each power command. It changes nothing.
    """
    settings = read_settings({})
    with connected(kubeconfig, context, namespace) as (client, where, clock):
        find_slot(client, slot, where)
        pulse = KubeletPulse(client, clock, settings.lease_silence)
        scope = LiveScopes(client, pulse, clock, settings.off_settle).read(where, slot)
    if scope is not None:
        Console(highlight=False).print(explanation(scope, settings))


def explanation(scope: SlotScope, settings: Settings) -> Table:
    """The facts, the row, what goes on and what ends it, as a table without lines."""
    value = scope.law_input()
    found = row(value)
    operation = fires(value)
    table = Table.grid(padding=(0, 2))
    for title, text in (
        ("slot", f"{scope.slot.name} in pool {scope.slot.group or '(none)'}, node {scope.node_name}"),
        ("held", f"yes: {readable(scope.reclaim.spec.reason) or 'reclaimed'}" if scope.reclaim else "no"),
        ("claim", _claim(scope)),
        ("power", _power(scope)),
        ("usable", "yes" if scope.unusable is None else f"no: {scope.unusable}"),
        (f"row {found.number}", found.title),
        ("reports", found.report),
        ("runs", found.runs),
        ("fires now", str(operation) if operation else f"nothing{_held_up(scope, found.operation is not None)}"),
        *(("job", f"{job.name} ({job_type(job)}): {_job_state(job)}") for job in scope.jobs),
        *(("condition", f"{entry.type}: {entry.message or entry.reason}") for entry in _conditions(scope)),
        *(("until", text) for text in _waits(scope, settings)),
        ("you can", _EXITS[found.number].format(slot=scope.slot.name)),
    ):
        table.add_row(Text(title, style="bold"), text)
    return table


def _claim(scope: SlotScope) -> str:
    owner = scope.owner
    if owner is None:
        return "none"
    marked = ", being deleted" if owner.marked else ""
    reason = f" ({owner.status.reason})" if owner.status.reason else ""
    attempt = f", attempt {owner.status.attempt}" if owner.status.attempt else ""
    return f"{owner.name}: {owner.phase}{reason}{marked}, asked by {owner.spec.call}{attempt}"


def _power(scope: SlotScope) -> str:
    if scope.power is PowerState.ON:
        return "on: the node's Ready condition is True"
    if scope.node is None:
        return "off: there is no node"
    return "off: the node is not Ready" + ("" if scope.silent else "; that its kubelet is silent is not proven yet")


def _held_up(scope: SlotScope, wanted: bool) -> str:  # noqa: FBT001 - one caller, one meaning
    if not wanted:
        return ""
    if scope.extra_claims:
        return ": more than one live claim names the slot; the older ones end first"
    return ": an operation of the slot is not over yet"


def _job_state(job: Job) -> str:
    if job.finished:
        return "succeeded" if job.succeeded else "failed"
    return "waits for its release" if job.suspended else "runs"


def _conditions(scope: SlotScope) -> list[Condition]:
    entries = [*scope.slot.status.conditions, *(scope.owner.status.conditions if scope.owner else ())]
    quiet = {"Observed", "Usable", "Autoscaler", "Ready", "MachineCommitted", "MachineObservedOff"}
    return [entry for entry in entries if entry.status == "True" and entry.type not in quiet]


def _waits(scope: SlotScope, settings: Settings) -> list[str]:
    waits = []
    lock = read_lock(scope.slot)
    if lock is not None:
        waits.append(f"{_when(lock.expires_at, scope.now)}: lock of {lock.kind} by {lock.owner}")
    owner = scope.owner
    if owner is not None and in_boot_window(owner) and owner.spec.deadline_at:
        waits.append(f"{_when(owner.spec.deadline_at, scope.now)}: the boot has to be done")
    settle = scope.settle_until()
    if settle is not None:
        waits.append(f"{_when(settle, scope.now)}: the machine may look on though it was switched off")
    exhausted = exhausted_until(scope.slot.status.last_claim, settings)
    if exhausted is not None and exhausted > scope.now and (owner is None or owner.phase is not ClaimPhase.READY):
        waits.append(f"{_when(exhausted, scope.now)}: not offered, its boots failed too often")
    return waits


def _when(instant: datetime, now: datetime) -> str:
    left = (instant - now).total_seconds()
    distance = f"in {age(left)}" if left >= 0 else f"{age(-left)} ago"
    return f"{instant:%H:%M:%S} UTC ({distance})"


app = single(explain)
