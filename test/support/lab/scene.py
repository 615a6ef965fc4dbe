"""One machine, its pool, and managers whose view and reach a test controls."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Self

from homelab_api import names
from homelab_api.core import CoreNode
from homelab_api.v2alpha1 import NodeReclaim
from homelab_autoscaler.runtime import MergePatch, NotFoundError
from lab.history import JobHistory
from lab.process import LabManager
from lab.proxy import Proxy

if TYPE_CHECKING:
    from pathlib import Path

    from homelab_api.meta import Condition, JsonObject
    from homelab_api.v2alpha1 import NodeClaim
    from homelab_autoscaler.settings import Settings
    from lab.pool import Pool
    from lab.world import World


class Scene:
    """Runs from `with` to its end, which judges that no two lifecycle Jobs of a slot were ever at work at once.

    Attributes:
        pool: its objects.
        machine: the name of the machine and of its slot.
    """

    def __init__(self, world: World, folder: Path, *, settings: Settings | None = None, **machine: object) -> None:
        self.world = world
        self.pool = world.pool(settings=settings)
        self.machine = world.machine(self.pool, **machine)
        self.history = JobHistory(self.pool)
        self._folder = folder
        self._stack = contextlib.ExitStack()
        self._managers = contextlib.ExitStack()
        self._proxies: list[Proxy] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        for proxy in self._proxies:
            proxy.let_everything_go()
        self._managers.close()
        self._stack.close()
        if kind is None:
            self.history.check()
        self.pool.client.close()

    @property
    def node(self) -> str:
        """Name of the machine's node."""
        return f"node-{self.machine}"

    # --- managers -----------------------------------------------------------------------------------------------

    def proxy(self) -> Proxy:
        """An address of the API server under the test's control, until the end of the scene."""
        proxy = self._stack.enter_context(Proxy(self.world.kubeconfig, self._folder))
        self._proxies.append(proxy)
        return proxy

    def manager(self, proxy: Proxy | None = None, **how: object) -> LabManager:
        """A running manager, until the end of the scene."""
        kubeconfig = proxy.kubeconfig if proxy else self.world.kubeconfig
        manager = LabManager(kubeconfig, self.pool.namespace, self.pool.settings, **how).start()
        self._managers.callback(manager.close)
        return manager

    def watched_manager(self) -> Proxy:
        """A running manager behind a proxy of its own."""
        proxy = self.proxy()
        self.manager(proxy)
        return proxy

    # --- what happens -------------------------------------------------------------------------------------------

    def lock(self, seconds: float, kind: str = "scale-up") -> None:
        """A lock of nobody that is known: it holds every operation up for a while."""
        now = self.pool.now()
        self.annotate(
            {
                names.ANNOTATION_LOCK: kind,
                names.ANNOTATION_LOCK_OWNER: "somebody/7",
                names.ANNOTATION_LOCK_TIMESTAMP: now.isoformat(),
                names.ANNOTATION_LOCK_TIMEOUT: f"{seconds:g}",
            }
        )

    def annotate(self, annotations: dict[str, str | None]) -> None:
        """Annotate the slot."""
        patch = MergePatch({"metadata": {"annotations": annotations}})
        self.pool.client.patch(type(self.slot), self.machine, self.pool.namespace, patch)

    def reclaim(self) -> NodeReclaim:
        """The owner takes the machine."""
        body = {"metadata": {"name": self.machine}, "spec": {"slotRef": {"name": self.machine}, "source": "Manual"}}
        return self.pool.client.create_json(NodeReclaim, body, self.pool.namespace)

    def give_back(self) -> None:
        """The owner is done."""
        with contextlib.suppress(NotFoundError):
            self.pool.client.delete(NodeReclaim, self.machine, self.pool.namespace)

    def patch_node(self, patch: JsonObject) -> CoreNode:
        """A person writes to the node."""
        return self.pool.client.patch(CoreNode, self.node, None, MergePatch(patch))

    def press_button(self) -> None:
        """A person at the machine."""
        self.world.on_machine(self.machine, lambda machine: machine.press_button() and None)

    # --- what is ------------------------------------------------------------------------------------------------

    @property
    def slot(self):
        """The slot, as it is now."""
        return self.pool.slot(self.machine)

    def says(self, kind: str) -> Condition | None:
        """The slot's condition of a type."""
        return next((entry for entry in self.slot.status.conditions if entry.type == kind), None)

    @property
    def commands(self) -> list[str]:
        """Power commands of Jobs that reached the machine, in order; what a person did is not among them."""
        return [entry.command for entry in self.world.ledger(self.machine) if entry.sender != "hand"]

    def is_ready(self) -> bool:
        """Whether the node says so."""
        node = self.pool.node(self.node)
        return node is not None and any(c.type == "Ready" and c.status == "True" for c in node.status.conditions)

    def ready(self, **how: object) -> NodeClaim:
        """A claim whose machine serves."""
        claim = self.pool.claim(self.machine, **how)
        self.until_phase(claim, "ready")
        return claim

    def until_phase(self, claim: NodeClaim, phase: str) -> None:
        """Wait until a claim is there."""
        self.pool.until(f"claim {claim.name} {phase}", lambda: self.pool.phase(claim) == phase)

    def until_power(self, power: str) -> None:
        """Wait for the truth."""
        self.pool.until(f"machine {power}", lambda: self.world.power(self.machine) == power)

    def until_at_rest(self) -> None:
        """Wait until the slot is free, nothing runs, nothing is locked, and the machine is off."""
        settled(self.pool, self.machine)
        assert self.world.power(self.machine) == "off"


def settled(pool: Pool, machine: str) -> None:
    """Wait until everything that follows from the story is over: quiescence."""
    pool.until("no live or committed claim", lambda: not [c for c in pool.claims() if c.live or c.committed])
    pool.until("no unfinished Job", lambda: all(job.finished for job in pool.jobs()))
    pool.until("no node object", lambda: pool.node(f"node-{machine}") is None)
    if pool.slot_or_none(machine) is None:
        return
    pool.until("the slot reports off", lambda: pool.slot(machine).status.phase == "off")
    pool.until("no lock", lambda: not [key for key in pool.slot(machine).metadata.annotations if "/lock" in key])
