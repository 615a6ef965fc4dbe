"""Run the small autoscaler: python -m homelab_autoscaler.sandbox.autoscaler --kubeconfig FILE --cloud-config FILE."""

from __future__ import annotations

import signal
from typing import Annotated, NoReturn

import structlog
import typer

from homelab_api.meta import parse_duration
from homelab_autoscaler.runtime.client import Client, Transport
from homelab_autoscaler.runtime.clock import SystemClock
from homelab_autoscaler.runtime.config import ConfigError, load_config
from homelab_autoscaler.runtime.stop import StopSignal
from homelab_autoscaler.sandbox.autoscaler.cloud import Cloud, CrashError
from homelab_autoscaler.sandbox.autoscaler.cloud_config import CloudConfig
from homelab_autoscaler.sandbox.autoscaler.cluster import ApiCluster
from homelab_autoscaler.sandbox.autoscaler.generation import Generation
from homelab_autoscaler.sandbox.autoscaler.loop import Autoscaler
from homelab_autoscaler.sandbox.autoscaler.options import AutoscalerOptions, Times

log = structlog.get_logger("autoscaler")


def play(
    cloud_config: Annotated[str, typer.Option(help="YAML file with address, cert, key and cacert.")],
    kubeconfig: Annotated[str | None, typer.Option(help="Kubeconfig file; the usual places if not given.")] = None,
    generation: Annotated[Generation, typer.Option(help="Release line to play.")] = Generation.V1_36,
    speed: Annotated[float, typer.Option(help="Factor by which every time is shorter.")] = 1.0,
    expander: Annotated[str, typer.Option(help="least-waste or price.")] = "least-waste",
    scale_down_unneeded_time: Annotated[str, typer.Option(help="As the real flag; before it is scaled.")] = "10m",
    scale_down_delay_after_add: Annotated[str, typer.Option(help="As the real flag; before it is scaled.")] = "10m",
    max_node_provision_time: Annotated[str, typer.Option(help="As the real flag; before it is scaled.")] = "15m",
    startup_taint: Annotated[list[str] | None, typer.Option(help="Key of a taint that starting nodes carry.")] = None,
    enforce_node_group_min_size: Annotated[  # noqa: FBT002 - a flag
        bool, typer.Option("--enforce-node-group-min-size", help="Grow groups below minSize.")
    ] = False,
) -> None:
    """Play Cluster Autoscaler until interrupted."""
    if expander not in {"least-waste", "price"}:
        fail(f'expander "{expander}" is not known: least-waste or price')
    try:
        config = CloudConfig.read(cloud_config)
        options = AutoscalerOptions(
            generation=generation,
            times=Times(
                scale_down_unneeded_time=parse_duration(scale_down_unneeded_time).total_seconds(),
                scale_down_delay_after_add=parse_duration(scale_down_delay_after_add).total_seconds(),
                max_node_provision_time=parse_duration(max_node_provision_time).total_seconds(),
            ),
            startup_taints=tuple(startup_taint or ()),
            enforce_min_size=enforce_node_group_min_size,
            call_timeout=config.grpc_timeout,
            expander="price" if expander == "price" else "least-waste",
        ).scaled(speed)
        channel = config.channel()
        clock = SystemClock()
        server = load_config(kubeconfig)
        transport = Transport(server, clock, user_agent="cluster-autoscaler")
        client = Client(server, clock, transport=transport, field_manager="cluster-autoscaler")
    except (ValueError, ConfigError) as error:
        fail(str(error))
    stop = StopSignal()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with channel:
        try:
            Autoscaler(ApiCluster(client), Cloud(channel, options), clock, options).run(stop)
        except CrashError as error:
            fail(f"the real autoscaler would have crashed here: {error}")


def fail(text: str) -> NoReturn:
    """Say what is wrong and end with status 1."""
    log.error(text)
    raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(play)
