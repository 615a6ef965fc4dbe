"""Metrics that are made from the present state when they are asked for: no thread has to keep them fresh."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterable

    from homelab_autoscaler.runtime.cache import Cache
    from homelab_autoscaler.runtime.tally import Distribution, PassTally, QueueTally

_MAX_PRIORITIES = 25
OTHER_PRIORITIES = "other"


class LiveCollector(Collector):
    """Queues, passes and informers of one manager."""

    def __init__(self) -> None:
        self.queues: dict[str, QueueTally] = {}
        self.passes: dict[str, PassTally] = {}
        self.cache: Cache | None = None

    def collect(self) -> Iterable[Metric]:
        """The metrics of this moment."""
        yield from _passes(dict(self.passes))
        yield from _queues(dict(self.queues))
        if self.cache is not None:
            yield from _informers(self.cache)


def _passes(passes: dict[str, PassTally]) -> Iterable[Metric]:
    labels = ["controller"]
    total = CounterMetricFamily("controller_runtime_reconcile_total", "Passes by result", labels=[*labels, "result"])
    seconds = HistogramMetricFamily("controller_runtime_reconcile_time_seconds", "Length of passes", labels=labels)
    active = GaugeMetricFamily("controller_runtime_active_workers", "Workers with a request", labels=labels)
    for name, tally in passes.items():
        for outcome, count in list(tally.outcomes.items()):
            total.add_metric([name, outcome], count)
        _add(seconds, [name], tally.seconds)
        active.add_metric([name], tally.active)
    return total, seconds, active


def _queues(queues: dict[str, QueueTally]) -> Iterable[Metric]:
    labels = ["name", "controller"]
    depth = GaugeMetricFamily("workqueue_depth", "Keys that are ready", labels=[*labels, "priority"])
    adds = CounterMetricFamily("workqueue_adds_total", "Keys added", labels=labels)
    retries = CounterMetricFamily("workqueue_retries_total", "Keys added with a delay", labels=labels)
    queued = HistogramMetricFamily("workqueue_queue_duration_seconds", "Wait of keys in the queue", labels=labels)
    worked = HistogramMetricFamily("workqueue_work_duration_seconds", "Work on keys", labels=labels)
    unfinished = GaugeMetricFamily(
        "workqueue_unfinished_work_seconds", "Seconds of work under way, summed", labels=labels
    )
    longest = GaugeMetricFamily(
        "workqueue_longest_running_processor_seconds", "Seconds of the longest work under way", labels=labels
    )
    for name, tally in queues.items():
        values = [name, name]
        for label, count in _by_priority(tally).items():
            depth.add_metric([*values, label], count)
        adds.add_metric(values, tally.adds)
        retries.add_metric(values, tally.retries)
        _add(queued, values, tally.queued)
        _add(worked, values, tally.worked)
        ages = list(tally.processing().values())
        unfinished.add_metric(values, sum(ages))
        longest.add_metric(values, max(ages, default=0.0))
    return depth, adds, retries, queued, worked, unfinished, longest


def _by_priority(tally: QueueTally) -> dict[str, int]:
    """Ready keys by priority; beyond 25 priorities the rest share one label, so that the series stay bounded."""
    depths = list(tally.depths.copy().items())
    known = {str(priority): count for priority, count in depths[:_MAX_PRIORITIES]}
    rest = depths[_MAX_PRIORITIES:]
    return {**known, OTHER_PRIORITIES: sum(count for _, count in rest)} if rest else known


def _informers(cache: Cache) -> Iterable[Metric]:
    labels = ["name", "group", "version", "resource"]
    queued = GaugeMetricFamily("informer_queued_items", "Events not yet delivered to handlers", labels=labels)
    objects = GaugeMetricFamily("informer_store_objects", "Objects in the store", labels=labels)
    version = GaugeMetricFamily("informer_store_resource_version", "Version the store is in step with", labels=labels)
    silence = GaugeMetricFamily(
        "informer_silence_seconds", "Seconds since the server last said anything", labels=labels
    )
    for informer in cache.informers():
        resource = informer.kind.resource
        values = [informer.namespace or "all", resource.group, resource.version, resource.plural]
        queued.add_metric(values, informer.pending)
        objects.add_metric(values, len(informer.store))
        text = informer.store.version
        version.add_metric(values, float(text) if text.isdigit() else 0.0)
        silence.add_metric(values, informer.silence)
    return queued, objects, version, silence


def _add(family: HistogramMetricFamily, labels: list[str], values: Distribution) -> None:
    buckets, total = values.read()
    family.add_metric(
        labels, [("+Inf" if bound == math.inf else str(float(bound)), count) for bound, count in buckets], total
    )
