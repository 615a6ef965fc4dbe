"""An operator in one file, on the runtime alone: it keeps copies of a ConfigMap in other namespaces.

    kubectl apply -f examples/mirror/crd.yaml
    python examples/mirror/mirror.py

A `Mirror` names a ConfigMap of its namespace and the namespaces that get a copy. A copy follows its source, comes back
when it is deleted, and goes with the mirror: copies in other namespaces cannot have an owner, so a finalizer does what
garbage collection would.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from pydantic import Field

from homelab_api.conditions import condition, merge_conditions
from homelab_api.meta import Condition, Conditions, JsonObject, KubeModel, KubeObject, ResourceInfo
from homelab_autoscaler.runtime import (
    ApplyPatch,
    ControllerBuilder,
    LeaderElectionOptions,
    Manager,
    ManagerOptions,
    MergePatch,
    NotFoundError,
    Request,
    Result,
    load_config,
    run_process,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

FINALIZER = "example.dev/mirror"
MIRROR_LABEL = "example.dev/mirror"
BY_SOURCE = "source"
BY_MIRROR = "mirror"


class ConfigMap(KubeObject):
    """corev1 ConfigMap, as much of it as is mirrored."""

    resource = ResourceInfo("", "v1", "ConfigMap", "configmaps")

    data: dict[str, str] = Field(default_factory=dict)


class MirrorSpec(KubeModel):
    """What is copied to where."""

    source: str
    targets: list[str]


class MirrorStatus(KubeModel):
    """What was reached."""

    copies: int = 0
    conditions: Conditions = Field(default_factory=list)


class Mirror(KubeObject):
    """A ConfigMap and the namespaces that get a copy of it."""

    resource = ResourceInfo("example.dev", "v1", "Mirror", "mirrors")

    spec: MirrorSpec
    status: MirrorStatus = Field(default_factory=MirrorStatus)


class MirrorReconciler:
    """One pass: look at the mirror, its source and its copies as they are now, and make the copies right."""

    def __init__(self, manager: Manager) -> None:
        self._client = manager.client
        self._clock = manager.clock
        self._recorder = manager.recorder
        self._mirrors = manager.cache.informer(Mirror, indexers={BY_SOURCE: source_of}).lister
        self._config_maps = manager.cache.informer(ConfigMap, indexers={BY_MIRROR: mirror_of}).lister

    def reconcile(self, request: Request) -> Result:
        """See Reconciler. Nothing is remembered between passes: after a crash the next pass goes on from here."""
        mirror = self._mirrors.get(request.name, request.namespace)
        if mirror is None:
            return Result()
        copies = self._config_maps.by_index(BY_MIRROR, index_value(mirror))
        if mirror.marked:
            self._delete(copies)
            self._set_finalizers(mirror, [name for name in mirror.metadata.finalizers if name != FINALIZER])
            return Result()
        if FINALIZER not in mirror.metadata.finalizers:  # before the first copy, so that none can be left behind
            mirror = self._set_finalizers(mirror, [*mirror.metadata.finalizers, FINALIZER])
        generation = mirror.metadata.generation
        source = self._config_maps.get(mirror.spec.source, mirror.namespace)
        if source is None:
            message = f'no ConfigMap "{mirror.spec.source}" in this namespace'
            self._report(mirror, len(copies), condition("Ready", False, "SourceMissing", message, generation))
            return Result()
        wanted = [namespace for namespace in mirror.spec.targets if namespace != mirror.namespace]
        self._delete(copy for copy in copies if copy.namespace not in wanted or copy.name != source.name)
        done = [namespace for namespace in wanted if self._copy(mirror, source, namespace)]
        missing = [namespace for namespace in wanted if namespace not in done]
        if missing:
            message = f"no such namespace: {', '.join(missing)}"
            self._report(mirror, len(done), condition("Ready", False, "NamespaceMissing", message, generation))
            return Result(requeue_after=30)  # namespaces are not watched: look again
        message = f"{len(done)} copies are up to date"
        self._report(mirror, len(done), condition("Ready", True, "Copied", message, generation))
        return Result()

    def _copy(self, mirror: Mirror, source: ConfigMap, namespace: str) -> bool:
        held = self._config_maps.get(source.name, namespace)
        if held is not None and held.data == source.data and mirror_of(held) == [index_value(mirror)]:
            return True
        body: JsonObject = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": source.name,
                "namespace": namespace,
                "labels": {MIRROR_LABEL: "copy"},
                "annotations": {MIRROR_LABEL: index_value(mirror)},
            },
            "data": source.data,
        }
        try:
            self._client.patch(ConfigMap, source.name, namespace, ApplyPatch(body))
        except NotFoundError:
            return False
        self._recorder.event(mirror, "Normal", "Copied", f"Copied {source.name} to namespace {namespace}")
        return True

    def _delete(self, copies: Iterable[ConfigMap]) -> None:
        for copy in copies:
            with contextlib.suppress(NotFoundError):
                self._client.delete(ConfigMap, copy.name, copy.namespace, uid=copy.uid)

    def _set_finalizers(self, mirror: Mirror, finalizers: list[str]) -> Mirror:
        # The version makes the server refuse the list if somebody else changed it meanwhile; the pass is repeated then.
        metadata = {"finalizers": finalizers, "resourceVersion": mirror.metadata.resource_version}
        return self._client.patch(Mirror, mirror.name, mirror.namespace, MergePatch({"metadata": metadata}))

    def _report(self, mirror: Mirror, copies: int, ready: Condition) -> None:
        conditions = merge_conditions(mirror.status.conditions, [ready], self._clock.now())
        status = {"copies": copies, "conditions": [entry.to_json() for entry in conditions]}
        self._client.patch_status(mirror, status)  # nothing is sent when this is what it says already


def index_value(mirror: Mirror) -> str:
    """How a copy names its mirror."""
    return f"{mirror.namespace}/{mirror.name}"


def mirror_of(config_map: ConfigMap) -> list[str]:
    """The mirror that a copy belongs to."""
    value = config_map.metadata.annotations.get(MIRROR_LABEL)
    return [value] if value and MIRROR_LABEL in config_map.metadata.labels else []


def source_of(mirror: Mirror) -> list[str]:
    """The ConfigMap that a mirror copies."""
    return [f"{mirror.namespace}/{mirror.spec.source}"]


def build(options: ManagerOptions) -> Manager:
    """The manager of the operator: what runs, and what wakes it."""
    manager = Manager(options)
    reconciler = MirrorReconciler(manager)
    mirrors = manager.cache.lister(Mirror)

    def wakes(config_map: ConfigMap) -> Iterable[Request]:
        """A copy wakes its mirror; a source wakes all mirrors that copy it."""
        for owner in mirror_of(config_map):
            yield Request(*owner.split("/", 1))
        for mirror in mirrors.by_index(BY_SOURCE, f"{config_map.namespace}/{config_map.name}"):
            yield Request(mirror.namespace, mirror.name)

    ControllerBuilder(manager, "mirror").for_(Mirror).watches(ConfigMap, wakes).with_options(workers=2).complete(
        reconciler
    )
    return manager


if __name__ == "__main__":
    run_process(
        build(
            ManagerOptions(
                config=load_config(),
                name="mirror",
                leader_election=LeaderElectionOptions(name="mirror", namespace="default"),
                health_address=":8081",
                metrics_address=":8080",
            )
        )
    )
