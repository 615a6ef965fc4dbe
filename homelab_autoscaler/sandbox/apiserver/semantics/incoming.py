"""From a request's body to an object of the kind: identity checks, decoding, unknown fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from homelab_autoscaler.sandbox.apiserver.builtin.types import OBJECT_META
from homelab_autoscaler.sandbox.apiserver.semantics import body as bodies
from homelab_autoscaler.sandbox.apiserver.semantics.decode import DecodeError, decode, json_type
from homelab_autoscaler.sandbox.apiserver.semantics.structural import conform
from homelab_autoscaler.sandbox.status import (
    ApiStatusError,
    bad_request,
    invalid,
    invalid_value,
)

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.apiserver.semantics.plane import Call
    from homelab_autoscaler.sandbox.apiserver.semantics.resources import Resource
    from homelab_autoscaler.sandbox.apiserver.semantics.shape import Shape


class UnknownFieldsError(Exception):
    """Strict decoding found something; the caller knows how to say so."""


def read_object(call: Call, validation: str) -> JsonObject:
    """The object in the body of a create or an update.

    Raises:
        ApiStatusError: for bodies that cannot be read, are of another kind or version, or break strict decoding.
    """
    resource = call.resource
    request = call.request
    content_type = request.headers.get("content-type", "")
    body = bodies.parse_object(request.body, content_type, resource.kind)
    check_kind(call, body)
    duplicates: list[str] = []
    if validation != "Ignore" and bodies.media_type(content_type) in {"", bodies.JSON}:
        duplicates = bodies.duplicate_fields(request.body)
    try:
        return into_kind(call, body, validation, duplicates)
    except UnknownFieldsError as error:
        raise bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
            f"strict decoding error: {error}"
        ) from None
    except DecodeError as error:
        raise cannot_decode(resource, str(error)) from None


def check_kind(call: Call, body: JsonObject) -> None:
    """Refuse a body that says it is something else than the path takes.

    Raises:
        ApiStatusError: 400, or 422 for another kind of a custom group.
    """
    resource = call.resource
    kind, api_version = body.get("kind"), body.get("apiVersion")
    name = resource.kind
    for field, value in (("apiVersion", api_version), ("kind", kind)):
        if value is not None and not isinstance(value, str):
            raise bad_request(
                f"the object provided is unrecognized (must be of type {name}): couldn't get version/kind; json parse "
                f"error: json: cannot unmarshal {json_type(value)} into Go struct field .{field} of type string"
            )
    if resource.custom:
        if not kind or not api_version:
            what = "Kind" if not kind else "apiVersion"
            shown = call.request.body.decode(errors="replace")
            raise bad_request(
                f"the object provided is unrecognized (must be of type {name}): "
                f"Object '{what}' is missing in '{shown}' ({shown[:120]})"
            )
    elif kind and kind != name:
        raise bad_request(
            f'{kind} in version "{resource.version}" cannot be handled as a {name}: converting '
            f"(v1.{kind}) to ({resource.group.partition('.')[0] or 'core'}.{name}): unknown conversion"
        )
    if api_version and api_version != resource.api_version:
        for key in body:
            if key not in {"apiVersion", "kind", "metadata"}:
                call.warn(f'unknown field "{key}"')
        raise bad_request(
            f"the API version in the data ({api_version}) does not match the expected API version "
            f"({resource.api_version})"
        )
    if resource.custom and kind != name:
        metadata = body.get("metadata")
        object_name = metadata.get("name", "") if isinstance(metadata, dict) else ""
        raise invalid(str(kind), resource.group, object_name, [invalid_value("kind", kind, f"must be {name}")])


def check_name(call: Call, body: JsonObject) -> None:
    """Refuse a changed object that is not the one of the path.

    Raises:
        ApiStatusError: 400.
    """
    name, wanted = body["metadata"].get("name"), call.target.name
    if not name:
        raise bad_request(f"the name of the object ({wanted} based on URL) was undeterminable: name must be provided")
    if name != wanted:
        raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({wanted})")


def into_kind(call: Call, body: JsonObject, validation: str, duplicates: list[str]) -> JsonObject:
    """Decode, prune and set defaults.

    Args:
        call: for warnings.
        body: parsed JSON; changed in place.
        validation: Ignore, Warn or Strict.
        duplicates: paths of fields that were there twice.

    Raises:
        DecodeError: a value that the decoder refuses.
        UnknownFieldsError: in Strict.
    """
    resource = call.resource
    unknown: list[str] = []
    found = conformed(resource, body, unknown)
    problems = [f'unknown field "{path}"' for path in unknown] + [f'duplicate field "{path}"' for path in duplicates]
    if problems:
        if validation == "Strict":
            raise UnknownFieldsError(", ".join(problems))
        if validation == "Warn":
            for problem in problems:
                call.warn(problem)
    return found


def conformed(resource: Resource, body: JsonObject, unknown: list[str], shape: Shape | None = None) -> JsonObject:
    """An object with exactly the fields of its kind.

    Args:
        resource: the kind.
        body: parsed JSON; changed in place.
        unknown: gets the paths of the fields that were dropped.
        shape: used instead of the resource's own.

    Raises:
        DecodeError: a value that the decoder refuses.
    """
    shape = shape or resource.shape
    body.pop("kind", None)
    body.pop("apiVersion", None)
    if resource.custom:
        metadata = body.pop("metadata", None)
        metadata = decode({} if metadata is None else metadata, OBJECT_META, "metadata", unknown, "metadata")
        found = conform(body, shape, "", unknown)
    else:
        found = decode(body, shape, "", unknown)
        metadata = found.pop("metadata", {})
    return {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata, **found}


def cannot_decode(resource: Resource, problem: str) -> ApiStatusError:
    """400 in the words of a real server."""
    return bad_request(
        f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {problem}'
    )


def compact(body: JsonObject) -> str:
    """JSON for error messages."""
    return orjson.dumps(body).decode()
