"""The container runtime of the sandbox's own node: processes. See the package for what a container becomes."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from homelab_autoscaler.sandbox import objects, resources
from homelab_autoscaler.sandbox.kubelet.runtime import ContainerRun, StartError
from homelab_autoscaler.sandbox.podrunner.environment import PathMap, container_environment, expand
from homelab_autoscaler.sandbox.podrunner.process import ProcessRun, start_process
from homelab_autoscaler.sandbox.podrunner.volumes import make_volumes, mount
from homelab_autoscaler.sandbox.status import ApiStatusError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.client import ApiClient
    from homelab_autoscaler.sandbox.clock import SandboxClock
    from homelab_autoscaler.sandbox.podrunner.logs import LogStore

_KINDS = {"Secret": resources.SECRETS, "ConfigMap": resources.CONFIG_MAPS}


class ProcessRuntime:
    """Implements PodRuntime with local processes.

    Guarantee: after `close` no process that it started is left, whatever became of the pods.
    """

    def __init__(
        self,
        client: ApiClient,
        clock: SandboxClock,
        root: Path,
        logs: LogStore,
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Run pods below a directory.

        Args:
            client: Reads Secrets and ConfigMaps.
            clock: Measures grace periods.
            root: A directory of its own; removed again by `close`.
            logs: Where output is kept.
            environment: Added to every process.
        """
        self._client = client
        self._clock = clock
        self._root = root
        self._environment = dict(environment or {})
        self._logs = logs
        self._runs: set[ProcessRun] = set()

    async def prepare(self, pod: JsonObject) -> None:
        """Write the volumes and look once at everything that `env` refers to. See PodRuntime."""
        directory = self._directory(pod)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "work").mkdir(exist_ok=True)
        with contextlib.suppress(StartError):  # Said again, and shown, when the container is started.
            await make_volumes(pod, directory / "volumes", lambda kind, name: self._lookup(pod, kind, name))
        spec = objects.spec(pod)
        for container in (*(spec.get("initContainers") or []), *spec["containers"]):
            await self._container_environment(pod, container, directory)

    async def start(self, pod: JsonObject, container: JsonObject, attempt: int) -> ContainerRun:
        """Start the container's command. See PodRuntime."""
        directory = self._directory(pod)
        await make_volumes(pod, directory / "volumes", lambda kind, name: self._lookup(pod, kind, name))
        command = list(container.get("command") or [])
        if not command:
            text = (
                f'container "{container["name"]}" has no command: the sandbox runs commands, not images; '
                "set command in the container"
            )
            raise StartError(text, reason="NoCommand")
        root = directory / "root" / container["name"]
        root.mkdir(parents=True, exist_ok=True)
        paths = PathMap(mount(container, directory / "volumes", root))
        environment = await self._container_environment(pod, container, root)
        environment = {name: paths.rewrite(value) for name, value in environment.items()}
        argv = [paths.rewrite(expand(str(part), environment)) for part in (*command, *(container.get("args") or []))]
        uid, name = objects.uid(pod), container["name"]
        run = await start_process(
            argv,
            environment=environment,
            directory=directory / "work",
            writer=self._logs.writer(uid, name, attempt),
            clock=self._clock,
            ended=lambda: self._logs.ended(uid, name, attempt),
        )
        self._runs.add(run)
        return run

    def ready_delay(self, pod: JsonObject) -> float | None:
        """A started process is ready."""
        del pod
        return 0.0

    async def forget(self, pod: JsonObject) -> None:
        """Remove files and output of a pod that is gone."""
        shutil.rmtree(self._directory(pod), ignore_errors=True)
        self._logs.forget(objects.uid(pod))
        self._runs = {run for run in self._runs if not run.done}

    def kill(self) -> None:
        """Kill every process, at once."""
        for run in self._runs:
            run.kill()

    async def close(self) -> None:
        """Kill every process and remove the directory."""
        self.kill()
        for run in self._runs:
            await run.wait()
        self._runs.clear()
        shutil.rmtree(self._root, ignore_errors=True)

    def _directory(self, pod: JsonObject) -> Path:
        return self._root / objects.uid(pod)

    async def _container_environment(self, pod: JsonObject, container: JsonObject, root: Path) -> dict[str, str]:
        # The sandbox's own Python comes first, so that "python -m homelab_autoscaler.…" works in a Job.
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        base = {
            "PATH": path,
            "HOME": str(self._directory(pod) / "work"),
            "LANG": os.environ.get("LANG", "C.UTF-8"),
            "HOSTNAME": objects.name(pod),
            "POD_NAME": objects.name(pod),
            "JOB_NAME": objects.labels(pod).get("batch.kubernetes.io/job-name", ""),
            "SANDBOX_ROOT": str(root),
            **self._environment,
        }
        return await container_environment(pod, container, base, lambda kind, name: self._lookup(pod, kind, name))

    async def _lookup(self, pod: JsonObject, kind: str, name: str) -> JsonObject | None:
        try:
            found = await self._client.get(resources.path(_KINDS[kind], objects.namespace(pod), name))
        except ApiStatusError as error:
            if error.code == 404:
                return None
            raise
        return {"kind": kind, **found}
