"""Mutation detector: finds code that changed a cached object."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from homelab_autoscaler.runtime.cache.cache import Cache


class MutationError(AssertionError):
    """A cached object was changed by a reader."""


def check_mutations(cache: Cache) -> None:
    """Compare each decoded object with the bytes that it was decoded from. For tests: it decodes everything again.

    Models are frozen, but a list or a dict inside one is not.

    Raises:
        MutationError: naming the object and the fields at its top level that differ.
    """
    for informer in cache.informers():
        for key, model, raw in informer.store.decoded():
            fresh = informer.kind.from_json(orjson.loads(raw))
            if fresh != model:
                now, was = model.to_json(), fresh.to_json()
                fields = sorted(name for name in now.keys() | was.keys() if now.get(name) != was.get(name))
                raise MutationError(
                    f"{informer.kind.resource.kind} {key} was changed in the cache: {', '.join(fields)}"
                )
