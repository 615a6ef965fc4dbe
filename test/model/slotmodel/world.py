"""Everything around the product: machine, kubelet, Job controller, garbage collector, node lifecycle, people, time.

A *step* is (label, state). `due` gives the one step that happens next when nothing is in anybody's way; the other
functions give what people and bad luck may do instead.
"""

from __future__ import annotations

from homelab_api import names
from homelab_api.v2alpha1 import ReclaimCondition

from . import rules
from .product import JOB_TTL, NODE_LAG, SETTINGS, WINDOW
from .stage import NAMESPACE, NODE, SLOT
from .state import LIMIT_RIVAL
from .stored import TICK, age_of, instant, store

PARTS = ("gc", "jobs", "pods", "kubelet", "nodes")
"""Parts of the world that can be slow: garbage collector, Job controller, scripts, kubelet, node lifecycle."""
OUTCOMES = ("works", "lies", "fails", "works, then fails")
"""What a script can do: the command and success, success alone, failure alone, the command and failure."""


class Broken(Exception):  # noqa: N818 - a result
    """A rule does not hold."""

    def __init__(self, rule, label):
        super().__init__(rule)
        self.rule = rule
        self.label = label


# --- objects ---------------------------------------------------------------------------------------------------------


def group():
    return store(
        "Group",
        {"metadata": {"name": "pool", "namespace": NAMESPACE, "uid": "pool", "resourceVersion": "1"}, "spec": {}},
    )


def slot(**annotations):
    return store(
        "Node",
        {
            "metadata": {
                "name": SLOT,
                "namespace": NAMESPACE,
                "uid": "slot",
                "resourceVersion": "1",
                "creationTimestamp": instant(99),
                "labels": {names.LABEL_GROUP: "pool"},
                "annotations": annotations,
                "finalizers": [names.FINALIZER_SLOT],
            },
            "spec": {
                "kubernetesNodeName": NODE,
                "startupPodSpec": {"image": "on"},
                "shutdownPodSpec": {"image": "off"},
            },
            "status": {},
        },
    )


def claim(name, **status):
    finalizers = status.pop("finalizers", [])
    return store(
        "NodeClaim",
        {
            "metadata": {
                "name": name,
                "namespace": NAMESPACE,
                "uid": name,
                "resourceVersion": "1",
                "creationTimestamp": instant(),
                "finalizers": finalizers,
            },
            "spec": {
                "slotRef": {"name": SLOT},
                "call": "IncreaseSize",
                "group": "pool",
                **({} if status.get("phase") == "ready" else {"deadlineAt": instant(-WINDOW)}),
            },
            "status": status,
        },
    )


def node(ready="True"):
    return store(
        "CoreNode",
        {
            "metadata": {
                "name": NODE,
                "uid": "node",
                "resourceVersion": "1",
                "creationTimestamp": instant(),
                "labels": {},
                "annotations": {},
            },
            "spec": {},
            "status": {"conditions": [_ready(ready)]},
        },
    )


def _ready(status):
    reason = {"True": "KubeletReady", "False": "KubeletNotReady", "Unknown": "NodeStatusUnknown"}[status]
    return {"type": "Ready", "status": status, "reason": reason}


def with_ready(entry, status):
    return store("CoreNode", {**entry.body, "status": {"conditions": [_ready(status)]}})


def _is_ready(entry):
    return entry.body["status"]["conditions"][0]["status"] == "True"


# --- what happens by itself ------------------------------------------------------------------------------------------


def due(state):
    """The next step of the world around the product, None if it has nothing to do."""
    for part, step in (("gc", _gc), ("jobs", _jobs), ("pods", _pods), ("kubelet", _kubelet), ("nodes", _nodes)):
        if part not in state.frozen:
            found = step(state)
            if found is not None:
                return found
    return _owner(state)


def _gc(state):
    if "pods" in state.frozen:
        return None  # nobody answers on the node where the pod runs
    jobs = {entry.uid for entry in state.all("Job")}
    for pod in state.all("Pod"):
        if pod.body["job"] not in jobs or "deletionTimestamp" in pod.body["metadata"]:
            return f"pod {pod.name} is gone", state.put(pod.key)
    return None


def _jobs(state):
    pods = {pod.body["job"]: pod for pod in state.all("Pod")}
    for job in state.all("Job"):
        model = job.model
        if model.suspended or model.finished:
            continue
        pod = pods.get(job.uid)
        started = job.body["status"].get("startTime")
        if started is None:
            after = store("Job", {**job.body, "status": {"startTime": instant()}})
            return f"Job {job.name} starts a pod", state.put(after, _pod(job))
        if pod is not None and "result" in pod.body:
            status = {**job.body["status"], **_ended(pod.body["result"])}
            return f"Job {job.name} ends: {pod.body['result']}", state.put(
                store("Job", {**job.body, "status": status}), pod.key
            )
        if age_of(started) >= SETTINGS.job_timeout / TICK:
            status = {**job.body["status"], **_ended("DeadlineExceeded")}
            changes = [store("Job", {**job.body, "status": status}), *([_terminating(pod)] if pod else [])]
            return f"Job {job.name} times out", state.put(*changes)
        if pod is None:
            status = {**job.body["status"], **_ended("Failed")}
            return f"Job {job.name} lost its pod", state.put(store("Job", {**job.body, "status": status}))
    return None


def _pod(job):
    return store(
        "Pod",
        {
            "metadata": {
                "name": f"{job.name}-pod",
                "namespace": NAMESPACE,
                "uid": f"{job.uid}-pod",
                "resourceVersion": "1",
                "labels": job.body["metadata"]["labels"],
                "ownerReferences": [job.model.owner_reference(controller=True).to_json()],
            },
            "status": {"phase": "Running"},
            "job": job.uid,
            "owner": rules.owner_uid(job.model),
        },
    )


def _terminating(pod):
    metadata = {**pod.body["metadata"], "deletionTimestamp": instant()}
    return store("Pod", {**pod.body, "metadata": metadata})


def _ended(result):
    if result == "Complete":
        return {"completionTime": instant(), "conditions": [{"type": "Complete", "status": "True"}]}
    reason = {"reason": "DeadlineExceeded"} if result == "DeadlineExceeded" else {}
    return {"conditions": [{"type": "Failed", "status": "True", "lastTransitionTime": instant(), **reason}]}


def _pods(state):
    for pod in state.all("Pod"):
        if "result" not in pod.body:
            return run_script(state, pod, "works")
    return None


def run_script(state, pod, outcome):
    """The script of a pod runs to its end."""
    kind = pod.body["metadata"]["labels"][names.LABEL_JOB_TYPE]
    label = f"pod {pod.name} runs: {outcome}"
    after = state.put(store("Pod", {**pod.body, "result": "Failed" if outcome.endswith("fails") else "Complete"}))
    if outcome.startswith("works"):
        broken = rules.at_command(state, pod)
        if broken:
            raise Broken(broken, label)
        after = switch(after, on=kind == names.JOB_TYPE_STARTUP)
    elif outcome == "lies" and kind == names.JOB_TYPE_SHUTDOWN:
        after = after._replace(lied=True)
    return label, after


def switch(state, *, on):
    """Press the power button."""
    if state.power == on:
        return state
    return state._replace(power=on, silent=0)


def _kubelet(state):
    if not state.power:
        return None
    present = state.find("CoreNode", NODE)
    if present is None:
        return "the node registers", state.put(node())
    if not _is_ready(present):
        return "the node is ready", state.put(with_ready(present, "True"))
    return None


def _nodes(state):
    present = state.find("CoreNode", NODE)
    if present is not None and _is_ready(present) and not state.power and state.silent >= NODE_LAG:
        return "the node turns Unknown", state.put(with_ready(present, "Unknown"))
    return None


def _owner(state):
    """The reclaim controller, as far as Jobs are concerned (model section 10)."""
    reclaim = state.find("NodeReclaim", SLOT)
    if reclaim is None:
        return None
    if reclaim.model.marked:
        return "the reclaim is over", state.put(reclaim.key)
    for job in state.all("Job"):
        if not job.model.finished:
            return f"the reclaim ends Job {job.name}", state.put(job.key)
    if state.all("Pod") or reclaim.model.status.conditions:
        return None
    status = {"phase": "Held", "conditions": [{"type": str(ReclaimCondition.JOBS_STOPPED), "status": "True"}]}
    return "JobsStopped", state.put(store("NodeReclaim", {**reclaim.body, "status": status}))


def tick(state):
    """Time passes."""
    broken = rules.at_tick(state)
    if broken:
        raise Broken(broken, "time passes")
    objects = []
    for entry in state.objects:
        later = entry.older
        if later.kind == "Job" and "jobs" not in state.frozen and _end_age(later) >= JOB_TTL:
            continue
        objects.append(later)
    memory = state.memory
    if memory:
        same, age, changed = memory
        alive = state.power and state.find("CoreNode", NODE) is not None
        memory = (same and not alive, min(2, age + 1), changed)
    suspended = state.suspended.older() if state.suspended else None
    return "time passes", state._replace(
        objects=tuple(objects),
        silent=0 if state.power else min(2, state.silent + 1),
        memory=memory,
        suspended=suspended,
        rival=None if state.rival_age + 1 >= LIMIT_RIVAL else state.rival,
        rival_age=state.rival_age + 1 if state.rival is not None and state.rival_age + 1 < LIMIT_RIVAL else 0,
    )


def _end_age(job):
    status = job.body["status"]
    for entry in status.get("conditions", ()):
        if entry["type"] == "Complete":
            return age_of(status["completionTime"])
        if entry["type"] == "Failed":
            return age_of(entry["lastTransitionTime"])
    return -1


# --- what people do --------------------------------------------------------------------------------------------------


def intents(state):
    """Changes of mind: new claims, deletes, the owner takes the machine and gives it back."""
    for name in ("a", "b"):
        found = state.find("NodeClaim", name)
        if found is None:
            if name not in state.made and (name == "a" or "a" in state.made):
                yield f"claim {name} is made", state.put(claim(name))._replace(made=state.made | {name})
        elif not found.model.marked and found.model.live:
            yield f"claim {name} is deleted", _deleted(state, found)
    reclaim = state.find("NodeReclaim", SLOT)
    if reclaim is None:
        if "reclaim" not in state.made:
            made = store(
                "NodeReclaim",
                {
                    "metadata": {"name": SLOT, "namespace": NAMESPACE, "uid": "reclaim", "resourceVersion": "1"},
                    "spec": {"slotRef": {"name": SLOT}},
                    "status": {},
                },
            )
            yield "the owner takes the machine", state.put(made)._replace(made=state.made | {"reclaim"})
    elif not reclaim.model.marked:
        metadata = {**reclaim.body["metadata"], "deletionTimestamp": instant(), "finalizers": [names.FINALIZER_RECLAIM]}
        status = {**reclaim.body["status"], "phase": "Returning"}
        yield (
            "the owner gives the machine back",
            state.put(store("NodeReclaim", {**reclaim.body, "metadata": metadata, "status": status})),
        )


def _deleted(state, found):
    metadata = found.body["metadata"]
    if not metadata["finalizers"]:
        return state.put(found.key)
    return state.put(store("NodeClaim", {**found.body, "metadata": {**metadata, "deletionTimestamp": instant()}}))


# --- what goes wrong -------------------------------------------------------------------------------------------------


def faults(state):
    """Bad luck around the product."""
    for part in PARTS:
        if part not in state.frozen:
            yield f"{part} get no turn", state._replace(frozen=state.frozen | {part})
    for pod in state.all("Pod"):
        if "result" not in pod.body:
            for outcome in OUTCOMES[1:]:
                yield run_script(state, pod, outcome)
    for job in state.all("Job"):
        yield f"somebody deletes Job {job.name}", state.put(job.key)
    present = state.find("CoreNode", NODE)
    if present is not None and _is_ready(present) and state.power:
        sick = state.put(with_ready(present, "False"))
        yield "the kubelet is alive but not ready", sick._replace(frozen=state.frozen | {"kubelet"})
    yield "somebody presses the power button", switch(state, on=not state.power)._replace(meddled=True)
    yield tick(state)


def reliefs(state):
    """What was slow gets its turn again; costs nothing."""
    for part in sorted(state.frozen):
        yield f"{part} get their turn", state._replace(frozen=state.frozen - {part})
