"""Reaching a cluster from the command line: which one, whether it answers, and whether it knows our kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from homelab_api.v2alpha1 import Group, Node, NodeClaim, NodeReclaim
from homelab_autoscaler.cli.failure import CommandError, UsageError
from homelab_autoscaler.runtime import (
    ApiError,
    ConfigError,
    ForbiddenError,
    NotFoundError,
    SystemClock,
    TransportError,
    UnauthorizedError,
    load_config,
)
from homelab_autoscaler.runtime.cache import ApiListWatch
from homelab_autoscaler.runtime.client.transport import Transport

if TYPE_CHECKING:
    from homelab_autoscaler.runtime import ClientConfig

ANSWER_WITHIN: Final = 10.0
"""Seconds for an API server to answer the first request."""


def cluster_config(kubeconfig: str | None, context: str | None = None) -> ClientConfig:
    """The API server that flags, environment and files name.

    Raises:
        UsageError: none, or one that cannot be used.
    """
    try:
        return load_config(kubeconfig, context)
    except ConfigError as error:
        raise UsageError(str(error)) from error


def check_cluster(config: ClientConfig, namespace: str | None) -> None:
    """Ask once for each of our kinds, so that a wrong cluster is a message at once and not a log that never ends.

    Raises:
        CommandError: the server does not answer, refuses us, or does not know our kinds.
    """
    clock = SystemClock()
    transport = Transport(config, clock)
    try:
        for kind in (Group, Node, NodeClaim, NodeReclaim):
            source = ApiListWatch(transport, clock, kind.resource, namespace=namespace, list_timeout=ANSWER_WITHIN)
            try:
                # One object tells as much as all, and a thousand would stay in the heap of a manager for good.
                source.list(resource_version="", limit=1, continue_token="")
            except NotFoundError as error:
                raise CommandError(
                    f"{_place(config)} does not know {kind.resource.group_resource}: apply the "
                    "CustomResourceDefinitions with "
                    "`homelab-autoscaler manifests crds | kubectl apply --server-side -f -`"
                ) from error
            except ApiError as error:
                raise CommandError(told(config, error)) from error
    finally:
        transport.close()


def told(config: ClientConfig, error: ApiError) -> str:
    """What a person should know about a failed request: where it went, what came back, and what helps."""
    place = _place(config)
    if isinstance(error, TransportError):
        return f"{place} does not answer: {error}. Check the address, and that the server runs"
    if isinstance(error, UnauthorizedError):
        return f"{place} does not accept our credentials: {error}"
    if isinstance(error, ForbiddenError):
        return f"{place} does not allow it: {error}. A role is missing or not bound"
    return f"{place}: {error}"


def _place(config: ClientConfig) -> str:
    return f"the API server {config.host} (from {config.source})"
