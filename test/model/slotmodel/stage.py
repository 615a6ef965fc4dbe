"""What the product sees: an API server, caches, a clock and a lease, all of one moment that the search chooses.

A pass of the product runs on the stage from its first read to its last write. It can be *cut*: after any number of its
API calls it is suspended, and later goes on against another world. A suspended pass is not kept as a frame but as its
view and the answers it got; to go on it is run again on those answers, at the times they were given, up to the point
where it stopped. The product is deterministic, so this is the same execution.
"""

from __future__ import annotations

from datetime import timedelta

from homelab_api import names
from homelab_autoscaler.runtime import (
    AlreadyExistsError,
    ConflictError,
    InvalidError,
    JsonPatch,
    MergePatch,
    NotFoundError,
)
from homelab_autoscaler.runtime.patch import merge

from .stored import KINDS, NOW, TICK, instant, store

NAMESPACE = "lab"
SLOT = "s"
NODE = "n"


class Cut(BaseException):
    """Ends a pass in its middle. Nothing of the product may catch it."""


class Call:
    """One API call of a pass.

    Attributes:
        verb, kind, name: for people.
        effect: (before, after) if it changed the world, else None.
        answer: Stored, tuple of Stored, None, or an exception.
    """

    __slots__ = ("answer", "effect", "kind", "name", "verb")

    def __init__(self, verb, kind, name, effect, answer):
        self.verb, self.kind, self.name, self.effect, self.answer = verb, kind, name, effect, answer

    def __str__(self):
        failed = f" -> {type(self.answer).__name__}" if isinstance(self.answer, Exception) else ""
        verb = self.verb if isinstance(self.verb, str) else f"patch {_summary(self.verb)}"
        return f"{verb} {self.kind}/{self.name}{failed}"


class Stage:
    """The present pass: its view, its world, what it did so far."""

    def __init__(self):
        self.on_write = lambda world, before, after: None
        self.clear()

    def clear(self):
        self.view = {}
        self.world = {}
        self.calls = []
        self.past = ()
        self.age = 0
        self.cut_before = None
        self.generation = 0
        self.monitoring = False
        self.taken_uids = frozenset()

    def begin(self, view, world, generation, *, past=(), age=0, cut_before=None, taken_uids=frozenset()):
        """Set the stage.

        Args:
            view: objects as the caches have them.
            world: objects as the API server has them.
            generation: lease transitions of the process.
            past: (answer, age) of the calls that were made before.
            age: ticks since the pass began.
            cut_before: index of the call before which the pass is cut.
            taken_uids: uids that somebody may still remember.
        """
        self.view = {entry.key: entry for entry in view}
        self.world = {entry.key: entry for entry in world}
        self.calls = []
        self.past = past
        self.age = age
        self.cut_before = cut_before
        self.generation = generation
        self.monitoring = False
        self.taken_uids = taken_uids

    @property
    def objects(self):
        return tuple(self.world[key] for key in sorted(self.world))

    # --- the mechanics of a call --------------------------------------------------------------------------------

    def call(self, verb, kind, name, act):
        index = len(self.calls)
        if index < len(self.past):
            (asked, answer), self.age = self.past[index]
            if asked != (kind, name):
                raise AssertionError(f"the pass is not the same as before: {asked} became {(kind, name)}")
            self.calls.append(Call(verb, kind, name, None, answer))
            if isinstance(answer, Exception):
                raise answer
            return answer
        if self.cut_before == index:
            raise Cut
        self.age = 0
        try:
            effect, answer = act()
        except (NotFoundError, ConflictError, InvalidError, AlreadyExistsError) as error:
            self.calls.append(Call(verb, kind, name, None, error))
            raise
        self.calls.append(Call(verb, kind, name, effect, answer))
        return answer

    def put(self, before, after):
        """Commit a change of one object; None for no object."""
        self.on_write(self.world, before, after)
        if after is None:
            del self.world[before.key]
        else:
            self.world[after.key] = after
        return (before, after)


class StageClock:
    """Now, as seen by the pass: earlier while it is run again on old answers."""

    def __init__(self, stage):
        self._stage = stage

    def now(self):
        return NOW - timedelta(seconds=TICK * self._stage.age)

    def monotonic(self):
        return -float(TICK * self._stage.age)

    def wait(self, condition, timeout):
        return False

    def sleep(self, seconds, stop=None):
        return False


class StageLeadership:
    """The lease as this process knows it."""

    def __init__(self, stage):
        self._stage = stage

    @property
    def identity(self):
        return f"m{self._stage.generation}"

    @property
    def transitions(self):
        return self._stage.generation

    def is_leader(self):
        return True


class StageLister:
    """A cache of one kind."""

    def __init__(self, stage, kind):
        self._stage = stage
        self._kind = kind

    def get(self, name, namespace=None):
        found = self._stage.view.get((self._kind, name))
        return found.model if found else None

    def list(self, namespace=None):
        return [entry.model for key, entry in sorted(self._stage.view.items()) if key[0] == self._kind]

    def index_values(self, index):
        return [slot.spec.kubernetes_node_name for slot in self.list()]

    def by_index(self, index, value):
        """There is one slot and one pool, so an index has one value."""
        return self.list()


class StageCache:
    def __init__(self, stage):
        self._stage = stage

    def informer(self, kind, **options):
        return None

    def lister(self, kind):
        return StageLister(self._stage, _kind(kind))


class Items:
    def __init__(self, items):
        self.items = items


def _kind(model):
    return model.__name__


class StageClient:
    """The API server: optimistic locking, uids, finalizers, merge and JSON patches, as far as the product uses them."""

    def __init__(self, stage):
        self._stage = stage

    # --- reads --------------------------------------------------------------------------------------------------

    def get(self, kind, name, namespace=None):
        def act():
            if kind.__name__ == "Lease":
                return None, self._lease(name)
            found = self._stage.world.get((_kind(kind), name))
            if found is None:
                raise NotFoundError(name, status=404)
            return None, found

        return self._stage.call("get", _kind(kind), name, act).model

    def _lease(self, name):
        node = self._stage.world.get(("CoreNode", name))
        if node is None:
            raise NotFoundError(name, status=404)
        return _LEASE

    def list(self, kind, namespace=None, *, label_selector=None, field_selector=None):
        def act():
            found = [entry for key, entry in sorted(self._stage.world.items()) if key[0] == _kind(kind)]
            if field_selector is not None and field_selector.startswith("spec.nodeName="):
                found = []  # pods on the machine's own node are not part of the model; claims all name the one slot
            if label_selector and "type in" in label_selector:
                wanted = label_selector.partition("type in (")[2].rstrip(")").split(",")
                found = [entry for entry in found if entry.body["metadata"]["labels"].get("type") in wanted]
            return None, tuple(found)

        return Items([entry.model for entry in self._stage.call("list", _kind(kind), "*", act)])

    # --- writes -------------------------------------------------------------------------------------------------

    def create_json(self, kind, body, namespace):
        name = body["metadata"]["name"]

        def act():
            if (_kind(kind), name) in self._stage.world:
                raise AlreadyExistsError(name, status=409)
            metadata = {
                **body["metadata"],
                "uid": self._uid(name),
                "resourceVersion": "1",
                "creationTimestamp": instant(),
            }
            after = store(_kind(kind), {**body, "metadata": metadata})
            return self._stage.put(None, after), after

        return self._stage.call("create", _kind(kind), name, act).model

    def create(self, obj):
        return self.create_json(type(obj), obj.to_json(), obj.namespace)

    def _uid(self, name):
        return next(uid for uid in (f"{name}~{n}" for n in range(99)) if uid not in self._stage.taken_uids)

    def patch(self, kind, name, namespace, patch, *, subresource=None):
        def act():
            before = self._stage.world.get((_kind(kind), name))
            if before is None:
                raise NotFoundError(name, status=404)
            body = _merged(before, patch) if isinstance(patch, MergePatch) else _json_patched(before, patch)
            return self._replace(before, body)

        return self._stage.call(patch, _kind(kind), name, act).model

    def patch_status(self, current, status, *, resource_version=None):
        if merge(current.to_json().get("status", {}), status) == current.to_json().get("status", {}):
            return current
        body = {"status": status}
        if resource_version is not None:
            body["metadata"] = {"resourceVersion": resource_version}
        return self.patch(
            type(current), current.name, current.metadata.namespace, MergePatch(body), subresource="status"
        )

    def _replace(self, before, body):
        after = store(before.kind, body)
        if after is before:
            return None, before
        after = after.at_version(before.version + 1)
        metadata = after.body["metadata"]
        if "deletionTimestamp" in metadata and not metadata.get("finalizers"):
            return self._stage.put(before, None), after
        return self._stage.put(before, after), after

    def delete(
        self, kind, name, namespace=None, *, uid=None, resource_version=None, propagation=None, grace_period=None
    ):
        def act():
            before = self._stage.world.get((_kind(kind), name))
            if before is None:
                raise NotFoundError(name, status=404)
            metadata = before.body["metadata"]
            if uid is not None and uid != metadata["uid"]:
                raise ConflictError(name, status=409)
            if resource_version is not None and resource_version != metadata["resourceVersion"]:
                raise ConflictError(name, status=409)
            lingers = metadata.get("finalizers") or (before.kind == "Pod" and grace_period != 0)
            if not lingers:
                return self._stage.put(before, None), None
            if "deletionTimestamp" in metadata:
                return None, None
            marked = {**before.body, "metadata": {**metadata, "deletionTimestamp": instant()}}
            after = store(before.kind, marked).at_version(before.version + 1)
            return self._stage.put(before, after), None

        self._stage.call("delete", _kind(kind), name, act)

    def evict(self, pod, *, grace_period=None):
        raise AssertionError("no pods to evict in this model")


_LEASE = store(
    "Lease",
    {"metadata": {"name": NODE, "namespace": names.NODE_LEASE_NAMESPACE, "uid": "lease", "resourceVersion": "1"}},
)


def _merged(before, patch):
    wanted = patch.body.get("metadata", {})
    metadata = before.body["metadata"]
    for field in ("resourceVersion", "uid"):
        if wanted.get(field) is not None and wanted[field] != metadata.get(field):
            raise ConflictError(f"{before.name}: {field}", status=409)
    return merge(before.body, patch.body)


def _json_patched(before, patch):
    body = orjson_copy(before.body)
    for operation in patch.body:
        *path, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        parent = body
        for part in path:
            parent = parent.get(part, {})
        match operation["op"]:
            case "test":
                if parent.get(last) != operation["value"]:
                    raise InvalidError(operation["path"], status=422)
            case "replace":
                if last not in parent:
                    raise InvalidError(operation["path"], status=422)
                parent[last] = operation["value"]
            case "remove":
                if last not in parent:
                    raise InvalidError(operation["path"], status=422)
                del parent[last]
    return body


def orjson_copy(body):
    """A deep copy of JSON."""
    if isinstance(body, dict):
        return {key: orjson_copy(value) for key, value in body.items()}
    if isinstance(body, list):
        return [orjson_copy(value) for value in body]
    return body


def _summary(patch):
    if isinstance(patch, JsonPatch):
        return "/".join(
            sorted({op["path"].rpartition("/")[2].rpartition("~1")[2] for op in patch.body if op["op"] != "test"})
        )
    parts = []
    for field, value in patch.body.items():
        if field == "metadata":
            parts += [key for key in value if key not in ("resourceVersion", "uid")]
        elif field == "status":
            parts.append(f"phase={value['phase']}" if "phase" in value else "status")
        else:
            parts.append(field)
    return "+".join(parts)


__all__ = ["KINDS", "NAMESPACE", "NODE", "SLOT", "Call", "Cut", "Stage", "StageCache", "StageClient", "StageClock"]
