"""Reflector: keeps a store equal to what the API server says, by list and watch.

One loop per kind and scope. Resource versions are opaque here: "go on from this one" is their only use.

| what happened | what follows |
|---|---|
| the watch ends by itself | watch again from the last version, no list |
| the watch cannot be opened: no answer, 429, 503, 504 | back off, watch again, no list |
| 429 or a broken connection in the stream | back off (429) or at once, watch again, no list |
| 410, when opening or as an ERROR item | back off, list at the last version |
| a watch or a bookmark shows that the server is behind us (restored from a backup) | back off, list without a version |
| the list answers 410 or "too large version" | list at once without a version (quorum read) |
| a watch shorter than a second without an event | back off, list: it is an error, or this would spin |
| silence beyond the inactivity limit | watch again from the last version |
| an item that is no object, or of another kind | counted and skipped |
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import orjson
import structlog

from homelab_autoscaler.runtime.cache.backoff import Backoff
from homelab_autoscaler.runtime.cache.store import compact, is_older, object_key, strip_managed_fields
from homelab_autoscaler.runtime.errors import (
    ApiError,
    BadRequestError,
    ForbiddenError,
    GoneError,
    InternalServerError,
    InvalidError,
    ServerTimeoutError,
    StallError,
    TooManyRequestsError,
    TransportError,
    UnavailableError,
    from_status,
    is_too_large_resource_version,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from homelab_api.meta import JsonObject, ResourceInfo
    from homelab_autoscaler.runtime.cache.listwatch import ListWatch, WatchEvent
    from homelab_autoscaler.runtime.clock import Clock
    from homelab_autoscaler.runtime.stop import StopSignal

PAGE_SIZE = 500
INITIAL_EVENTS_END = "k8s.io/initial-events-end"
_SHORT_WATCH = 1.0
_RETRIABLE_OPEN = (TransportError, TooManyRequestsError, UnavailableError, ServerTimeoutError)
_log = structlog.get_logger("homelab_autoscaler.runtime.reflector")


class Sink(Protocol):
    """Where a reflector puts what it learns; an informer is one. Called by the reflector's thread only."""

    def replace(self, keys: Collection[str], objects: Iterable[JsonObject], resource_version: str) -> None:
        """These objects are all there are, as of this version.

        `keys` are known at once; `objects`, in the same order, may be made while they are read.
        """
        ...

    def upsert(self, obj: JsonObject) -> None:
        """This object was added or changed."""
        ...

    def remove(self, obj: JsonObject) -> None:
        """This object is gone; here is its last state."""
        ...

    def bookmark(self, resource_version: str) -> None:
        """Nothing changed up to this version."""
        ...


@dataclass(frozen=True, slots=True)
class ReflectorOptions:
    """Numbers of a reflector.

    Attributes:
        watch_timeout: seconds a watch may last; each asks for a random one in [1, 2) times this.
        internal_error_retry: seconds for which a 500 in the stream is retried in place; 0 lists again at once.
        streaming_list: ask the server to stream the list (KEP-3157); falls back to a plain list by itself.
        page_size: objects per page of a plain list.
    """

    watch_timeout: float = 300.0
    internal_error_retry: float = 0.0
    streaming_list: bool = True
    page_size: int = PAGE_SIZE


class _ShortWatchError(Exception):
    """The server ended a watch at once and without a word."""


class Reflector:
    """Runs list and watch into a sink until it is stopped; never raises for what the server does.

    Args:
        source: where objects come from.
        sink: where they go.
        resource: the kind, to refuse foreign objects and to name things in logs.
        clock: for back-off and ages.
        options: numbers.
        on_error: told of each failure, once per back-off.
        rng: jitter.
    """

    def __init__(
        self,
        source: ListWatch,
        sink: Sink,
        resource: ResourceInfo,
        clock: Clock,
        *,
        options: ReflectorOptions | None = None,
        on_error: Callable[[Exception], None] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._source = source
        self.sink = sink
        self.resource = resource
        self._clock = clock
        self._options = options or ReflectorOptions()
        self._on_error = on_error
        self._rng = rng or random.Random()  # noqa: S311 - jitter needs no secrecy
        self._backoff = Backoff(clock, self._rng)
        self._version = ""
        self._version_unusable = False
        self._paginated = False
        self._streaming_list = self._options.streaming_list
        self._last_contact = clock.monotonic()
        self.skipped = 0
        """Items of the stream that were no objects of this kind."""

    @property
    def resource_version(self) -> str:
        """The last version that the sink has taken."""
        return self._version

    def advance(self, version: str) -> None:
        """The sink has taken everything up to this version. An older one, of a repeated event, is ignored."""
        if not is_older(version, self._version):
            self._version = version
            self._version_unusable = False

    def rebase(self, version: str) -> None:
        """A complete list as of this version was taken: it is our position, even if we were further."""
        self._version = version
        self._version_unusable = False

    def check_not_ahead(self, version: str) -> None:
        """A bookmark names the server's version: if it is older than ours, the server has lost what we know.

        Without this a watch from the future would stay silent until the server has caught up, without any error.

        Raises:
            GoneError: it is older.
        """
        if is_older(version, self._version):
            self._version_unusable = True
            raise GoneError(f"the server is at {version}, behind {self._version}: it went back", status=410)

    @property
    def silence(self) -> float:
        """Seconds since the server last said anything: the age of the store at worst."""
        return max(0.0, self._clock.monotonic() - self._last_contact)

    def run(self, stop: StopSignal) -> None:
        """List and watch until stopped."""
        while not stop.is_set():
            try:
                self._list_and_watch(stop)
            except Exception as error:  # noqa: BLE001 - a bug or a bad answer must not end the loop
                if stop.is_set():
                    return
                self._report(error)
            self._backoff.wait(stop)

    def _report(self, error: Exception) -> None:
        if isinstance(error, ApiError | _ShortWatchError):
            _log.warning("list or watch failed", resource=self.resource.group_resource, error=str(error))
        else:
            _log.error("list or watch broke", resource=self.resource.group_resource, exc_info=error)
        if self._on_error is not None:
            self._on_error(error)

    # --- list ---------------------------------------------------------------------------------------------

    def _list_and_watch(self, stop: StopSignal) -> None:
        if self._streaming_list:
            try:
                in_step = self._watch_once(stop, initial_events=True)
            except (BadRequestError, InvalidError, ForbiddenError) as error:
                # An older server, or a proxy that knows only lists: this will not get better.
                self._streaming_list = False
                _log.info("no streaming list", resource=self.resource.group_resource, error=str(error))
            except _StreamingListFailed as failure:
                if isinstance(failure.cause, StallError):
                    self._streaming_list = False
            else:
                if in_step:
                    self._watch_loop(stop)
                return
        if stop.is_set():
            return
        self._list()
        self._watch_loop(stop)

    def _relist_version(self) -> str:
        if self._version_unusable:
            return ""
        return self._version or "0"

    def _list(self) -> None:
        wanted = self._relist_version()
        try:
            items, version = self._list_pages(wanted)
        except ApiError as error:
            if not (isinstance(error, GoneError) or is_too_large_resource_version(error)):
                raise
            self._version_unusable = True
            items, version = self._list_pages("")
        self._last_contact = self._clock.monotonic()
        ours = [item for item in items if self.is_ours(item)]
        self.skipped += len(items) - len(ours)
        self.sink.replace([key_of(item) for item in ours], ours, version)
        self.rebase(version)

    def _list_pages(self, version: str) -> tuple[list[JsonObject], str]:
        # A concrete version is answered from the server's cache only when it is not paged.
        concrete = version not in {"", "0"}
        limit = 0 if concrete and not self._paginated else self._options.page_size
        items: list[JsonObject] = []
        token = ""
        while True:
            try:
                page = self._source.list(resource_version=version, limit=limit, continue_token=token)
            except GoneError:
                if not token:
                    raise
                page = self._source.list(resource_version=version, limit=0, continue_token="")
                return list(page.items), page.resource_version
            items.extend(page.items)
            token = page.continue_token
            if not token:
                return items, page.resource_version
            if version == "0":
                self._paginated = True

    # --- watch --------------------------------------------------------------------------------------------

    def _watch_loop(self, stop: StopSignal) -> None:
        """Watch again and again; returns when a list is needed."""
        internal_since: float | None = None
        while not stop.is_set():
            try:
                self._watch_once(stop, initial_events=False)
                internal_since = None
            except GoneError as error:
                self._report(error)
                return
            except _RETRIABLE_OPEN as error:
                if is_too_large_resource_version(error):
                    self._version_unusable = True
                    raise
                if not stop.is_set():
                    self._report(error)
                    self._backoff.wait(stop)
            except InternalServerError:
                now = self._clock.monotonic()
                internal_since = now if internal_since is None else internal_since
                if now - internal_since >= self._options.internal_error_retry:
                    raise
                self._backoff.wait(stop)

    def _watch_once(self, stop: StopSignal, *, initial_events: bool) -> bool:
        """One watch from open to end. True when the store is in step and a watch may go on from the last version."""
        version = self._relist_version() if initial_events else self._version
        if initial_events and version == "0":
            version = ""
        session = _Session(self, collecting={} if initial_events else None, synthetic=version in {"", "0"})
        try:
            self._run_session(session, version, stop)
        except (BadRequestError, InvalidError, ForbiddenError):
            raise
        except ApiError as error:
            if session.collecting is None:
                raise
            self._version_unusable = self._version_unusable or isinstance(error, GoneError)
            raise _StreamingListFailed(error) from error
        return not stop.is_set()

    def _run_session(self, session: _Session, version: str, stop: StopSignal) -> None:
        seconds = int(self._options.watch_timeout * (1 + self._rng.random()))
        watch = self._source.watch(
            resource_version=version, timeout_seconds=seconds, initial_events=session.collecting is not None
        )
        opened = self._clock.monotonic()
        self._last_contact = opened
        remove = stop.on_set(watch.close)
        try:
            for event in watch:
                self._last_contact = self._clock.monotonic()
                session.take(event)
        except TransportError as error:
            # The connection broke in the middle: like an end by the server, unless it was still the list.
            if session.collecting is not None:
                raise
            if not stop.is_set():
                self._report(error)
        finally:
            remove()
            watch.close()
        if stop.is_set():
            return
        if session.collecting is not None:
            raise TransportError("the stream ended before the list was complete")
        if session.events == 0 and self._clock.monotonic() - opened < _SHORT_WATCH:
            raise _ShortWatchError("the server ended the watch in under a second without an event")

    def is_ours(self, obj: JsonObject) -> bool:
        """Whether this is an object of the reflected kind with metadata (a Table, a Status or a stranger is not)."""
        metadata = obj.get("metadata")
        if not isinstance(metadata, dict) or not metadata.get("name"):
            return False
        return bool(obj.get("kind", self.resource.kind) == self.resource.kind)


def key_of(obj: JsonObject) -> str:
    """The store key of an object with metadata."""
    metadata = obj["metadata"]
    return object_key(metadata.get("namespace"), metadata["name"])


class _StreamingListFailed(Exception):  # noqa: N818 - a signal inside this module, not an error of the caller
    def __init__(self, cause: ApiError) -> None:
        super().__init__(str(cause))
        self.cause = cause


class _Session:
    """The items of one watch.

    `collecting` holds the objects of a streaming list, as bytes, until its closing bookmark. `synthetic` is true while
    a watch that began at no version sends what exists as ADDED in no order of versions: those do not move our position.
    """

    def __init__(self, reflector: Reflector, *, collecting: dict[str, bytes] | None, synthetic: bool) -> None:
        self._reflector = reflector
        self.collecting = collecting
        self._synthetic = synthetic
        self.events = 0

    def take(self, event: WatchEvent) -> None:
        """Act on one item; raises the ApiError of an ERROR item."""
        reflector = self._reflector
        sink = reflector.sink
        obj = event.object
        if event.type == "ERROR":
            raise from_status(obj)
        metadata = obj.get("metadata")
        version = metadata.get("resourceVersion", "") if isinstance(metadata, dict) else ""
        if event.type == "BOOKMARK":
            self._bookmark(metadata if isinstance(metadata, dict) else {}, version)
            return
        if event.type not in {"ADDED", "MODIFIED", "DELETED"} or not reflector.is_ours(obj):
            reflector.skipped += 1
            _log.warning("item skipped", resource=reflector.resource.group_resource, type=event.type)
            return
        self.events += 1
        if self.collecting is not None:
            key = key_of(obj)
            if event.type == "DELETED":
                self.collecting.pop(key, None)
            else:
                self.collecting[key] = compact(strip_managed_fields(obj))
            return
        if event.type == "DELETED":
            sink.remove(obj)
        else:
            sink.upsert(obj)
        if event.type != "ADDED":
            self._synthetic = False
        if version and not self._synthetic:
            reflector.advance(version)

    def _bookmark(self, metadata: JsonObject, version: str) -> None:
        reflector = self._reflector
        self.events += 1
        if not version:
            return
        if self.collecting is not None:
            if (metadata.get("annotations") or {}).get(INITIAL_EVENTS_END) != "true":
                return
            collected, self.collecting = self.collecting, None
            keys = list(collected)
            # Taken out one by one, so that the list and its copy in the store never exist side by side.
            reflector.sink.replace(keys, (orjson.loads(collected.pop(key)) for key in keys), version)
            reflector.rebase(version)
        else:
            reflector.check_not_ahead(version)
            reflector.sink.bookmark(version)
            reflector.advance(version)
        self._synthetic = False
