"""From flags to a running manager, and from its failures to one clear message each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from homelab_api.meta import parse_duration
from homelab_autoscaler.cli.cluster import check_cluster, cluster_config
from homelab_autoscaler.cli.failure import CommandError, UsageError
from homelab_autoscaler.cli.listening import check_free
from homelab_autoscaler.cli.run_webhook import AdmissionFlags, account_of, add_webhook, manager_user
from homelab_autoscaler.cli.settings_flags import read_settings
from homelab_autoscaler.cli.version import package_version
from homelab_autoscaler.controllers.assemble import AssemblyOptions, assemble
from homelab_autoscaler.lifecycle.job_spec import JobOptions
from homelab_autoscaler.provider.server import ProviderError, ProviderOptions, ProviderServer
from homelab_autoscaler.runtime import LeaderElectionOptions, Manager, ManagerOptions, ServerClock, run_process

if TYPE_CHECKING:
    from collections.abc import Mapping

    from homelab_autoscaler.runtime import ClientConfig
    from homelab_autoscaler.settings import Settings

log = structlog.get_logger("homelab_autoscaler.manager")


@dataclass(frozen=True, slots=True)
class ElectionFlags:
    """Leader election as typed: a name, and times as seconds or with a unit."""

    name: str
    lease_duration: str
    renew_deadline: str
    retry_period: str


@dataclass(frozen=True, slots=True)
class PortFlags:
    """Where the manager listens, as typed; an empty address means nowhere."""

    health: str
    metrics: str
    grpc: str
    grpc_service: str
    grpc_hosts: tuple[str, ...] = ()
    grpc_plaintext: bool = False
    grpc_certificate: str | None = None
    grpc_key: str | None = None
    grpc_client_authority: str | None = None


@dataclass(frozen=True, slots=True)
class ManagerFlags:
    """What `homelab-autoscaler manager` was told; see its `--help`."""

    kubeconfig: str | None
    context: str | None
    namespace: str | None
    all_namespaces: bool
    own_namespace: str | None
    election: ElectionFlags | None
    ports: PortFlags
    admission: AdmissionFlags
    job_service_account: str
    job_priority_class: str
    own_node: str
    workers: int
    time_factor: float
    numbers: Mapping[str, str | None] = field(default_factory=dict)


def run(flags: ManagerFlags) -> None:
    """Run a manager until it is told to stop.

    Raises:
        UsageError: a flag, variable or kubeconfig is wrong.
        CommandError: the API server does not answer or lacks our kinds, a port is taken, or a part failed.
    """
    settings = read_settings(flags.numbers, flags.time_factor)
    config = cluster_config(flags.kubeconfig, flags.context)
    pools = None if flags.all_namespaces else flags.namespace or config.namespace or "default"
    own = flags.own_namespace or pools or config.namespace or "default"
    options = _manager_options(flags, config, own)
    for flag, address in _places(flags).items():
        check_free(flag, address)
    check_cluster(config, pools)
    try:
        manager = _build(flags, options, settings, pools, own)
        log.info(
            "starting",
            version=package_version(),
            server=config.host,
            pools=pools or "every namespace",
            time_factor=flags.time_factor,
        )
        run_process(manager)
    except CommandError:
        raise
    except ProviderError as error:
        raise CommandError(str(error)) from error
    except Exception as error:
        log.exception("the manager ended")
        raise CommandError(f"the manager ended: {error}") from error
    log.info("stopped")


def _build(flags: ManagerFlags, options: ManagerOptions, settings: Settings, pools: str | None, own: str) -> Manager:
    manager = Manager(options)
    jobs = JobOptions(service_account=flags.job_service_account, priority_class=flags.job_priority_class)
    user = manager_user(manager.client, flags.admission)
    policy = flags.admission.policy(account_of(user), flags.ports.grpc_service)
    assembly = AssemblyOptions(
        namespace=pools, jobs=jobs, policy=policy, own_node=flags.own_node, workers=flags.workers
    )
    assemble(manager, settings, assembly)
    if flags.admission.address:
        add_webhook(manager, flags.admission, policy, user, pools, own)
    if flags.ports.grpc:
        provider = _provider(flags.ports, manager, settings, pools, own)
        # This pod may still be labelled as the leader that it was before it crashed; it is none yet.
        provider.label.clear()
        manager.add(provider)
    return manager


def _provider(ports: PortFlags, manager: Manager, settings: Settings, pools: str | None, own: str) -> ProviderServer:
    options = ProviderOptions(
        address=ports.grpc,
        plaintext=ports.grpc_plaintext,
        service=ports.grpc_service,
        secrets_namespace=own,
        hosts=ports.grpc_hosts,
        certificate=ports.grpc_certificate,
        key=ports.grpc_key,
        client_authority=ports.grpc_client_authority,
    )
    return ProviderServer(
        manager.client,
        manager.cache,
        manager.clock,
        settings,
        manager.recorder,
        pools,
        options,
        registry=manager.metrics.registry,
    )


def _manager_options(flags: ManagerFlags, config: ClientConfig, own: str) -> ManagerOptions:
    return ManagerOptions(
        config=config,
        clock=ServerClock(),
        leader_election=_election(flags.election, own) if flags.election else None,
        health_address=flags.ports.health or None,
        metrics_address=flags.ports.metrics or None,
    )


def _places(flags: ManagerFlags) -> dict[str, str]:
    """Flag to address, of everything that listens."""
    ports = flags.ports
    places = {
        "--health-address": ports.health,
        "--metrics-address": ports.metrics,
        "--grpc-address": ports.grpc,
        "--webhook-address": flags.admission.address,
    }
    return {flag: address for flag, address in places.items() if address}


def _election(flags: ElectionFlags, own: str) -> LeaderElectionOptions:
    try:
        return LeaderElectionOptions(
            name=flags.name,
            namespace=own,
            lease_duration=_seconds("--lease-duration", flags.lease_duration),
            renew_deadline=_seconds("--renew-deadline", flags.renew_deadline),
            retry_period=_seconds("--retry-period", flags.retry_period),
        )
    except ValueError as error:
        raise UsageError(str(error)) from error


def _seconds(flag: str, text: str) -> float:
    try:
        return parse_duration(text).total_seconds() if not text.replace(".", "", 1).isdigit() else float(text)
    except ValueError as error:
        raise UsageError(f"{flag}: {error}") from error
