"""`homelab-autoscaler claim`: ask for a machine by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from homelab_api.v2alpha1 import Call, Group
from homelab_autoscaler.claim.create import ClaimFactory, Request, SlotUnavailableError
from homelab_autoscaler.cli.app import single
from homelab_autoscaler.cli.connection import Context, Kubeconfig, Namespace, connected, find_slot
from homelab_autoscaler.cli.failure import CommandError
from homelab_autoscaler.cli.settings_flags import read_settings
from homelab_autoscaler.runtime import NotFoundError

if TYPE_CHECKING:
    from datetime import timedelta

    from homelab_autoscaler.runtime import Client


def claim(
    slot: Annotated[str, typer.Argument(help="Name of the slot.")],
    *,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = None,
) -> None:
    """Ask for the machine of SLOT. It is switched on, and stays on until `unclaim`; the autoscaler leaves it alone.

    The claim carries the deadline that the model computes, so that a boot which never happens does not hold the slot.
    """
    with connected(kubeconfig, context, namespace) as (client, where, clock):
        read_at = clock.monotonic()
        found = find_slot(client, slot, where)
        request = Request(Call.MANUAL, max_node_provision_time=_provision_time(client, found.group, where))
        try:
            made = ClaimFactory(client, clock, read_settings({})).create(found, request, read_at=read_at)
        except SlotUnavailableError as error:
            raise CommandError(str(error)) from error
    deadline = f", to be ready by {made.spec.deadline_at:%H:%M:%S} UTC" if made.spec.deadline_at else ""
    typer.echo(f'nodeclaim "{made.name}" created{deadline}')


def _provision_time(client: Client, group: str, namespace: str) -> timedelta | None:
    try:
        return client.get(Group, group, namespace).spec.max_node_provision_time if group else None
    except NotFoundError:
        return None


app = single(claim)
