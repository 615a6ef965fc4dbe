"""Admission in the manager: what pods of slots may name, and the webhook server with its certificates."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from homelab_autoscaler.cli.failure import CommandError, UsageError
from homelab_autoscaler.lifecycle.scope import INDEX_GROUP, INDEX_NODE_NAME, INDEX_SLOT
from homelab_autoscaler.pod_policy import PodPolicy
from homelab_autoscaler.runtime import ApiError, NotFoundError
from homelab_autoscaler.runtime.webhook import (
    CertificateError,
    ManagedCertificates,
    ManagedCertificatesOptions,
    MountedCertificates,
    WebhookServer,
)
from homelab_autoscaler.webhook.assemble import CONFIGURATION, handlers
from homelab_autoscaler.webhook.caller import service_account, who_am_i

if TYPE_CHECKING:
    from homelab_autoscaler.runtime import Client, Manager

log = structlog.get_logger("homelab_autoscaler.manager")


@dataclass(frozen=True, slots=True)
class AdmissionFlags:
    """Admission as typed; without an address there is no webhook, and the controllers alone hold the rules."""

    address: str = ""
    certificates: str | None = None
    service: str = "homelab-autoscaler-webhook"
    hosts: tuple[str, ...] = ()
    configuration: str = CONFIGURATION
    images: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    service_accounts: tuple[str, ...] = ()

    def policy(self, own_account: str | None, grpc_service: str) -> PodPolicy:
        """What pods of slots may name: what the flags allow, and never what belongs to the manager itself.

        Args:
            own_account: the manager's service account; None when it acts as a person.
            grpc_service: the provider's Service, after which its Secrets are named.
        """
        return PodPolicy(
            forbidden_service_accounts=frozenset({own_account} if own_account else ()),
            forbidden_secrets=frozenset({self.service, *(f"{grpc_service}-{role}" for role in PROVIDER_SECRETS)}),
            service_accounts=self.service_accounts or None,
            secrets=self.secrets or None,
            images=self.images or None,
        )


PROVIDER_SECRETS = ("ca", "server", "client")
"""Roles of the provider's Secrets; see provider.certs."""


def manager_user(client: Client, flags: AdmissionFlags) -> str:
    """Who the manager is to the API server; "" when that cannot be found out and nothing depends on it.

    Raises:
        UsageError: the webhook is on, and the API server is too old to tell.
        CommandError: the webhook is on, and the API server does not answer.
    """
    try:
        return who_am_i(client)
    except NotFoundError as error:
        if flags.address:
            raise UsageError(
                "--webhook-address: admission has to know who the manager is, and the API server has no "
                "SelfSubjectReview: use Kubernetes 1.28 or later, or leave the address empty"
            ) from error
    except ApiError as error:
        if flags.address:
            raise CommandError(f"the API server does not tell who we are: {error}") from error
        log.warning("the manager's own service account is not known: slots may name it", error=str(error))
    return ""


def account_of(user: str) -> str | None:
    """Name of the service account that the manager acts as, None for a person."""
    found = service_account(user)
    return found[1] if found else None


def add_webhook(  # noqa: PLR0917 - each of its own type or kind
    manager: Manager, flags: AdmissionFlags, policy: PodPolicy, user: str, pools: str | None, own: str
) -> WebhookServer:
    """Let the manager answer admission reviews, on every replica, with certificates that stay fresh.

    Args:
        manager: its caches are registered already.
        flags: address and certificates.
        policy: what pods of slots may name.
        user: that the manager acts as.
        pools: the only namespace that is served; None for all.
        own: the manager's namespace, where its Secret is.

    Raises:
        UsageError: the mounted certificate cannot be used.
    """
    certificates = _mounted(manager, flags) if flags.certificates else _managed(manager, flags, own)
    manager.add(certificates, needs_leader=False)
    server = WebhookServer(flags.address, certificates, manager.clock, manager.metrics)
    judges = handlers(manager, policy, user, pools, by_slot=INDEX_SLOT, by_node=INDEX_NODE_NAME, by_group=INDEX_GROUP)
    for path, judge in judges.items():
        server.register(path, judge)
    manager.add_webhook(server)
    manager.checks.add_readyz("webhook", server.check)
    return server


def _mounted(manager: Manager, flags: AdmissionFlags) -> MountedCertificates:
    found = MountedCertificates(Path(str(flags.certificates)), manager.clock, manager.metrics)
    try:
        found.load()
    except CertificateError as error:
        raise UsageError(f"--webhook-cert-dir: {error}") from error
    return found


def _managed(manager: Manager, flags: AdmissionFlags, own: str) -> ManagedCertificates:
    service = flags.service
    options = ManagedCertificatesOptions(
        namespace=own,
        secret=service,
        names=(f"{service}.{own}.svc", f"{service}.{own}", service, *flags.hosts),
        validating=(flags.configuration,),
    )
    return ManagedCertificates(manager.client, manager.clock, options, manager.metrics)
