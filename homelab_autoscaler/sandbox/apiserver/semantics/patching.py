"""PATCH: the four kinds of patches, made into objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from homelab_autoscaler.sandbox.apiserver.semantics import body as bodies
from homelab_autoscaler.sandbox.apiserver.semantics import incoming, json_patch, merge_patch, ownership, strategic_patch
from homelab_autoscaler.sandbox.apiserver.semantics.decode import DecodeError, json_type
from homelab_autoscaler.sandbox.apiserver.semantics.ownership import Manager, Owners
from homelab_autoscaler.sandbox.apiserver.semantics.typed import untyped
from homelab_autoscaler.sandbox.status import (
    ApiStatusError,
    Cause,
    bad_request,
    conflict,
    failure,
    invalid,
    invalid_value,
    not_found,
    unsupported_media_type,
)

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.apiserver.semantics.options import WriteOptions
    from homelab_autoscaler.sandbox.apiserver.semantics.plane import Call, Plane
    from homelab_autoscaler.sandbox.apiserver.semantics.resources import Resource
    from homelab_autoscaler.sandbox.apiserver.semantics.shape import Shape
    from homelab_autoscaler.sandbox.apiserver.semantics.writing import Make

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
APPLY_CBOR = "application/apply-patch+cbor"


def patch_type(call: Call) -> str:
    """The patch's media type.

    Raises:
        ApiStatusError: 415 for types that the resource does not take.
    """
    accepted = [JSON_PATCH, MERGE, APPLY] if call.resource.custom else [JSON_PATCH, MERGE, STRATEGIC, APPLY]
    kind = bodies.media_type(call.request.headers.get("content-type", ""))
    if kind not in accepted:
        raise unsupported_media_type(accepted)
    if len(call.request.body) > bodies.MAX_BYTES:
        raise bodies.too_large()
    return kind


def maker(call: Call, kind: str, options: WriteOptions) -> Make:
    """What turns the present object into the patched one.

    Raises:
        ApiStatusError: 400 for patches that do not parse.
    """
    patch = bodies.parse_json(call.request.body, "error decoding patch: ")
    if kind == JSON_PATCH and not isinstance(patch, list):
        raise bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type []jsonpatch.Operation"
        )
    if kind == JSON_PATCH and not all(isinstance(item, dict) for item in patch):
        raise bad_request("error decoding patch: json: cannot unmarshal into Go value of type jsonpatch.Operation")
    if kind != JSON_PATCH and not isinstance(patch, dict):
        raise bad_request(
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"
        )
    resource = call.resource

    def make(old: JsonObject | None) -> tuple[JsonObject, Owners | None]:
        if old is None:
            raise not_found(resource.plural, resource.group, call.target.name)
        patched = _patched(kind, old, patch, resource)
        shown = incoming.compact(patched)
        try:
            _check_frame(patched)
            if kind != STRATEGIC:
                _check_kind(call, patched, strict=options.field_validation == "Strict")
            return incoming.into_kind(call, patched, options.field_validation, []), None
        except incoming.UnknownFieldsError as error:
            raise _unfit(incoming.compact(patch), f"strict decoding error: {error}") from None
        except DecodeError as error:
            raise _unfit(shown, str(error)) from None

    return make


def _unfit(shown: str, why: str) -> ApiStatusError:
    """422 for a patched object that is none of its kind."""
    return invalid("", "", "", [Cause("FieldValueInvalid", f"Invalid value: {shown}: {why}", "patch")])


def _patched(kind: str, old: JsonObject, patch: Any, resource: Resource) -> JsonObject:
    try:
        if kind == JSON_PATCH:
            patched = json_patch.apply(old, patch)
        elif kind == MERGE:
            patched = merge_patch.merge(old, patch)
        else:
            patched = strategic_patch.apply(old, patch, resource.shape)
    except json_patch.JsonPatchError:
        raise failure(422, "Invalid", "the server rejected our request due to an error in our request", {}) from None
    except strategic_patch.ListItemError as error:
        raise failure(500, "", str(error), {}) from None
    except strategic_patch.StrategicPatchError as error:
        raise bad_request(str(error)) from None
    if not isinstance(patched, dict):
        raise failure(422, "Invalid", "the server rejected our request due to an error in our request", {})
    return patched


def _check_kind(call: Call, body: JsonObject, *, strict: bool) -> None:
    """A patch cannot make an object one of another kind; a strategic one has no say in it at all."""
    resource, kind, version = call.resource, body.get("kind") or "", body.get("apiVersion") or ""
    if not resource.custom:
        if not version and not strict:
            # An object of no version is decoded as nothing.
            incoming.check_name(call, {"metadata": {}})
        if kind not in {"", resource.kind} or version != resource.api_version:
            raise DecodeError(f'no kind "{kind}" is registered for version "{version}"')
        return
    if not kind or not version:
        raise DecodeError(f"Object '{'apiVersion' if kind else 'Kind'}' is missing")
    for field, value, wanted in (("kind", kind, resource.kind), ("apiVersion", version, resource.api_version)):
        if value != wanted:
            name = body["metadata"].get("name", "")
            group = resource.group if field == "kind" else ""
            raise invalid(str(kind), group, name, [invalid_value(field, value, f"must be {wanted}")])


def _check_frame(body: JsonObject) -> None:
    for field, kind, wanted in (
        ("apiVersion", str, "string"),
        ("kind", str, "string"),
        ("metadata", dict, "v1.ObjectMeta"),
    ):
        value = body.get(field)
        if value is not None and not isinstance(value, kind):
            raise DecodeError(
                f"json: cannot unmarshal {json_type(value)} into Go struct field .{field} of type {wanted}"
            )


def applier(call: Call, options: WriteOptions, plane: Plane) -> Make:
    """What makes the present object into what server-side apply wants.

    Raises:
        ApiStatusError: 400 for configurations that do not parse or carry managedFields.
    """
    resource = call.resource
    config = bodies.parse_yaml(call.request.body, "error decoding YAML: ")
    if not isinstance(config, dict):
        raise bad_request("error decoding YAML: an object is wanted")
    _check_config(call, config)
    meta = config["metadata"]
    subresource = call.target.subresource
    manager = Manager(options.field_manager, "Apply", subresource)
    ignored: list[tuple[str, ...]] = []
    if subresource == "status":
        ignored = [("f:spec",), ("f:metadata",)] if resource.custom else [("f:spec",)]
        config.pop("spec", None)
    elif resource.has_status:
        ignored = [("f:status",)]
        config.pop("status", None)

    def make(old: JsonObject | None) -> tuple[JsonObject, Owners | None]:
        if old is None:
            if subresource:
                raise not_found(resource.plural, resource.group, call.target.name)
            if meta.get("uid"):
                raise conflict(
                    resource.plural,
                    resource.group,
                    call.target.name,
                    f"uid mismatch: the provided object specified uid {meta['uid']}, and no existing object was found",
                )
            if meta.get("resourceVersion"):
                raise not_found(resource.plural, resource.group, call.target.name)
            owners: Owners = {}
        else:
            owners = ownership.read(old["metadata"])
            old["metadata"].pop("managedFields", None)
        wanted = _fit(call, config, resource.bare())
        _drop_system(wanted, meta)
        merged, owners = ownership.apply(
            old,
            wanted,
            resource.shape,
            owners,
            manager,
            resource.api_version,
            plane.now(),
            force=options.force,
            ignored=ignored,
        )
        return _fit(call, merged), owners

    return make


def _fit(call: Call, body: JsonObject, shape: Shape | None = None) -> JsonObject:
    """An object with exactly the fields of its kind; the body is left as it is."""
    try:
        return incoming.conformed(call.resource, _copy(body), [], shape)
    except DecodeError as error:
        raise _untyped(call, "", str(error)) from None


def _copy(config: JsonObject) -> JsonObject:
    """A copy that may be changed."""
    copied: JsonObject = bodies.parse_json(incoming.compact(config).encode(), "")
    return copied


def _drop_system(wanted: JsonObject, meta: JsonObject) -> None:
    for key in ("creationTimestamp", "generation", "deletionTimestamp", "selfLink", "managedFields"):
        wanted["metadata"].pop(key, None)
    if not meta.get("resourceVersion"):
        wanted["metadata"].pop("resourceVersion", None)


def _check_config(call: Call, config: JsonObject) -> None:
    resource = call.resource
    if not config.get("kind") or not config.get("apiVersion"):
        raise bad_request("invalid object type: apiVersion and kind must be set")
    incoming.check_kind(call, config)
    meta = config["metadata"] = {} if config.get("metadata") is None else config["metadata"]
    if not isinstance(meta, dict):
        raise _untyped(call, "", ".metadata: expected map")
    if not isinstance(meta.get("name", ""), str):
        raise _untyped(call, "", ".metadata.name: expected string")
    if meta.get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    meta.setdefault("name", call.target.name)
    if meta["name"] != call.target.name:
        raise bad_request(
            f"the name of the object ({meta['name']}) does not match the name on the URL ({call.target.name})"
        )
    where = f"{meta.get('namespace', '')}/{call.target.name}"
    problems = list(untyped(config, resource.bare(), ""))
    if problems:
        raise _untyped(call, where, "\n".join(problems))


def _untyped(call: Call, where: str, problems: str) -> ApiStatusError:
    """500, which is what a real server answers to a configuration that does not fit its schema."""
    resource = call.resource
    what = f"({where or '/'}; {resource.api_version}, Kind={resource.kind})"
    return failure(500, "", f"failed to create typed patch object {what}: {problems}")
