"""`python -m homelab_autoscaler.sandbox.power on|off <machine>`: what a lifecycle Job of the sandbox runs.

Sends one power command to the machine's management endpoint, whose base URL is in `SANDBOX_BMC`. The sender in the
ledger is the Job's name (`JOB_NAME`, else `POD_NAME`). Only the standard library: it starts often.

Exit codes: 0 the machine confirmed, 1 it did not, 2 wrong usage.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request
from typing import Final

_USAGE: Final = (
    "usage: python -m homelab_autoscaler.sandbox.power on|off MACHINE   (SANDBOX_BMC=http://… in the environment)"
)
_TIMEOUT: Final = 30.0


def send(base: str, machine: str, command: str, sender: str) -> str:
    """Send a command.

    Returns:
        The result in the machine's words.

    Raises:
        RuntimeError: the machine refused, does not exist, or did not answer; the message says which.
    """
    url = f"{base.rstrip('/')}/machines/{urllib.parse.quote(machine, safe='')}/power"
    if not url.startswith(("http://", "https://")):
        raise RuntimeError(f'SANDBOX_BMC: "{base}" is not an HTTP address')
    body = json.dumps({"command": command, "sender": sender}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})  # noqa: S310 - checked above
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback never goes through a proxy
    try:
        with opener.open(request, timeout=_TIMEOUT) as answer:
            found: str = json.load(answer)["result"]
            return found
    except urllib.error.HTTPError as error:
        try:
            text = json.load(error)["error"]
        except (ValueError, KeyError):
            text = f"HTTP {error.code}"
        raise RuntimeError(text) from None
    except OSError as error:
        raise RuntimeError(f"{base} does not answer: {error}") from None


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    base = os.environ.get("SANDBOX_BMC", "")
    if len(given) != 2 or given[0] not in ("on", "off") or not base:
        print(_USAGE, file=sys.stderr)  # noqa: T201 - a command line
        return 2
    command, machine = given
    sender = os.environ.get("JOB_NAME") or os.environ.get("POD_NAME") or "shell"
    try:
        result = send(base, machine, command, sender)
    except RuntimeError as error:
        print(f"power {command} {machine}: {error}", file=sys.stderr)  # noqa: T201
        return 1
    print(f"power {command} {machine}: {result}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
