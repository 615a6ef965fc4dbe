"""A pod's status from the states of its containers. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from homelab_autoscaler.sandbox import objects

if TYPE_CHECKING:
    from datetime import datetime

    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.kubelet.runtime import Exit


@dataclass
class ContainerState:
    """What a kubelet knows of one container.

    Attributes:
        name: The container.
        image: As written in the pod.
        waiting: Reason and message while it does not run.
        started_at: Since when it runs, or ran last.
        exit: How it ended; None while it runs or waits.
        last: How the run before ended, for a restarted container.
        ready: Whether it passed its readiness.
        restarts: How often it was started again.
    """

    name: str
    image: str = ""
    waiting: tuple[str, str] | None = ("ContainerCreating", "")
    started_at: datetime | None = None
    exit: Exit | None = None
    last: Exit | None = None
    ready: bool = False
    restarts: int = 0
    container_id: str = field(default="")

    @property
    def running(self) -> bool:
        """True between start and end."""
        return self.waiting is None and self.exit is None

    def to_json(self) -> JsonObject:
        """The entry of containerStatuses."""
        body: JsonObject = {
            "name": self.name,
            "image": self.image,
            "imageID": "",
            "ready": self.ready and self.running,
            "started": self.running,
            "restartCount": self.restarts,
            "state": self._state(),
        }
        if self.container_id:
            body["containerID"] = self.container_id
        if self.last is not None:
            body["lastState"] = {"terminated": _terminated(self.last, None)}
        return body

    def _state(self) -> JsonObject:
        if self.exit is not None:
            return {"terminated": _terminated(self.exit, self.started_at)}
        if self.waiting is not None:
            reason, message = self.waiting
            return {"waiting": {"reason": reason, **({"message": message} if message else {})}}
        assert self.started_at is not None
        return {"running": {"startedAt": objects.stamp(self.started_at)}}


def _terminated(ended: Exit, started_at: datetime | None) -> JsonObject:
    body: JsonObject = {
        "exitCode": ended.code,
        "reason": ended.reason or ("Completed" if ended.code == 0 else "Error"),
        "startedAt": objects.stamp(started_at or ended.finished_at),
        "finishedAt": objects.stamp(ended.finished_at),
    }
    if ended.message:
        body["message"] = ended.message
    return body


def will_restart(policy: str, ended: Exit) -> bool:
    """Whether restartPolicy starts an ended container again."""
    return policy == "Always" or (policy == "OnFailure" and ended.code != 0)


def pod_phase(policy: str, states: list[ContainerState], *, stopping: bool) -> str:
    """status.phase.

    Args:
        policy: restartPolicy.
        states: The main containers.
        stopping: True when nothing will be started again (the pod is being deleted or was stopped).
    """
    ended = [state.exit for state in states if state.exit is not None]
    if len(ended) == len(states) and (stopping or not any(will_restart(policy, one) for one in ended)):
        return "Failed" if any(one.code != 0 for one in ended) else "Succeeded"
    if all(state.waiting is not None and state.restarts == 0 for state in states):
        return "Pending"
    return "Running"


def pod_status(
    pod: JsonObject,
    states: list[ContainerState],
    init_states: list[ContainerState],
    *,
    phase: str,
    address: str,
    now: datetime,
) -> JsonObject:
    """The status to post. Transition times of unchanged conditions are kept; PodScheduled is left alone.

    Args:
        pod: The pod as last seen.
        states: Main containers.
        init_states: Init containers.
        phase: From `pod_phase`.
        address: hostIP and podIP.
        now: The machine's time.
    """
    stamp = objects.stamp(now)
    initialized = all(state.exit is not None and state.exit.code == 0 for state in init_states)
    ready = phase == "Running" and all(state.ready and state.running for state in states)
    unready = [state.name for state in states if not (state.ready and state.running)]
    why: JsonObject = {}
    if phase in objects.FINISHED_PHASES:
        why = {"reason": "PodCompleted" if phase == "Succeeded" else "PodFailed"}
    elif not ready:
        why = {"reason": "ContainersNotReady", "message": f"containers with unready status: [{' '.join(unready)}]"}
    texts: dict[str, tuple[bool, JsonObject]] = {
        "PodReadyToStartContainers": (phase == "Running", {}),
        "Initialized": (initialized, {} if initialized else {"reason": "ContainersNotInitialized"}),
        "ContainersReady": (ready, why),
        "Ready": (ready, why),
    }
    conditions = []
    for kind, (value, more) in texts.items():
        word = "True" if value else "False"
        known = objects.condition(pod, kind)
        moved = known.get("lastTransitionTime") if known is not None and known.get("status") == word else None
        conditions.append({"type": kind, "status": word, "lastTransitionTime": moved or stamp, **more})
    body: JsonObject = {
        "phase": phase,
        "conditions": conditions,
        "hostIP": address,
        "hostIPs": [{"ip": address}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": objects.status(pod).get("startTime") or stamp,
        "containerStatuses": [state.to_json() for state in states],
    }
    if init_states:
        body["initContainerStatuses"] = [state.to_json() for state in init_states]
    return body
