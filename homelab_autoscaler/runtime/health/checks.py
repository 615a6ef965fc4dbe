"""Health checks: named questions with yes or a reason why not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

Check = Callable[[], None]
"""Returns if all is well, raises with the reason otherwise. Must be quick."""
_log = structlog.get_logger("homelab_autoscaler.runtime.health")


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Outcome of an endpoint: HTTP status and the text body."""

    status: int
    body: str


class HealthChecks:
    """The checks of `/healthz` (is the process sane?) and `/readyz` (can it serve?).

    Checks are added before the start. Readiness must not depend on being the leader: a standby is ready.
    """

    def __init__(self) -> None:
        self._checks: dict[str, dict[str, Check]] = {"healthz": {}, "readyz": {}}
        self._frozen = False

    def add_healthz(self, name: str, check: Check) -> None:
        """Add a liveness check."""
        self._add("healthz", name, check)

    def add_readyz(self, name: str, check: Check) -> None:
        """Add a readiness check."""
        self._add("readyz", name, check)

    def freeze(self) -> None:
        """No checks can be added from now on."""
        self._frozen = True

    def handle(self, path: str, query: Mapping[str, list[str]]) -> CheckReport | None:
        """Answer `/healthz`, `/readyz` or one check below them; None for another path.

        `?verbose` lists the checks, `?exclude=<name>` leaves some out. Reasons go to the log, never into the body.
        """
        endpoint, _, name = path.strip("/").partition("/")
        checks = self._checks.get(endpoint)
        if checks is None:
            return None
        checks = checks or {"ping": _ping}
        if name:
            check = checks.get(name)
            if check is None:
                return CheckReport(404, f'no check is named "{name}"\n')
            ok = self._ask(endpoint, name, check)
            return CheckReport(200 if ok else 500, "ok\n" if ok else "failed\n")
        excluded = {entry for value in query.get("exclude", []) for entry in value.split(",") if entry}
        lines: list[str] = []
        failed = False
        for check_name, check in sorted(checks.items()):
            if check_name in excluded:
                lines.append(f"[+]{check_name} excluded: ok")
            elif self._ask(endpoint, check_name, check):
                lines.append(f"[+]{check_name} ok")
            else:
                failed = True
                lines.append(f"[-]{check_name} failed: reason withheld")
        unknown = sorted(excluded - checks.keys())
        if unknown:
            quoted = ", ".join(f'"{entry}"' for entry in unknown)
            lines.append(f"warn: some health checks cannot be excluded: no matches for {quoted}")
        if failed:
            return CheckReport(500, "\n".join([*lines, f"{endpoint} check failed", ""]))
        if "verbose" in query:
            return CheckReport(200, "\n".join([*lines, f"{endpoint} check passed", ""]))
        return CheckReport(200, "ok\n")

    def _add(self, endpoint: str, name: str, check: Check) -> None:
        if self._frozen:
            raise RuntimeError(f'check "{name}" comes too late: {endpoint} is being served')
        if not name or "/" in name or name in self._checks[endpoint]:
            raise ValueError(f'"{name}" cannot be the name of a check of {endpoint}: empty, with a slash, or taken')
        self._checks[endpoint][name] = check

    @staticmethod
    def _ask(endpoint: str, name: str, check: Check) -> bool:
        try:
            check()
        except Exception as error:  # noqa: BLE001 - any failure of a check is its answer
            _log.info("health check failed", endpoint=endpoint, check=name, reason=str(error))
            return False
        return True


def _ping() -> None:
    """Always well: the process answers."""
