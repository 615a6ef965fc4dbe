"""The flags of the autoscaler that a provider can notice, with their defaults."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Literal, Self

from homelab_autoscaler.sandbox.autoscaler.generation import Generation

Expander = Literal["least-waste", "price"]


@dataclass(frozen=True, slots=True)
class Times:
    """Everything that is a time, in seconds; names follow the flags."""

    scan_interval: float = 10.0
    scale_down_unneeded_time: float = 600.0
    scale_down_unready_time: float = 1200.0
    scale_down_delay_after_add: float = 600.0
    scale_down_delay_after_delete: float = 0.0
    scale_down_delay_after_failure: float = 180.0
    max_node_provision_time: float = 900.0
    max_node_startup_time: float = 900.0
    initial_backoff: float = 300.0
    max_backoff: float = 1800.0
    backoff_reset: float = 10800.0
    node_delete_delay_after_taint: float = 5.0
    max_pod_eviction_time: float = 120.0
    max_graceful_termination: float = 600.0
    new_pod_delay: float = 2.0
    template_stability: float = 60.0
    instance_refresh: float = 120.0
    deletion_memory: float = 300.0

    def scaled(self, factor: float) -> Self:
        """Every time divided by `factor`.

        Raises:
            ValueError: the factor is not positive.
        """
        if factor <= 0:
            raise ValueError(f"speed {factor} must be greater than 0: 20 means twenty times faster")
        return replace(self, **{item.name: getattr(self, item.name) / factor for item in fields(self)})


@dataclass(frozen=True, slots=True)
class AutoscalerOptions:
    """Flags. Times are scaled together; the deadline of a call is real and is not.

    Attributes:
        generation: which release line is played.
        times: all times.
        utilization_threshold: a node with less requested than this share may go.
        gpu_utilization_threshold: the same for nodes with a GPU.
        zero_or_max: flag default of zeroOrMaxNodeScaling.
        ignore_daemon_sets: flag default of ignoreDaemonSetsUtilization.
        ok_total_unready: unready nodes that are always all right.
        max_total_unready_percentage: share of unready nodes beyond which it does nothing.
        enforce_min_size: grow groups that are below minSize.
        max_empty_bulk_delete: nodes that one loop may begin to delete.
        max_soft_taints: candidate taints that one loop may change.
        startup_taints: keys of taints that a starting node carries.
        skip_system_pods: pods of kube-system keep their node.
        expander: how to choose among groups.
        call_timeout: deadline of every call, in real seconds.
    """

    generation: Generation = Generation.V1_36
    times: Times = Times()
    utilization_threshold: float = 0.5
    gpu_utilization_threshold: float = 0.5
    zero_or_max: bool = False
    ignore_daemon_sets: bool = False
    ok_total_unready: int = 3
    max_total_unready_percentage: float = 45.0
    enforce_min_size: bool = False
    max_empty_bulk_delete: int = 10
    max_soft_taints: int = 10
    startup_taints: tuple[str, ...] = ()
    skip_system_pods: bool = True
    expander: Expander = "least-waste"
    call_timeout: float = 5.0

    def scaled(self, factor: float) -> Self:
        """The same flags with every time divided by `factor`."""
        return replace(self, times=self.times.scaled(factor))
