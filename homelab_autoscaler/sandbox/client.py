"""How parts of the sandbox talk to an API server: the embedded one in this process, or any other over HTTP.

Simulators and controllers are written against `ApiClient`, so that each of them also runs against a real
kube-apiserver.
"""

from __future__ import annotations

import base64
import ssl
import tempfile
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self

import aiohttp
import orjson

from homelab_autoscaler.sandbox.status import ApiStatusError, failure

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject

MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

Query = Mapping[str, str | int | bool | None]


class ConnectionLostError(ConnectionError):
    """No answer came. The request may or may not have been carried out: read back."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answered.

    Attributes:
        status: HTTP status.
        headers: in order; names may repeat.
        body: as it came.
    """

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def json(self) -> Any:
        """The body as JSON."""
        return orjson.loads(self.body)

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode(errors="replace")


def encode_query(query: Query | None) -> dict[str, list[str]]:
    """Query parameters as texts; None leaves a parameter out."""
    return {
        key: [str(value).lower() if isinstance(value, bool) else str(value)]
        for key, value in (query or {}).items()
        if value is not None
    }


class ApiClient(ABC):
    """An asynchronous client of one API server, as one user. Paths are URL paths such as `/api/v1/nodes/n1`."""

    @abstractmethod
    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Any = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send one request; errors come back as answers.

        Raises:
            ConnectionLostError: no answer came.
        """

    @abstractmethod
    def _stream(self, path: str, query: Query) -> AsyncIterator[bytes]:
        """The lines of a watch."""

    @staticmethod
    def raise_for(answer: Answer) -> NoReturn:
        """Raise the failure that an answer tells of.

        Raises:
            ApiStatusError: always.
        """
        try:
            status = answer.json()
        except orjson.JSONDecodeError:
            status = None
        if not isinstance(status, dict) or status.get("kind") != "Status" or "code" not in status:
            raise failure(answer.status, "", answer.text[:300])
        raise ApiStatusError(status)

    async def _object(self, method: str, path: str, **options: Any) -> JsonObject:
        answer = await self.request(method, path, **options)
        if answer.status >= 400:
            self.raise_for(answer)
        found: JsonObject = answer.json()
        return found

    async def get(self, path: str, **query: str | int | bool | None) -> JsonObject:
        """Read an object.

        Raises:
            ApiStatusError: whatever the server refuses with.
        """
        return await self._object("GET", path, query=query)

    async def list(self, path: str, **query: str | int | bool | None) -> JsonObject:
        """Read a list; items of built-in kinds come without kind and apiVersion.

        Raises:
            ApiStatusError: whatever the server refuses with.
        """
        return await self._object("GET", path, query=query)

    async def create(self, path: str, body: JsonObject, **query: str | int | bool | None) -> JsonObject:
        """POST to a collection or an action.

        Raises:
            ApiStatusError: whatever the server refuses with.
        """
        return await self._object("POST", path, body=body, query=query)

    async def update(self, path: str, body: JsonObject, **query: str | int | bool | None) -> JsonObject:
        """PUT an object.

        Raises:
            ApiStatusError: whatever the server refuses with.
        """
        return await self._object("PUT", path, body=body, query=query)

    async def patch(
        self, path: str, body: Any, content_type: str = MERGE_PATCH, **query: str | int | bool | None
    ) -> JsonObject:
        """Patch an object; merge patch unless told otherwise.

        Raises:
            ApiStatusError: whatever the server refuses with.
        """
        return await self._object("PATCH", path, body=body, content_type=content_type, query=query)

    async def delete(
        self, path: str, options: JsonObject | None = None, **query: str | int | bool | None
    ) -> JsonObject:
        """Delete an object or a collection; `options` is the body of DeleteOptions.

        Raises:
            ApiStatusError: whatever the server refuses with.
        """
        body = None if options is None else {"kind": "DeleteOptions", "apiVersion": "v1", **options}
        return await self._object("DELETE", path, body=body, query=query)

    async def watch(
        self, path: str, *, resource_version: str | None = None, query: Query | None = None
    ) -> AsyncIterator[JsonObject]:
        """The events of a collection: `{"type": …, "object": …}`.

        The stream ends when the server ends it; an ERROR event (410 after a gap) is yielded like any other. Close the
        iterator to stop early.

        Raises:
            ApiStatusError: the watch was refused.
            ConnectionLostError: the connection broke.
        """
        parameters: dict[str, str | int | bool | None] = {"watch": True, **(query or {})}
        if resource_version is not None:
            parameters["resourceVersion"] = resource_version
        lines = self._stream(path, parameters)
        try:
            async for line in lines:
                if line:
                    event: JsonObject = orjson.loads(line)
                    yield event
        finally:
            close = getattr(lines, "aclose", None)
            if close is not None:
                await close()


class HttpClient(ApiClient):
    """An ApiClient over HTTP, set up from a kubeconfig. Use as an asynchronous context manager, or call `close`."""

    def __init__(self, url: str, *, token: str = "", tls: ssl.SSLContext | None = None) -> None:
        self._url = url.rstrip("/")
        self._token = token
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    @classmethod
    def from_kubeconfig(cls, config: JsonObject) -> HttpClient:
        """A client for a kubeconfig's current context.

        Tokens, client certificates and CA data, inline or in files, are understood; exec plugins are not.

        Raises:
            ValueError: naming what the kubeconfig lacks.
        """
        contexts = {item["name"]: item["context"] for item in config.get("contexts") or []}
        current = config.get("current-context", "")
        if current not in contexts:
            raise ValueError(f"kubeconfig: current-context {current!r} is not among its contexts {sorted(contexts)}")
        clusters = {item["name"]: item["cluster"] for item in config.get("clusters") or []}
        users = {item["name"]: item.get("user") or {} for item in config.get("users") or []}
        name = contexts[current].get("cluster", "")
        if name not in clusters:
            raise ValueError(f"kubeconfig: context {current!r} names cluster {name!r}, which is not defined")
        cluster, user = clusters[name], users.get(contexts[current].get("user", ""), {})
        tls = _tls(cluster, user) if cluster.get("server", "").startswith("https") else None
        return cls(cluster["server"], token=user.get("token", ""), tls=tls)

    async def __aenter__(self) -> Self:
        """Nothing to open: connections are made when needed."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _connection(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(ssl=self._tls if self._tls is not None else True, limit=0)
            headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
            timeout = aiohttp.ClientTimeout(total=None, connect=10, sock_read=None)
            self._session = aiohttp.ClientSession(connector=connector, headers=headers, timeout=timeout)
        return self._session

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Any = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send one request; errors come back as answers.

        Raises:
            ConnectionLostError: no answer came within a minute, or the connection broke.
        """
        data = None if body is None else body if isinstance(body, bytes) else orjson.dumps(body)
        sent = {"Accept": accept, "User-Agent": "homelab-sandbox/1", **(headers or {})}
        if data is not None:
            sent["Content-Type"] = content_type
        parameters = [(key, value) for key, values in encode_query(query).items() for value in values]
        try:
            async with self._connection().request(
                method,
                self._url + path,
                params=parameters,
                data=data,
                headers=sent,
                timeout=aiohttp.ClientTimeout(total=60),
            ) as response:
                raw = await response.read()
                return Answer(response.status, tuple(response.headers.items()), raw)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ConnectionLostError(f"{method} {path}: {error!r}") from error

    async def _stream(self, path: str, query: Query) -> AsyncIterator[bytes]:
        parameters = [(key, value) for key, values in encode_query(query).items() for value in values]
        headers = {"Accept": "application/json", "User-Agent": "homelab-sandbox/1"}
        try:
            async with self._connection().get(self._url + path, params=parameters, headers=headers) as response:
                if response.status >= 400:
                    self.raise_for(Answer(response.status, tuple(response.headers.items()), await response.read()))
                rest = b""
                async for chunk in response.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        yield line
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ConnectionLostError(f"watch {path}: {error!r}") from error


def _tls(cluster: JsonObject, user: JsonObject) -> ssl.SSLContext:
    ca = _data(cluster, "certificate-authority")
    context = ssl.create_default_context(cadata=ca.decode() if ca else None)
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate, key = _data(user, "client-certificate"), _data(user, "client-key")
    if certificate and key:
        # The ssl module reads key pairs from files only.
        with tempfile.TemporaryDirectory() as folder:
            pair = Path(folder, "pair.pem")
            pair.touch(mode=0o600)
            pair.write_bytes(certificate + b"\n" + key)
            context.load_cert_chain(pair)
    return context


def _data(section: JsonObject, name: str) -> bytes:
    if section.get(f"{name}-data"):
        return base64.b64decode(section[f"{name}-data"])
    return Path(section[name]).read_bytes() if section.get(name) else b""
