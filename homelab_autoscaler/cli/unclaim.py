"""`homelab-autoscaler unclaim`: a machine is not needed any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from homelab_api.v2alpha1 import NodeClaim, Reason
from homelab_autoscaler.claim.create import ClaimFactory
from homelab_autoscaler.cli.app import single
from homelab_autoscaler.cli.connection import Context, Kubeconfig, Namespace, connected
from homelab_autoscaler.cli.failure import CommandError
from homelab_autoscaler.cli.settings_flags import read_settings

if TYPE_CHECKING:
    from homelab_autoscaler.runtime import Client


def unclaim(
    name: Annotated[str, typer.Argument(metavar="SLOT|CLAIM", help="Name of a slot, or of a claim.")],
    *,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = None,
) -> None:
    """Withdraw the live claim of a slot: its pods leave, its machine goes off, the claim ends `completed`."""
    with connected(kubeconfig, context, namespace) as (client, where, clock):
        found = _live_claim(client, name, where)
        if found.marked:
            typer.echo(f'nodeclaim "{found.name}" was withdrawn already; its machine is on the way off')
            return
        ClaimFactory(client, clock, read_settings({})).withdraw(found, Reason.DELETED_BY_HAND)
    typer.echo(f'nodeclaim "{found.name}" withdrawn')


def _live_claim(client: Client, name: str, namespace: str) -> NodeClaim:
    claims = client.list(NodeClaim, namespace).items
    matching = [claim for claim in claims if claim.live and name in (claim.name, claim.slot_name)]
    if not matching:
        raise CommandError(f'no live claim is named "{name}" or names a slot "{name}" in namespace {namespace}')
    return min(matching, key=lambda claim: (claim.marked, claim.name))


app = single(unclaim)
