"""The slot's shutdown ledger: releases of the last hour, and attempts of shutdowns that no claim asked for.

It lives in an annotation of the slot, so that it survives the manager and every claim, and it is written together
with the lock. It bounds how often a power command may be sent (guarantee S6). Source: model section 4.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from homelab_api import names
from homelab_api.meta import format_time
from homelab_autoscaler.lifecycle import annotated

if TYPE_CHECKING:
    from homelab_api.v2alpha1 import Node
    from homelab_autoscaler.settings import Settings


@dataclass(frozen=True, slots=True)
class ShutdownLedger:
    """What the annotation says.

    Attributes:
        releases: instants at which a shutdown of the slot took the lock, oldest first, within the window.
        attempts: shutdowns without a claim since the machine was last observed off.
        last_attempt_at: the latest of those.
        job_name: the Job that the present sequence number stands for.
        asker: uid of the claim that it is for; "" for the slot itself. A sequence number is never used for another.
    """

    releases: tuple[datetime, ...] = ()
    attempts: int = 0
    last_attempt_at: datetime | None = None
    job_name: str = ""
    asker: str = ""

    @classmethod
    def read(cls, slot: Node) -> ShutdownLedger:
        """The ledger of a slot; an unreadable one is empty (a hand emptied it, or wrote nonsense)."""
        try:
            body = json.loads(slot.metadata.annotations.get(names.ANNOTATION_SHUTDOWN_LEDGER, "{}"))
            releases = [annotated.instant(text) for text in body.get("releases", [])]
            return cls(
                releases=tuple(at for at in releases if at is not None),
                attempts=annotated.count(body.get("attempts", 0)) or 0,
                last_attempt_at=annotated.instant(body.get("lastAttemptAt")),
                job_name=str(body.get("jobName", "")),
                asker=str(body.get("asker", "")),
            )
        except (ValueError, TypeError, AttributeError, RecursionError):
            return cls()

    def text(self) -> str:
        """The annotation's value."""
        body: dict[str, object] = {"releases": [format_time(at) for at in self.releases]}
        body |= {"jobName": self.job_name} if self.job_name else {}
        body |= {"asker": self.asker} if self.asker else {}
        body |= {"attempts": self.attempts} if self.attempts else {}
        if self.attempts and self.last_attempt_at:
            body["lastAttemptAt"] = format_time(self.last_attempt_at)
        return json.dumps(body, separators=(",", ":"))

    def opened(self, at: datetime, window: timedelta, job_name: str, asker: str) -> ShutdownLedger:
        """With one more release, of this Job for this asker; releases outside the window are dropped."""
        recent = (*(old for old in self.releases if at - window < old <= at), at)
        return replace(self, releases=recent, job_name=job_name, asker=asker)

    def attempted(self, at: datetime, attempts: int) -> ShutdownLedger:
        """With an attempt that no claim asked for."""
        return replace(self, attempts=attempts, last_attempt_at=at)

    def rested(self) -> ShutdownLedger:
        """After the machine was observed off: the attempts start anew, the releases of the hour stay."""
        return replace(self, attempts=0, last_attempt_at=None)

    def flapping_until(self, now: datetime, settings: Settings) -> datetime | None:
        """Until when no shutdown may be released because too many were; None if one may.

        The window is that of the last release: a pause that was announced is not cut short by an earlier release's
        leaving the present one. Instants ahead of now were stamped by a clock that was wrong, and do not count: a pause
        from them could last for years.
        """
        past = [at for at in self.releases if at <= now]
        if not past:
            return None
        since = past[-1] - timedelta(seconds=settings.flapping_window)
        if sum(at > since for at in past) < settings.flapping_limit:
            return None
        until = past[-1] + timedelta(seconds=settings.flapping_pause)
        return until if now < until else None


def next_attempt(attempts: int, last_at: datetime | None, now: datetime, settings: Settings) -> int | datetime:
    """The number of the next shutdown attempt, or until when the pause after a spent streak lasts."""
    if attempts < settings.max_attempts:
        return attempts + 1
    until = last_at + timedelta(seconds=settings.shutdown_pause) if last_at and last_at <= now else now
    return until if now < until else 1
