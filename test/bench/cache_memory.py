"""Resident memory of 10,000 cached objects of 2 KB, on top of the process without them."""

import gc
import json
import sys
import threading

from homelab_api.core import Job
from homelab_autoscaler.runtime import Cache, StopSignal, SystemClock
from homelab_autoscaler.runtime.cache import ReflectorOptions, WatchEvent
from homelab_autoscaler.runtime.testing import FakeSource

OBJECTS = 10_000
SIZE = 2048


def resident() -> float:
    """MiB of this process now."""
    with open("/proc/self/statm") as file:  # noqa: PTH123 - a kernel file
        return int(file.read().split()[1]) * 4096 / 2**20


def body(number: int) -> dict:
    """A Job of about 2 KB."""
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"job-{number}",
            "namespace": f"ns-{number % 10}",
            "uid": f"00000000-0000-0000-0000-{number:012d}",
            "resourceVersion": str(1000 + number),
            "labels": {"app": f"app-{number % 100}", "tier": "bench"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": f"n{number}", "uid": f"u{number}"}],
        },
        "spec": {"backoffLimit": 0, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
        "status": {"conditions": [{"type": "Complete", "status": "True", "reason": "Done"}]},
    }
    job["metadata"]["annotations"] = {"pad": "x" * max(0, SIZE - len(json.dumps(job)) - 40)}
    return job


class OneByOne(FakeSource):
    """A streaming list whose objects exist only while they are read, as over the network."""

    def watch(self, *, resource_version, timeout_seconds, initial_events):
        watch = super().watch(
            resource_version=resource_version, timeout_seconds=timeout_seconds, initial_events=initial_events
        )
        inner = watch.__iter__

        class Lazy:
            def __iter__(self):
                for number in range(OBJECTS):
                    yield WatchEvent("ADDED", json.loads(json.dumps(body(number))))
                yield from inner()

            def close(self):
                watch.close()

        return Lazy()


def main() -> int:
    """Fill a cache, read it all twice, and print."""
    source = OneByOne(Job.resource, streaming_list=True)
    cache = Cache(
        None,
        SystemClock(),
        options=ReflectorOptions(),
        make_source=lambda kind, namespace: source,
    )
    informer = cache.informer(Job, indexers={"app": lambda job: [job.metadata.labels.get("app", "")]})
    stop = StopSignal()
    gc.collect()
    before = resident()
    thread = threading.Thread(target=cache.run, args=(stop,))
    thread.start()
    informer.wait_for_sync(stop, 60)
    for _ in range(2):
        assert len(informer.lister.list()) == OBJECTS
    gc.collect()
    grown = resident() - before
    stop.set()
    thread.join()
    result = {"bench": "cache memory", "objects": OBJECTS, "MiB": round(grown, 1), "target": 80}
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
