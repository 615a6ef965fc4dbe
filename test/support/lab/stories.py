"""The reference workloads: what can happen to one machine, told as a person would.

Each has one end, whatever the manager's timing: where a story depends on how far a boot has come, the machine waits
for the story (a readiness taint that the story takes off, a machine that never boots).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from homelab_api import names

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.pool import Pool

READINESS_TAINT = {"key": "node.cilium.io/agent-not-ready", "effect": "NoExecute"}


@dataclass(frozen=True)
class Story:
    """A workload.

    Attributes:
        tell: what happens, with waits for its effects.
        before: what has happened before, without faults.
        machine: behaviour of the machine.
        slot: fields of the slot's spec.
        settings: numbers that differ from the lab's.
        benign: patterns of paths of the end state that may differ from a clean run, each with its reason beside it.
        rounds: how often it makes the same writes.
        ends: whether all that follows from it is over; by default everything is off and nothing is left.
    """

    tell: Callable[[Pool, str], None]
    before: Callable[[Pool, str], None] | None = None
    machine: dict[str, Any] = field(default_factory=dict)
    slot: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, float] = field(default_factory=dict)
    benign: tuple[str, ...] = ()
    rounds: int = 1
    ends: Callable[[Pool, str], None] | None = None

    @property
    def name(self) -> str:
        return self.tell.__name__

    def __str__(self) -> str:
        return self.name


def _the_claim(pool: Pool) -> Any:
    return pool.claims()[0]


def boot(pool: Pool, machine: str) -> None:
    """A request boots the machine, and it stays."""
    claim = _request(pool, machine)
    pool.until("ready", lambda: pool.phase(claim) == "ready")


def shutdown(pool: Pool, machine: str) -> None:
    """The autoscaler lets a ready machine go."""
    claim = _the_claim(pool)
    pool.unclaim(claim)
    pool.until("gone", lambda: pool.phase(claim) == "gone")


def cancel(pool: Pool, machine: str) -> None:
    """A request is withdrawn while another operation's lock keeps its boot from beginning."""
    pool.until("the slot is known", lambda: pool.slot(machine).status.phase == "off")
    pool.lock_by_hand(machine)
    claim = pool.claim(machine)
    pool.until("the request is numbered", lambda: any(entry.status.attempt for entry in pool.claims()))
    pool.unclaim(claim, "CancelledByDecreaseTargetSize")
    pool.until("gone", lambda: pool.phase(claim) == "gone")
    pool.unlock_by_hand(machine)


def supersede(pool: Pool, machine: str) -> None:
    """A second claim, made by hand, takes the slot while the first one waits at the readiness gate."""
    first = _request(pool, machine)
    _reach_the_gate(pool, machine)
    pool.until("a later second", lambda: pool.is_older_than_a_second(first))
    second = pool.claim_by_hand(machine, "by-hand")
    pool.until("superseded", lambda: pool.phase(first) in {"failed", "gone"})
    pool.until("the second has the machine", lambda: any(c.name == "by-hand" and c.committed for c in pool.claims()))
    pool.until("the first let it go", lambda: not any(c.name == first.name and c.committed for c in pool.claims()))
    pool.untaint(f"node-{machine}", READINESS_TAINT["key"])
    pool.until("ready", lambda: pool.phase(second) == "ready")


def deleted_at_the_gate(pool: Pool, machine: str) -> None:
    """A person deletes the claim while its machine is up and waits at the readiness gate."""
    claim = _request(pool, machine)
    _reach_the_gate(pool, machine)
    pool.unclaim(claim, "DeletedByHand")
    pool.until("gone", lambda: pool.phase(claim) == "gone")


def deleted_before_it_joined(pool: Pool, machine: str) -> None:
    """A person deletes the claim after the power-on was sent; the machine never registers."""
    claim = _request(pool, machine)
    pool.until("the power-on was sent", lambda: any(job.succeeded for job in pool.jobs()))
    pool.until("and written down", lambda: all(c.status.power_requested_at for c in pool.claims()))
    pool.rest()
    pool.unclaim(claim, "DeletedByHand")
    pool.until("gone", lambda: pool.phase(claim) == "gone")


def dead_machine_three_times(pool: Pool, machine: str) -> None:
    """Three boots in a row fail because the machine never comes up; the fourth request is refused."""
    _fail_three_times(pool, machine, "ReadinessGateTimeout")


def failing_job_three_times(pool: Pool, machine: str) -> None:
    """Three startup Jobs in a row fail; the fourth request is refused."""
    _fail_three_times(pool, machine, "StartupJobFailed")


def slot_deletion(pool: Pool, machine: str) -> None:
    """The slot leaves Git while its machine serves."""
    pool.delete_slot(machine)
    pool.until("the slot is gone", lambda: pool.slot_or_none(machine) is None)


def _reach_the_gate(pool: Pool, machine: str) -> None:
    pool.until("the power-on was written down", lambda: all(c.status.power_requested_at for c in pool.claims()))
    pool.until("the node is there", lambda: pool.is_node_ready(f"node-{machine}"))
    pool.until("and was recognised", lambda: names.LABEL_NODE in pool.node(f"node-{machine}").metadata.labels)
    pool.rest()


def _request(pool: Pool, machine: str) -> Any:
    """A first request, for a slot that was reported off: history begins there."""
    pool.until("the slot is known", lambda: pool.slot(machine).status.phase == "off")
    return pool.claim(machine)


def _fail_three_times(pool: Pool, machine: str, reason: str) -> None:
    pool.until("the slot is known", lambda: pool.slot(machine).status.phase == "off")
    for _ in range(3):
        claim = pool.claim(machine)
        pool.until("failed", lambda: pool.phase(claim) == "failed")  # noqa: B023 - called at once
        pool.until("let go", lambda: not any(entry.committed for entry in pool.claims()))
        pool.until("digested", lambda: pool.last_claim(machine) == (claim.uid, reason))  # noqa: B023
    last = pool.claim(machine)
    pool.until("refused", lambda: pool.phase(last) == "failed")


def _serving(pool: Pool, machine: str) -> None:
    pool.until("no unfinished Job", lambda: all(job.finished for job in pool.jobs()))
    pool.until("the slot reports ready", lambda: pool.slot(machine).status.phase == "ready")
    pool.until("no lock", lambda: not _locked(pool, machine))
    pool.until("no deadline", lambda: all(c.spec.deadline_at is None for c in pool.claims() if c.live))
    pool.until("nothing left to let go", lambda: all(c.live for c in pool.claims() if c.committed))


def _locked(pool: Pool, machine: str) -> bool:
    return names.ANNOTATION_LOCK in pool.slot(machine).metadata.annotations


_AT_THE_GATE = {"startup_taints": (READINESS_TAINT,), "startup_taints_clear": None}

# The report counts the boots that a pass saw: one that began and was withdrawn between two passes is not among them.
_UNSEEN_BOOT = (r"slot .*status\.(activations.*|recentActivations.*)",)

STORIES = (
    Story(boot, ends=_serving),
    Story(shutdown, before=boot),
    Story(cancel),
    Story(
        supersede,
        machine=_AT_THE_GATE,
        ends=_serving,
        settings={"lock_timeout": 4.0},
        # The superseded claim is digested only if it ended before its successor was numbered.
        benign=(r"slot .*status\.lastClaim.*",),
    ),
    Story(deleted_at_the_gate, machine=_AT_THE_GATE, benign=_UNSEEN_BOOT),
    Story(deleted_before_it_joined, machine={"dead": True}, benign=_UNSEEN_BOOT),
    # Its node never came, so that no shutdown has to settle.
    Story(
        dead_machine_three_times,
        machine={"dead": True},
        settings={"registration_wait": 1.0, "off_settle": 0.5},
        rounds=3,
    ),
    Story(failing_job_three_times, slot={"startup": "fails"}, settings={"off_settle": 0.5}, rounds=3),
    Story(slot_deletion, before=boot),
)


def boot_and_return(pool: Pool, machine: str) -> None:
    """A request boots the machine; its withdrawal turns it off."""
    boot(pool, machine)
    shutdown(pool, machine)


def everything_is_over(pool: Pool, machine: str) -> None:
    """Wait until nothing is left of the story but its reports."""
    pool.until("no live or committed claim", lambda: not [c for c in pool.claims() if c.live or c.committed])
    pool.until("no unfinished Job", lambda: all(job.finished for job in pool.jobs()))
    pool.until("no node object", lambda: pool.node(f"node-{machine}") is None)
    if pool.slot_or_none(machine) is None:
        pool.until("its Jobs were collected", lambda: not pool.jobs())
        return
    pool.until("the slot reports off", lambda: pool.slot(machine).status.phase == "off")
    pool.until("no lock", lambda: not [key for key in pool.slot(machine).metadata.annotations if "/lock" in key])
