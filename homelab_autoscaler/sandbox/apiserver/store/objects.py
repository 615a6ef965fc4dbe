"""The two records that everything else is made of: an object at a revision, and a change between two of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import orjson

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject


_NO_LABELS: dict[str, str] = {}


class Key(NamedTuple):
    """Where an object lies inside its collection; the namespace of a cluster-scoped object is empty.

    Sorts as lists do: by namespace, then name.
    """

    namespace: str
    name: str


@dataclass(slots=True, eq=False)
class Stored:
    """One object at one revision, kept as the bytes that clients get.

    Bytes instead of dictionaries because they cannot be changed by accident, cost a fifth of the memory, and are what
    a reply needs anyway; parsing them again takes about 3 us for an object of 1 KB.
    """

    key: Key
    revision: int
    raw: bytes
    labels: dict[str, str]
    uid: str

    def load(self) -> JsonObject:
        """A copy of the object that the caller may change."""
        loaded: JsonObject = orjson.loads(self.raw)
        return loaded

    @classmethod
    def of(cls, key: Key, revision: int, body: JsonObject) -> Stored:
        """The record of an object; its metadata.resourceVersion must already be the revision."""
        metadata = body["metadata"]
        # The encoder hands out its buffer, which is several times too large to be kept: copy what is in it.
        raw = bytes(memoryview(orjson.dumps(body)))
        return cls(key, revision, raw, metadata.get("labels") or _NO_LABELS, metadata.get("uid", ""))


ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]


@dataclass(slots=True, eq=False)
class Change:
    """What one commit did to one object.

    `stored` is the state after an ADDED or MODIFIED, and for a DELETED the last state under the revision of the
    deletion. `previous` is the state before, if there was one: selectors need both to tell whether an object entered
    or left what a watcher sees, and snapshots are made by walking changes backwards.
    """

    revision: int
    type: ChangeType
    collection: str
    stored: Stored
    previous: Stored | None
    # Encoded watch lines by representation, shared between all watchers that want the same one.
    lines: dict[Any, bytes] = field(default_factory=dict)
