"""What became of Jobs, change by change, on any control plane: a watch that starts in the past tells it all."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from homelab_api import names
from homelab_api.core import Job
from homelab_autoscaler.runtime.client.paths import collection_path, with_query

if TYPE_CHECKING:
    from lab.pool import Pool

_MARKER = "history-ends-here"


@dataclass(frozen=True)
class Seen:
    """A change of a Job."""

    type: str
    job: Job

    @property
    def at_work(self) -> bool:
        """Whether the Job may run a pod after this change."""
        return self.type != "DELETED" and not self.job.suspended and not self.job.finished


class JobHistory:
    """The Jobs of a pool since the making of this object."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._from = pool.client.list(Job, pool.namespace).resource_version

    def read(self) -> list[Seen]:
        """Every change of a lifecycle Job until now, oldest first."""
        client, namespace = self._pool.client, self._pool.namespace
        path = collection_path(Job.resource, namespace)
        body = {"metadata": {"name": _MARKER}, "spec": {"suspend": True, "template": _NOTHING}}
        marker = client.create_json(Job, body, namespace)
        query = {"watch": True, "resourceVersion": self._from, "timeoutSeconds": 30}
        stream = client.transport.stream(with_query(path, query), inactivity=60)
        seen = []
        try:
            for line in stream.lines():
                event = json.loads(line)
                job = Job.from_json(event["object"])
                if job.uid == marker.uid:
                    return seen
                if names.LABEL_JOB_TYPE in job.metadata.labels:
                    seen.append(Seen(event["type"], job))
        finally:
            stream.close()
            client.delete(Job, _MARKER, namespace, uid=marker.uid, propagation="Background")
        raise AssertionError(f"the history of {namespace} does not reach the present")

    def check(self) -> None:
        """No two lifecycle Jobs of a slot were ever at work at once."""
        working: dict[str, dict[str, str]] = {}
        for seen in self.read():
            slot = working.setdefault(seen.job.metadata.labels[names.LABEL_NODE], {})
            slot.pop(seen.job.uid, None)
            if seen.at_work:
                slot[seen.job.uid] = seen.job.name
            assert len(slot) <= 1, f"two lifecycle Jobs at work at once: {sorted(slot.values())}"


_NOTHING = {"spec": {"restartPolicy": "Never", "containers": [{"name": "none", "image": "none", "command": ["true"]}]}}
