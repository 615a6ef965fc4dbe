"""A bad day on purpose: the manager is killed outright at random moments, and has to lose nothing by it."""

from __future__ import annotations

import random
import threading
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Self

from homelab_autoscaler.runtime import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable

    from homelab_autoscaler.cli.demo.processes import Children
    from homelab_autoscaler.cli.demo.screen import Screen

LEASE_FLAGS: Final = ("--lease-duration=3s", "--renew-deadline=2s", "--retry-period=400ms")
"""A killed leader is waited for: a short lease makes ten deaths fit into a minute."""
_LOOK_EVERY: Final = 0.1
_TICK: Final = 0.02
_QUIET_PACE: Final = 0.03


class Killer:
    """Kills a process with SIGKILL a number of times, at random moments, from a thread. A context manager.

    The moments are spread evenly over a clock that runs while machines are on the way on or off, hardly moves while
    nothing happens, and stands still while nobody leads: so the kills hit what the manager does.
    """

    def __init__(
        self,
        children: Children,
        screen: Screen,
        holder: Callable[[], str],
        busy: Callable[[], bool],
        *,
        kills: int,
        length: float,
        seed: int | None,
    ) -> None:
        """Prepared; `__enter__` starts.

        Args:
            children: has the manager, and starts it again.
            screen: where it is told.
            holder: who leads at the moment; may raise ApiError.
            busy: whether machines are on the way on or off.
            kills: how often.
            length: how far that clock gets in a day, in seconds.
            seed: of the moments; chosen if None.
        """
        self.seed = random.randrange(10**6) if seed is None else seed  # noqa: S311 - for repeating, not for secrecy
        rng = random.Random(self.seed)  # noqa: S311 - see above
        moments = sorted(rng.uniform(0, length) for _ in range(kills))
        self._gaps = [later - earlier for earlier, later in pairwise([0.0, *moments])]
        self._children = children
        self._screen = screen
        self._holder = holder
        self._busy = busy
        self._stop = threading.Event()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._work, name="killer", daemon=True)

    def __enter__(self) -> Self:
        if self._gaps:
            self._screen.say(f"the manager will be killed {len(self._gaps)} times (moments from seed {self.seed})")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def done(self) -> bool:
        """All kills were made, and somebody leads again."""
        return self._done.is_set()

    def _work(self) -> None:
        for number, gap in enumerate(self._gaps, start=1):
            while gap > 0:
                if self._stop.wait(_TICK):
                    return
                gap -= _TICK if self._busy() else _TICK * _QUIET_PACE  # noqa: PLW2901 - it is used up
            victim = self._children.named("manager")
            leader = self._leader()
            victim.process.kill()
            self._screen.say(f"kill {number} of {len(self._gaps)}: pid {victim.pid}")
            while self._leader() in ("", leader):
                if self._stop.wait(_LOOK_EVERY):
                    return
        self._done.set()

    def _leader(self) -> str:
        try:
            return self._holder()
        except ApiError:
            return ""
