"""What every Kubernetes object has: metadata, conditions, times, durations, and the base of all models.

Models are frozen: an object that was read is evidence and is never edited in place. JSON names are camelCase
(aliases), Python names snake_case. Unknown fields of a *read* object are ignored, so that a newer server or a
newer version of a kind does not break an older manager; what may be *written* is checked by the CRD schema.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Annotated, Any, ClassVar, Self, TypeAlias, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer
from pydantic.alias_generators import to_camel

from homelab_api.schema import Bounds, ListKind, OneOf, Rule

# JSON as it travels. Any is right here: the wire is untyped until a model has read it.
JsonObject: TypeAlias = dict[str, Any]

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?|\.\d+)(ns|us|µs|ms|h|m|s)")
DURATION_PATTERN = r"^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$"
QUANTITY_PATTERN = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)


def parse_duration(text: str) -> timedelta:
    """Read a Go duration string such as `12m10s`.

    Raises:
        ValueError: naming the text and the accepted form; a bare number has no unit and is refused.
    """
    parts = _DURATION_PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f'duration "{text}" is not understood: write a number with a unit, like "90s" or "12m10s"')
    try:
        return timedelta(seconds=sum(float(number) * _UNITS[unit] for number, unit in parts))
    except OverflowError as error:
        raise ValueError(f'duration "{text}" is longer than can be waited for') from error


def format_duration(value: timedelta) -> str:
    """Write a duration the way Go does: `12m10s`, `1h0m0s`, `0s`, `1.5s`."""
    seconds = value.total_seconds()
    if seconds < 0:
        return "-" + format_duration(-value)
    whole, fraction = divmod(seconds, 1)
    hours, rest = divmod(int(whole), 3600)
    minutes, secs = divmod(rest, 60)
    tail = f"{secs + fraction:.6f}".rstrip("0").rstrip(".") + "s"
    if hours:
        return f"{hours}h{minutes}m{tail}"
    return f"{minutes}m{tail}" if minutes else tail


def _read_duration(value: object) -> object:
    if isinstance(value, int | float):
        raise ValueError(f'duration {value} has no unit: write "{value}s" for seconds')  # noqa: TRY004 - pydantic's
    return parse_duration(value) if isinstance(value, str) else value


Duration = Annotated[
    timedelta,
    BeforeValidator(_read_duration),
    PlainSerializer(format_duration, return_type=str, when_used="always"),
]


def format_time(value: datetime) -> str:
    """RFC 3339 in UTC; fractions only when there are some, so that whole seconds look as Kubernetes writes them."""
    utc = value.astimezone(UTC).replace(tzinfo=None)
    return utc.isoformat(timespec="microseconds" if utc.microsecond else "seconds") + "Z"


def format_micro_time(value: datetime) -> str:
    """RFC 3339 with exactly six fraction digits: Leases refuse anything else."""
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


Time = Annotated[datetime, PlainSerializer(format_time, return_type=str, when_used="always")]
MicroTime = Annotated[datetime, PlainSerializer(format_micro_time, return_type=str, when_used="always")]


class KubeModel(BaseModel):
    """Base of every model: frozen, camelCase on the wire, unknown fields ignored when read."""

    model_config = ConfigDict(
        frozen=True,
        alias_generator=to_camel,
        populate_by_name=True,
        extra="ignore",
        ser_json_timedelta="float",
    )

    rules: ClassVar[tuple[Rule, ...]] = ()
    """Rules of the CRD schema about the object as a whole; not enforced when it is read."""

    def slimmed(self) -> Self:
        """The same model, in a good half of its memory; for one that is kept for long.

        Pydantic notes on each model, in a set of its own, which fields the input had. Nobody here asks for that
        (what is written leaves out None, not what was unset), so the model and all models in it share one empty set.
        """
        _FIELDS_SET.__set__(self, _NO_FIELDS)
        for name in _model_fields(type(self)):
            value = getattr(self, name)
            if isinstance(value, KubeModel):
                value.slimmed()
            elif value:
                for entry in value:
                    entry.slimmed()
        return self

    def to_json(self) -> JsonObject:
        """The object as JSON values, without unset optional fields (None is left out)."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def to_replacement(self) -> JsonObject:
        """The object as JSON values with a null for each unset field.

        In a merge patch it takes the place of the whole object that was there: what is unset now is gone. With
        `to_json` a field of the object before would stay, and be read as one of the new.
        """
        return self.model_dump(mode="json", by_alias=True)


_NO_FIELDS: set[str] = set()
_FIELDS_SET: Any = BaseModel.__dict__["__pydantic_fields_set__"]  # a slot: assigned directly, past frozen


@cache
def _model_fields(kind: type[KubeModel]) -> tuple[str, ...]:
    """The fields of a model that hold a model or a list of models."""
    return tuple(name for name, entry in kind.model_fields.items() if _holds_models(entry.annotation))


def _holds_models(annotation: Any) -> bool:
    parts = get_args(annotation)
    return (
        any(map(_holds_models, parts)) if parts else isinstance(annotation, type) and issubclass(annotation, KubeModel)
    )


class OwnerReference(KubeModel):
    """A reference from a dependant to an object that owns it; garbage collection follows `uid`."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(KubeModel):
    """metadata of any object. Server-set fields are empty on objects that were never stored."""

    name: str = ""
    namespace: str | None = None
    generate_name: str | None = None
    uid: str = ""
    resource_version: str = ""
    generation: int | None = None
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    finalizers: list[str] = Field(default_factory=list)
    owner_references: list[OwnerReference] = Field(default_factory=list)

    def controller_owner(self) -> OwnerReference | None:
        """The owner that manages this object, if one is marked so."""
        return next((owner for owner in self.owner_references if owner.controller), None)


class Condition(KubeModel):
    """One entry of status.conditions; merged by `type`, its transition time moves only with `status`."""

    type: Annotated[str, Bounds(min_length=1, max_length=316)]
    """What the condition is about."""
    status: Annotated[str, OneOf(("True", "False", "Unknown"))] = Field(pattern="^(True|False|Unknown)$")
    """True, False or Unknown."""
    reason: Annotated[str, Bounds(max_length=1024)] = ""
    """Why, in one word that a program may match on."""
    message: Annotated[str, Bounds(max_length=32768)] = ""
    """Why, in words, with names and numbers."""
    last_transition_time: Time | None = None
    """When `status` last changed."""
    observed_generation: int | None = None
    """The generation of the spec that the condition is about."""


Conditions = Annotated[list[Condition], ListKind("map", ("type",)), Bounds(max_items=32)]


@dataclass(frozen=True, slots=True)
class ResourceInfo:
    """How a kind is reached over the API: group ("" for core), version, kind, plural and scope."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """`group/version`, or `version` alone for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_resource(self) -> str:
        """`plural.group`, as error messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


class KubeObject(KubeModel):
    """Base of every kind. `resource` says where it lives; `metadata` identifies one object."""

    resource: ClassVar[ResourceInfo]

    metadata: ObjectMeta = Field(default_factory=ObjectMeta)

    @property
    def name(self) -> str:
        """metadata.name."""
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """metadata.namespace, "" for cluster-scoped objects."""
        return self.metadata.namespace or ""

    @property
    def uid(self) -> str:
        """metadata.uid: the identity of this object; a name alone never is."""
        return self.metadata.uid

    @property
    def marked(self) -> bool:
        """True while the object is being deleted (deletionTimestamp set)."""
        return self.metadata.deletion_timestamp is not None

    def to_json(self) -> JsonObject:
        """As KubeModel.to_json, with apiVersion and kind, and without empty metadata."""
        body = super().to_json()
        metadata = {key: value for key, value in body.get("metadata", {}).items() if value not in ("", {}, [])}
        return {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            **body,
            "metadata": metadata,
        }

    def owner_reference(self, *, controller: bool = False, block_owner_deletion: bool = False) -> OwnerReference:
        """A reference to this object for a dependant's metadata."""
        return OwnerReference(
            api_version=self.resource.api_version,
            kind=self.resource.kind,
            name=self.name,
            uid=self.uid,
            controller=controller or None,
            block_owner_deletion=block_owner_deletion or None,
        )

    @classmethod
    def from_json(cls, body: JsonObject) -> Self:
        """Read one object as the API server sent it.

        Raises:
            pydantic.ValidationError: when a field has another type than this kind says.
        """
        return cls.model_validate(body)
