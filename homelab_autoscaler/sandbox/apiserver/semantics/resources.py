"""A served resource: everything that handlers need to know about it, for custom and for built-in kinds alike."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from homelab_autoscaler.sandbox.apiserver.semantics.shape import Shape, without_defaults

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.apiserver.semantics.selectors import FieldGetter
    from homelab_autoscaler.sandbox.apiserver.semantics.structural import Schema
    from homelab_autoscaler.sandbox.status import Cause

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class Subresource:
    """A path below an object.

    Attributes:
        name: the last part of the path.
        kind: the kind of its bodies.
        group: group of that kind when it is not the resource's own.
        version: likewise.
        verbs: what can be done there.
    """

    name: str
    kind: str
    verbs: tuple[str, ...]
    group: str | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a Table.

    Attributes:
        name: the heading.
        type: string, integer, date …
        description: shown by tools on request.
        priority: 0 is always shown, greater with `-o wide`.
        format: `name` for the first column.
        cell: the cell of an object; gets the present instant for ages.
    """

    name: str
    type: str
    cell: Callable[[JsonObject, Any], Any]
    description: str = ""
    priority: int = 0
    format: str = ""


def _nothing(*_: Any) -> None:
    return None


def _no_problems(*_: Any) -> list[Cause]:
    return []


@dataclass(frozen=True, slots=True)
class Rules:
    """How a kind differs from the plainest one. Functions get parsed objects and may change the new one.

    Attributes:
        name_rule: subdomain, label or path.
        metadata_last: metadata is looked at only when everything else is in order.
        qualified_finalizers: finalizers of its own need a domain, as those of most built-in kinds do.
        generation: counts changes of everything but metadata and status.
        unconditional_update: PUT without resourceVersion is allowed.
        create_on_update: PUT of a missing object creates it.
        returns_deleted: DELETE answers the object even when it is gone.
        keeps_status_on_create: status of a POST is taken although there is a status subresource.
        collected: deletions may wait for the garbage collector; without it every deletion is a plain one.
        orphans_by_default: DELETE without a policy leaves dependents alone.
        prepare_create: sets defaults and system fields on a new object.
        prepare_update: same for an update; gets the new and the old object.
        default: sets defaults on every write, before the two above.
        validate: problems of a new or changed object.
        validate_update: problems of a change; gets new and old.
        validate_status: problems of a change through /status.
    """

    name_rule: str = "subdomain"
    metadata_last: bool = False
    qualified_finalizers: bool = True
    generation: bool = False
    unconditional_update: bool = True
    create_on_update: bool = False
    returns_deleted: bool = False
    keeps_status_on_create: bool = False
    collected: bool = True
    orphans_by_default: bool = False
    default: Callable[[JsonObject], None] = _nothing
    prepare_create: Callable[[JsonObject], None] = _nothing
    prepare_update: Callable[[JsonObject, JsonObject], None] = _nothing
    validate: Callable[[JsonObject], list[Cause]] = _no_problems
    validate_update: Callable[[JsonObject, JsonObject], list[Cause]] = _no_problems
    validate_status: Callable[[JsonObject, JsonObject], list[Cause]] = _no_problems


PLAIN = Rules()


@dataclass(eq=False, slots=True)
class Resource:
    """One resource in one API version.

    Attributes:
        collection: where its objects lie; versions of one resource share it.
        custom: defined by a CRD.
        shape: fields of the kind.
        schema: validation of a custom resource.
        select: fields that field selectors may name, besides metadata.name and metadata.namespace.
        columns: of its Tables, without the name.
        name_column: its Tables begin with the name; those of Events end with it.
        to_storage: turns an object of this version into the stored form, in place or anew.
        from_storage: the way back.
        deprecation: text of a Warning header on every request.
        storage_version: a custom resource's stored apiVersion.
    """

    group: str
    version: str
    plural: str
    singular: str
    kind: str
    namespaced: bool
    shape: Shape
    collection: str
    list_kind: str = ""
    custom: bool = False
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: Mapping[str, Subresource] = field(default_factory=dict)
    rules: Rules = PLAIN
    schema: Schema | None = None
    select: Mapping[str, FieldGetter] = field(default_factory=dict)
    columns: tuple[Column, ...] = ()
    name_column: bool = True
    to_storage: Callable[[JsonObject], JsonObject] | None = None
    from_storage: Callable[[JsonObject], JsonObject] | None = None
    deprecation: str = ""
    scale: JsonObject | None = None
    # The start of every stored object of a built-in kind; lists leave it out of their items.
    prefix: bytes = b""
    _bare: Shape | None = None

    def __post_init__(self) -> None:
        """Derive what follows from the rest."""
        self.list_kind = self.list_kind or f"{self.kind}List"
        self.prefix = f'{{"kind":"{self.kind}","apiVersion":"{self.api_version}",'.encode()

    @property
    def api_version(self) -> str:
        """As objects carry it: `v1`, `batch/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def has_status(self) -> bool:
        """Whether status is written through a path of its own."""
        return "status" in self.subresources

    def bare(self) -> Shape:
        """The shape without defaults; made at first use."""
        if self._bare is None:
            self._bare = without_defaults(self.shape)
        return self._bare

    def qualified(self) -> str:
        """`widgets.example.com`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


class Registry:
    """The resources that are served now."""

    def __init__(self) -> None:
        self._resources: dict[tuple[str, str, str], Resource] = {}
        # Discovery and OpenAPI are computed again when this has changed.
        self.epoch = 0

    def add(self, resource: Resource) -> None:
        """Serve a resource, in place of the one that has its path."""
        self._resources[resource.group, resource.version, resource.plural] = resource
        self.epoch += 1

    def remove(self, group: str, version: str, plural: str) -> None:
        """Serve a resource no longer."""
        if self._resources.pop((group, version, plural), None) is not None:
            self.epoch += 1

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """The resource at a path."""
        return self._resources.get((group, version, plural))

    def group_versions(self) -> dict[tuple[str, str], list[Resource]]:
        """All resources by group and version, in order of registration."""
        found: dict[tuple[str, str], list[Resource]] = {}
        for resource in self._resources.values():
            found.setdefault((resource.group, resource.version), []).append(resource)
        return found

    def all(self) -> list[Resource]:
        """Every served resource."""
        return list(self._resources.values())

    def of_kind(self, api_version: str, kind: str) -> Resource | None:
        """The resource of a kind, for references such as owners."""
        return next(
            (item for item in self._resources.values() if item.kind == kind and item.api_version == api_version), None
        )
