"""The flags by which commands for people find their cluster, as kubectl has them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from homelab_api.v2alpha1 import Node
from homelab_autoscaler.cli.cluster import cluster_config, told
from homelab_autoscaler.cli.failure import CommandError
from homelab_autoscaler.runtime import ApiError, Client, NotFoundError, ServerClock
from homelab_autoscaler.runtime.client import Transport

if TYPE_CHECKING:
    from collections.abc import Iterator

Kubeconfig = Annotated[
    str | None, typer.Option(help="Kubeconfig file.", show_default="KUBECONFIG, then ~/.kube/config")
]
Context = Annotated[str | None, typer.Option(help="Context of the kubeconfig.", show_default="its current one")]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="The pools' namespace.", show_default="the context's")
]


@contextmanager
def connected(
    kubeconfig: str | None, context: str | None = None, namespace: str | None = None
) -> Iterator[tuple[Client, str, ServerClock]]:
    """A client for one command, the namespace that is meant, and the server's time.

    A person's computer may be hours off; what a command writes is compared with the server's instants. The time is
    right after the first request.

    Raises:
        CommandError: the server refused or did not answer something that was asked inside; or UsageError, when there
            is no usable configuration.
    """
    config = cluster_config(kubeconfig, context)
    clock = ServerClock()
    transport = Transport(config, clock, on_date=clock.heard)
    client = Client(config, clock, transport=transport, field_manager="homelab-autoscaler-cli")
    try:
        yield client, namespace or config.namespace or "default", clock
    except ApiError as error:
        raise CommandError(told(config, error)) from error
    finally:
        client.close()


def find_slot(client: Client, name: str, namespace: str) -> Node:
    """The slot of that name.

    Raises:
        CommandError: there is none; the text lists those that are.
    """
    try:
        return client.get(Node, name, namespace)
    except NotFoundError:
        known = ", ".join(slot.name for slot in client.list(Node, namespace).items) or "none"
        raise CommandError(f'no slot "{name}" in namespace {namespace}; there is: {known}') from None
