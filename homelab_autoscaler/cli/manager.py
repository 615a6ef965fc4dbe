"""`homelab-autoscaler manager`: the operator itself, against any cluster."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from homelab_autoscaler.cli.app import single
from homelab_autoscaler.cli.failure import UsageError
from homelab_autoscaler.cli.heap import return_large_blocks
from homelab_autoscaler.cli.logs import LogFormat, LogLevel, configure_logs
from homelab_autoscaler.cli.run_manager import ElectionFlags, ManagerFlags, PortFlags, run
from homelab_autoscaler.cli.run_webhook import AdmissionFlags
from homelab_autoscaler.cli.settings_flags import with_settings_flags
from homelab_autoscaler.webhook.assemble import CONFIGURATION

_API: Final = "API server"
_ELECTION: Final = "Leader election"
_PORTS: Final = "Ports"
_JOBS: Final = "Lifecycle Jobs"
_ADMISSION: Final = "Admission"


@with_settings_flags
def manager(
    *,
    kubeconfig: Annotated[
        str | None,
        typer.Option(
            help="Kubeconfig file. Without it: KUBECONFIG, the pod's service account, ~/.kube/config.",
            rich_help_panel=_API,
            show_default=False,
        ),
    ] = None,
    context: Annotated[
        str | None,
        typer.Option(help="Context of the kubeconfig.", rich_help_panel=_API, show_default="its current one"),
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option(
            help="The pools' namespace.", rich_help_panel=_API, show_default="the context's or the pod's, else default"
        ),
    ] = None,
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", help="Serve pools of every namespace.", rich_help_panel=_API)
    ] = False,
    own_namespace: Annotated[
        str | None,
        typer.Option(
            help="Where the manager keeps its Lease and its certificates.",
            envvar="POD_NAMESPACE",
            rich_help_panel=_API,
            show_default="the pools' namespace",
        ),
    ] = None,
    leader_elect: Annotated[
        bool, typer.Option(help="Act only while holding a Lease.", rich_help_panel=_ELECTION)
    ] = True,
    lease_name: Annotated[str, typer.Option(help="Name of the Lease.", rich_help_panel=_ELECTION)] = (
        "homelab-autoscaler"
    ),
    lease_duration: Annotated[
        str, typer.Option(help="How long others wait for a silent leader.", metavar="TIME", rich_help_panel=_ELECTION)
    ] = "15s",
    renew_deadline: Annotated[
        str, typer.Option(help="How long a leader tries to renew.", metavar="TIME", rich_help_panel=_ELECTION)
    ] = "10s",
    retry_period: Annotated[
        str, typer.Option(help="Time between two tries.", metavar="TIME", rich_help_panel=_ELECTION)
    ] = "2s",
    health_address: Annotated[
        str, typer.Option(help="Where /healthz and /readyz answer; empty: nowhere.", rich_help_panel=_PORTS)
    ] = ":8081",
    metrics_address: Annotated[
        str, typer.Option(help="Where /metrics answers; empty: nowhere.", rich_help_panel=_PORTS)
    ] = ":8080",
    grpc_address: Annotated[
        str, typer.Option(help="Where Cluster Autoscaler connects; empty: nowhere.", rich_help_panel=_PORTS)
    ] = "0.0.0.0:50051",
    grpc_service: Annotated[
        str, typer.Option(help="Name of the Service; the certificates' Secrets begin with it.", rich_help_panel=_PORTS)
    ] = "homelab-autoscaler-grpc",
    grpc_host: Annotated[
        list[str] | None,
        typer.Option(help="Further name or address in the certificate; may be repeated.", rich_help_panel=_PORTS),
    ] = None,
    grpc_plaintext: Annotated[
        bool,
        typer.Option(
            "--grpc-plaintext",
            help="Serve without TLS: whoever reaches the port switches machines. For experiments.",
            rich_help_panel=_PORTS,
        ),
    ] = False,
    grpc_certificate: Annotated[
        str | None, typer.Option(help="PEM file of an own server certificate.", rich_help_panel=_PORTS)
    ] = None,
    grpc_key: Annotated[str | None, typer.Option(help="PEM file of its key.", rich_help_panel=_PORTS)] = None,
    grpc_client_authority: Annotated[
        str | None, typer.Option(help="PEM file of the authority of client certificates.", rich_help_panel=_PORTS)
    ] = None,
    webhook_address: Annotated[
        str, typer.Option(help="Where the API server asks about our kinds; empty: nowhere.", rich_help_panel=_ADMISSION)
    ] = "",
    webhook_cert_dir: Annotated[
        str | None,
        typer.Option(
            help="Directory with tls.crt and tls.key, as cert-manager mounts them. Without it the manager makes its "
            "own, keeps them in a Secret, and gives their authority to the API server.",
            rich_help_panel=_ADMISSION,
            show_default=False,
        ),
    ] = None,
    webhook_service: Annotated[
        str, typer.Option(help="Name of the Service, and of the certificate's Secret.", rich_help_panel=_ADMISSION)
    ] = "homelab-autoscaler-webhook",
    webhook_host: Annotated[
        list[str] | None,
        typer.Option(help="Further name or address in the certificate; may be repeated.", rich_help_panel=_ADMISSION),
    ] = None,
    webhook_configuration: Annotated[
        str, typer.Option(help="The ValidatingWebhookConfiguration to keep.", rich_help_panel=_ADMISSION)
    ] = CONFIGURATION,
    allowed_image: Annotated[
        list[str] | None,
        typer.Option(
            help="Image that slots may name, as a shell pattern; may be repeated. None given: all.",
            rich_help_panel=_ADMISSION,
        ),
    ] = None,
    allowed_secret: Annotated[
        list[str] | None,
        typer.Option(help="The same for Secrets. Never the manager's own.", rich_help_panel=_ADMISSION),
    ] = None,
    allowed_service_account: Annotated[
        list[str] | None,
        typer.Option(help="The same for service accounts. Never the manager's own.", rich_help_panel=_ADMISSION),
    ] = None,
    job_service_account: Annotated[
        str, typer.Option(help="Service account of Jobs whose slot names none.", rich_help_panel=_JOBS)
    ] = "homelab-autoscaler-job",
    job_priority_class: Annotated[
        str, typer.Option(help="Priority class of Jobs.", rich_help_panel=_JOBS, show_default="none")
    ] = "",
    own_node: Annotated[
        str,
        typer.Option(
            help="The node that runs this manager; it is never switched off under it.",
            envvar="NODE_NAME",
            rich_help_panel=_JOBS,
            show_default=False,
        ),
    ] = "",
    workers: Annotated[int, typer.Option(min=1, max=64, help="Passes at a time, per controller.")] = 4,
    time_factor: Annotated[
        float, typer.Option(help="Divide every time of the model by this. For demonstrations and tests.")
    ] = 1.0,
    log_level: Annotated[LogLevel, typer.Option(help="Least importance of log lines.")] = LogLevel.INFO,
    log_format: Annotated[LogFormat, typer.Option(help="auto: console on a terminal, else JSON.")] = LogFormat.AUTO,
    **numbers: str | None,
) -> None:
    """Run the operator until SIGTERM.

    Exit codes: 0 after a stop that was asked for; 1 when it could not go on (API server silent, CRDs missing, port in
    use, lease lost); 2 for flags or a configuration that make no sense.
    """
    return_large_blocks()
    configure_logs(log_level, log_format)
    if namespace and all_namespaces:
        raise UsageError("--namespace and --all-namespaces contradict each other: give one of them")
    run(
        ManagerFlags(
            kubeconfig=kubeconfig,
            context=context,
            namespace=namespace,
            all_namespaces=all_namespaces,
            own_namespace=own_namespace,
            election=ElectionFlags(lease_name, lease_duration, renew_deadline, retry_period) if leader_elect else None,
            ports=PortFlags(
                health=health_address,
                metrics=metrics_address,
                grpc=grpc_address,
                grpc_service=grpc_service,
                grpc_hosts=tuple(grpc_host or ()),
                grpc_plaintext=grpc_plaintext,
                grpc_certificate=grpc_certificate,
                grpc_key=grpc_key,
                grpc_client_authority=grpc_client_authority,
            ),
            admission=AdmissionFlags(
                address=webhook_address,
                certificates=webhook_cert_dir,
                service=webhook_service,
                hosts=tuple(webhook_host or ()),
                configuration=webhook_configuration,
                images=tuple(allowed_image or ()),
                secrets=tuple(allowed_secret or ()),
                service_accounts=tuple(allowed_service_account or ()),
            ),
            job_service_account=job_service_account,
            job_priority_class=job_priority_class,
            own_node=own_node,
            workers=workers,
            time_factor=time_factor,
            numbers=numbers,
        )
    )


app = single(manager)
