"""Which representation of an answer a client wants."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from homelab_autoscaler.sandbox.status import not_acceptable


class Representation(NamedTuple):
    """How a body is written.

    Attributes:
        format: json or yaml.
        form: empty for the object itself, else Table, PartialObjectMetadata or PartialObjectMetadataList.
    """

    format: str = "json"
    form: str = ""

    @property
    def content_type(self) -> str:
        """For the header."""
        return "application/yaml" if self.format == "yaml" else "application/json"


PLAIN = Representation()
_FORMS = {"Table", "PartialObjectMetadata", "PartialObjectMetadataList"}
_JSON = {"application/json", "*/*", "application/*", ""}


@lru_cache(maxsize=256)
def negotiate(accept: str) -> Representation:
    """The first entry of an Accept header that can be served. Quality values are not weighed: clients list in order.

    Raises:
        ApiStatusError: 406 when there is none.
    """
    if not accept:
        return PLAIN
    for entry in accept.split(","):
        kind, *parameters = (part.strip() for part in entry.split(";"))
        named = dict(part.split("=", 1) for part in parameters if "=" in part)
        form = named.get("as", "")
        if form and (form not in _FORMS or named.get("g") != "meta.k8s.io" or named.get("v") not in {"v1", "v1beta1"}):
            continue
        if kind in _JSON:
            return Representation("json", form)
        if kind == "application/yaml":
            return Representation("yaml", form)
    raise not_acceptable()


@lru_cache(maxsize=256)
def wants_aggregated_discovery(accept: str) -> str:
    """The version of aggregated discovery that comes first in an Accept header; empty for the classic documents."""
    for entry in accept.split(","):
        kind, *parameters = (part.strip() for part in entry.split(";"))
        named = dict(part.split("=", 1) for part in parameters if "=" in part)
        if named.get("g") == "apidiscovery.k8s.io" and named.get("as") == "APIGroupDiscoveryList":
            if named.get("v") in {"v2", "v2beta1"}:
                return named["v"]
            continue
        if kind in _JSON:
            return ""
    return ""
