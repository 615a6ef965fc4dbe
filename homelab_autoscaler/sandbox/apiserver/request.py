"""A request as the server sees it, however it arrived, and what comes back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from homelab_autoscaler.sandbox.status import bad_request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping


@dataclass(frozen=True, slots=True)
class User:
    """Who asks.

    Attributes:
        name: for example `system:admin`.
        groups: all groups, the virtual ones included.
        uid: empty unless the authenticator knows one.
        extra: more attributes, as impersonation can set them.
    """

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


ADMIN = User("system:admin", ("system:masters", "system:authenticated"))
ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))


@dataclass(slots=True)
class ApiRequest:
    """One request.

    Attributes:
        method: upper case.
        path: without the query, still percent-encoded.
        query: each parameter's values in order.
        headers: lower-case names; repeated headers are joined in `multi`.
        body: as it came.
        multi: headers that may be repeated (impersonation), lower-case names.
        user: set by the transport for calls from inside the process, else by authentication.
    """

    method: str
    path: str
    query: dict[str, list[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    multi: Mapping[str, list[str]] = field(default_factory=dict)
    user: User | None = None

    def parameter(self, name: str, default: str = "") -> str:
        """The first value of a query parameter."""
        values = self.query.get(name)
        return values[0] if values else default


@dataclass(slots=True)
class ApiResponse:
    """What is sent back.

    Attributes:
        status: HTTP status.
        body: the whole body, unless `stream` is set.
        content_type: of the body.
        headers: further headers; a name may occur more than once.
        stream: chunks of a watch or log, sent as they come; closing it ends the request.
        abort: close the connection instead of answering (an injected fault).
    """

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: list[tuple[str, str]] = field(default_factory=list)
    stream: AsyncIterator[bytes] | None = None
    abort: bool = False


class Target(NamedTuple):
    """What a resource path names.

    `namespace` is None on paths over all namespaces and for cluster-scoped resources. Empty strings mean absent.
    """

    group: str
    version: str
    namespace: str | None
    resource: str
    name: str
    subresource: str


def parse_target(path: str) -> Target | None:
    """Take a path under /api or /apis apart; None when it does not name a resource.

    Raises:
        ApiStatusError: 400 for percent-escapes that are no text.
    """
    parts = path.strip("/").split("/")
    try:
        parts = [unquote(part, errors="strict") if "%" in part else part for part in parts]
    except UnicodeDecodeError:
        raise bad_request("the path is not valid UTF-8") from None
    if parts[0] == "api" and len(parts) >= 3:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) >= 4:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace: str | None = None
    if (
        rest[0] == "namespaces"
        and len(rest) > 2
        and not (group == "" and rest[2] in {"status", "finalize"} and len(rest) == 3)
    ):
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3 or "" in rest:
        return None
    rest += [""] * (3 - len(rest))
    return Target(group, version, namespace, rest[0], rest[1], rest[2])
