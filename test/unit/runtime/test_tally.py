"""Numbers of a hot path: what a scrape says of them is what the client library's own metrics would say."""

import threading

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram

from homelab_autoscaler.runtime.metrics import QUEUE_BUCKETS, RECONCILE_BUCKETS, Metrics
from homelab_autoscaler.runtime.tally import Distribution

VALUES = st.one_of(st.floats(0, 2000), st.sampled_from([bound for bound in RECONCILE_BUCKETS if bound < 100]))
PASSES = {"controller": "slot"}


def samples(registry, name, labels):
    """Value by (sample's suffix, bound) of one histogram."""
    return {
        (sample.name.removeprefix(name), sample.labels.get("le")): sample.value
        for family in registry.collect()
        if family.name == name
        for sample in family.samples
        if labels.items() <= sample.labels.items() and not sample.name.endswith("_created")
    }


@given(values=st.lists(VALUES, max_size=30))
def test_the_length_of_passes_is_told_as_a_histogram_of_the_client_library_tells_it(values):
    name = "controller_runtime_reconcile_time_seconds"
    plain = CollectorRegistry()
    expected = Histogram(name, "x", ("controller",), registry=plain, buckets=RECONCILE_BUCKETS).labels("slot")
    metrics = Metrics()
    passes = metrics.passes("slot")
    for value in values:
        expected.observe(value)
        passes.begun()
        passes.ended("success", value)
    told = samples(metrics.registry, name, PASSES)
    assert told == samples(plain, name, PASSES)
    assert metrics.registry.get_sample_value(
        "controller_runtime_reconcile_total", PASSES | {"result": "success"}
    ) == len(values)


def test_a_pass_under_way_is_an_active_worker_until_it_has_ended():
    metrics = Metrics()
    passes = metrics.passes("slot")
    passes.begun()
    passes.begun()
    passes.ended("error", 0.1)
    value = metrics.registry.get_sample_value
    assert value("controller_runtime_active_workers", PASSES) == 1
    assert value("controller_runtime_reconcile_total", PASSES | {"result": "error"}) == 1
    assert value("controller_runtime_reconcile_total", PASSES | {"result": "requeue"}) == 0


def test_a_queue_counts_each_key_that_came_and_how_long_it_waited():
    metrics = Metrics()
    queue = metrics.queue("slot", lambda: {"a": 2.0, "b": 5.0})
    queue.added()
    queue.added()
    queue.retried()
    queue.depth(0, 1)
    queue.handed_out(0.5)
    queue.finished(20.0)
    labels = {"name": "slot", "controller": "slot"}
    value = metrics.registry.get_sample_value
    assert value("workqueue_adds_total", labels) == 2
    assert value("workqueue_retries_total", labels) == 1
    assert value("workqueue_depth", labels | {"priority": "0"}) == 1
    assert value("workqueue_queue_duration_seconds_bucket", labels | {"le": "0.1"}) == 0
    assert value("workqueue_queue_duration_seconds_bucket", labels | {"le": "1.0"}) == 1
    assert value("workqueue_work_duration_seconds_sum", labels) == 20
    assert value("workqueue_unfinished_work_seconds", labels) == 7
    assert value("workqueue_longest_running_processor_seconds", labels) == 5


def test_no_value_is_lost_between_threads():
    values = Distribution(QUEUE_BUCKETS)
    threads = [threading.Thread(target=lambda: [values.observe(1.0) for _ in range(2000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    buckets, total = values.read()
    assert buckets[-1][1] == 8000
    assert total == 8000
