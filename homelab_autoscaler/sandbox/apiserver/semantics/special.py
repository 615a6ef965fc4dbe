"""Subresources that are actions or other views: scale, binding, eviction, finalize, log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from homelab_autoscaler.sandbox.apiserver.presentation.answers import answer
from homelab_autoscaler.sandbox.apiserver.presentation.jsonpath import find
from homelab_autoscaler.sandbox.apiserver.presentation.negotiate import negotiate
from homelab_autoscaler.sandbox.apiserver.request import ApiResponse
from homelab_autoscaler.sandbox.apiserver.semantics import body as bodies
from homelab_autoscaler.sandbox.apiserver.semantics import incoming, json_patch, merge_patch
from homelab_autoscaler.sandbox.apiserver.semantics.options import write_options
from homelab_autoscaler.sandbox.apiserver.semantics.patching import JSON_PATCH, patch_type
from homelab_autoscaler.sandbox.status import (
    bad_request,
    conflict,
    failure,
    invalid,
    invalid_value,
    not_found,
    stale,
    success,
)

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.apiserver.semantics.ownership import Owners
    from homelab_autoscaler.sandbox.apiserver.semantics.plane import Call, Plane
    from homelab_autoscaler.sandbox.apiserver.semantics.writing import Writer


class Special:
    """Handlers of subresources other than status."""

    def __init__(self, plane: Plane, writer: Writer) -> None:
        self._plane = plane
        self._writer = writer

    def _object(self, call: Call) -> JsonObject:
        stored = self._plane.collection(call.resource).get(call.key)
        if stored is None:
            raise not_found(call.resource.plural, call.resource.group, call.target.name)
        return self._plane.load(call.resource, stored)

    # Scale

    async def scale(self, call: Call) -> ApiResponse:
        """GET, PUT or PATCH of /scale, which shows and sets the replicas field that the resource names."""
        representation = negotiate(call.request.headers.get("accept", ""))
        body = self._object(call)
        if call.verb == "get":
            return answer(self._scale_of(call, body), 200, representation)
        options = write_options(call.request, "UpdateOptions" if call.verb == "update" else "PatchOptions")
        if call.verb == "update":
            wanted = bodies.parse_object(call.request.body, call.request.headers.get("content-type", ""), "Scale")
        else:
            kind = patch_type(call)
            patch = bodies.parse_json(call.request.body, "error decoding patch: ")
            current = self._scale_of(call, body)
            try:
                wanted = json_patch.apply(current, patch) if kind == JSON_PATCH else merge_patch.merge(current, patch)
            except json_patch.JsonPatchError:
                raise failure(
                    422, "Invalid", "the server rejected our request due to an error in our request", {}
                ) from None
        replicas = self._wanted_replicas(call, wanted, body)

        def make(old: JsonObject | None) -> tuple[JsonObject, Owners | None]:
            if old is None:
                raise not_found(call.resource.plural, call.resource.group, call.target.name)
            _set(old, call.resource.scale["specReplicasPath"], replicas)  # type: ignore[index]
            return old, None

        # The scale is a view of the object: it is the object itself that changes.
        changed, _ = await self._writer.change(call, make, options, patching=True)
        return answer(self._scale_of(call, changed), 200, representation)

    @staticmethod
    def _wanted_replicas(call: Call, wanted: Any, body: JsonObject) -> int:
        if not isinstance(wanted, dict) or wanted.get("kind", "Scale") != "Scale":
            raise bad_request("the body is no autoscaling/v1 Scale")
        version = (wanted.get("metadata") or {}).get("resourceVersion")
        if version and version != body["metadata"]["resourceVersion"]:
            raise stale(call.resource.plural, call.resource.group, call.target.name)
        replicas = (wanted.get("spec") or {}).get("replicas", 0)
        if isinstance(replicas, bool) or not isinstance(replicas, int):
            raise bad_request('Scale in version "v1" cannot be handled as a Scale: spec.replicas must be an integer')
        if replicas < 0:
            problem = invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")
            raise invalid("Scale", "autoscaling", call.target.name, [problem])
        return replicas

    @staticmethod
    def _scale_of(call: Call, body: JsonObject) -> JsonObject:
        paths = call.resource.scale or {}
        meta = body["metadata"]
        kept = {
            key: meta[key]
            for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
            if key in meta
        }
        status: JsonObject = {"replicas": _integer(find(body, paths["statusReplicasPath"]))}
        selector = find(body, paths["labelSelectorPath"]) if paths.get("labelSelectorPath") else []
        if selector and isinstance(selector[0], str):
            status["selector"] = selector[0]
        return {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": kept,
            "spec": {"replicas": _integer(find(body, paths["specReplicasPath"]))},
            "status": status,
        }

    # Binding

    async def bind(self, call: Call) -> ApiResponse:
        """POST of /binding: give a Pod its node, once."""
        options = write_options(call.request, "CreateOptions")
        binding = bodies.parse_object(call.request.body, call.request.headers.get("content-type", ""), "Binding")
        target = binding.get("target")
        node = target.get("name", "") if isinstance(target, dict) else ""
        if not node:
            raise invalid("Binding", "", call.target.name, [invalid_value("target.name", "", "must be a node's name")])
        name = (binding.get("metadata") or {}).get("name")
        if name and name != call.target.name:
            raise bad_request("name in URL does not match name in Binding object")
        now = self._plane.now()

        def make(old: JsonObject | None) -> tuple[JsonObject, Owners | None]:
            if old is None:
                raise not_found("pods", "", call.target.name)
            if old["spec"].get("nodeName"):
                raise conflict(
                    "pods/binding",
                    "",
                    call.target.name,
                    f'pod {call.target.name} is already assigned to node "{old["spec"]["nodeName"]}"',
                )
            if "deletionTimestamp" in old["metadata"]:
                raise conflict(
                    "pods/binding",
                    "",
                    call.target.name,
                    f"pod {call.target.name} is being deleted, cannot be assigned to a host",
                )
            old["spec"]["nodeName"] = node
            conditions = [item for item in old["status"].get("conditions") or [] if item["type"] != "PodScheduled"]
            conditions.append(
                {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
            )
            old["status"]["conditions"] = conditions
            return old, None

        await self._writer.change(call, make, options, patching=True)
        return answer(success(201), 201)

    # Finalize

    async def finalize(self, call: Call) -> ApiResponse:
        """PUT of a namespace's /finalize: the namespace controller's last word."""
        options = write_options(call.request, "UpdateOptions")
        body = incoming.read_object(call, options.field_validation)
        finalizers = (body.get("spec") or {}).get("finalizers") or []
        version = body["metadata"].get("resourceVersion")

        def make(old: JsonObject | None) -> tuple[JsonObject, Owners | None]:
            if old is None:
                raise not_found("namespaces", "", call.target.name)
            if version and version != old["metadata"]["resourceVersion"]:
                raise stale("namespaces", "", call.target.name)
            old["spec"] = {"finalizers": finalizers} if finalizers else {}
            return old, None

        changed, _ = await self._writer.change(call, make, options, patching=True)
        return answer(changed, 200)

    # Log

    async def log(self, call: Call) -> ApiResponse:
        """GET of a Pod's /log: text from whoever plays the kubelet."""
        pod = self._object(call)
        names = [item["name"] for field in ("containers", "initContainers") for item in pod["spec"].get(field) or []]
        container = call.request.parameter("container")
        if not container:
            if len(pod["spec"]["containers"]) > 1:
                raise bad_request(
                    f"a container name must be specified for pod {call.target.name}, choose one of: [{' '.join(names)}]"
                )
            container = names[0]
        if container not in names:
            raise bad_request(f"container {container} is not valid for pod {call.target.name}")
        if self._plane.log_provider is None:
            raise bad_request(
                f'container "{container}" in pod "{call.target.name}" is waiting to start: no kubelet runs it'
            )
        query = {key: values[0] for key, values in call.request.query.items() if values}
        stream = await self._plane.log_provider(pod, container, query)
        return ApiResponse(200, content_type="text/plain", stream=stream)


def _integer(values: list[Any]) -> int:
    value = values[0] if values else 0
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0


def _set(body: JsonObject, path: str, value: Any) -> None:
    *parents, last = path.strip(".").split(".")
    target = body
    for key in parents:
        target = target.setdefault(key, {})
    target[last] = value
