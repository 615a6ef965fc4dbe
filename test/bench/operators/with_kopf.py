"""Gives each Widget one status patch when it is seen: on kopf.

kopf has no pool of workers: it runs one task per object, and a limit on them would hold each slot until the object
has been idle for seconds. So it runs unlimited, as most people run it.
"""

import logging
import os
import sys

import kopf


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_) -> None:
    """The leanest kopf can be for this task."""
    settings.posting.enabled = False
    settings.scanning.disabled = True


@kopf.on.login()
def login(**kwargs):
    """From the kubeconfig, without an API client library: the least that kopf needs."""
    return kopf.login_with_kubeconfig(**kwargs)


@kopf.on.event("bench.example", "v1", "widgets")
async def see(status, patch, type, **_) -> None:  # noqa: A002 - kopf's name
    """Writes status.seen where it is missing."""
    if type != "DELETED" and not status.get("seen"):
        patch.status["seen"] = True


def main() -> None:
    """Argument: kubeconfig."""
    os.environ["KUBECONFIG"] = sys.argv[1]
    logging.basicConfig(level=logging.WARNING)
    kopf.run(clusterwide=True, standalone=True)


if __name__ == "__main__":
    main()
