"""MinimalPodSpec: what a lifecycle Job runs."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from homelab_api.meta import JsonObject, KubeModel
from homelab_api.schema import (
    Bounds,
    DnsLabel,
    DnsSubdomain,
    LabelKey,
    Labels,
    LabelValue,
    ListKind,
    OneOf,
    Quantities,
    Rule,
    ShapeOf,
)


class EnvVar(KubeModel):
    """A plain environment variable. Secrets are mounted as files, never passed as environment (S11)."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.name.matches('^[A-Za-z_][A-Za-z0-9_]*$')",
            "not a name of an environment variable: use letters, digits and underscores",
            "'\"' + self.name + '\" is not a name of an environment variable: use letters, digits and underscores'",
        ),
    )

    name: Annotated[str, Bounds(min_length=1, max_length=128)]
    """Name of the variable."""
    value: Annotated[str, Bounds(max_length=32768)] = ""
    """Its value, as it is."""


class Volume(KubeModel):
    """A Secret or ConfigMap mounted read-only; exactly one of the two names is set."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.secretName) != has(self.configMapName)",
            "exactly one of secretName and configMapName must be set",
            "'volume \"' + self.name + '\" must set exactly one of secretName and configMapName'",
        ),
    )

    name: DnsLabel
    """Name of the volume in the pod."""
    mount_path: Annotated[
        str,
        Bounds(min_length=2, max_length=512),
        Rule(
            "self.startsWith('/') && !self.contains(':')",
            "not a path to mount at: begin with / and use no colon",
            "'\"' + self + '\" is not a path to mount at: begin with / and use no colon'",
        ),
    ]
    """Where its files appear, read-only."""
    secret_name: DnsSubdomain | None = None
    """The Secret to mount, in the slot's namespace."""
    config_map_name: DnsSubdomain | None = None
    """The ConfigMap to mount, in the slot's namespace."""


class Toleration(KubeModel):
    """A toleration of the Job's pod. It is passed on as it is."""

    key: LabelKey | None = None
    """The taint's key; none with operator Exists tolerates everything."""
    operator: Annotated[str | None, OneOf(("Exists", "Equal"))] = None
    """Exists, or Equal to compare `value` as well."""
    value: LabelValue | None = None
    """The taint's value."""
    effect: Annotated[str | None, OneOf(("NoSchedule", "PreferNoSchedule", "NoExecute"))] = None
    """The taint's effect; none for all."""
    toleration_seconds: int | None = None
    """How long a NoExecute taint is tolerated."""


class ResourceRequirements(KubeModel):
    """Requests and limits of the Job's container. They are passed on as they are."""

    requests: Quantities = Field(default_factory=dict)
    """What the container is promised."""
    limits: Quantities = Field(default_factory=dict)
    """What the container may use at most."""


Words = Annotated[
    list[Annotated[str, Bounds(max_length=32768)]],
    ListKind("atomic"),
    Bounds(max_items=128),
]


class MinimalPodSpec(KubeModel):
    """What a lifecycle Job runs: one container, and nothing that could reach beyond its purpose."""

    image: Annotated[
        str,
        Bounds(min_length=1, max_length=512),
        Rule(
            "!self.matches('[[:space:]]')",
            "not an image: use no spaces",
            "'\"' + self + '\" is not an image: use no spaces'",
        ),
    ]
    """The container's image."""
    command: Words = Field(default_factory=list)
    """The command, instead of the image's entrypoint."""
    args: Words = Field(default_factory=list)
    """Arguments of the command."""
    env: Annotated[list[EnvVar], ListKind("map", ("name",)), Bounds(max_items=64)] = Field(default_factory=list)
    """Environment variables; secrets belong into `volumes`."""
    volumes: Annotated[list[Volume], ListKind("map", ("name",)), Bounds(max_items=16)] = Field(default_factory=list)
    """Secrets and ConfigMaps to mount."""
    service_account: DnsSubdomain | None = None
    """Service account of the pod; by default one without rights and without a token."""
    ttl_seconds_after_finished: Annotated[int, Bounds(minimum=600, maximum=604800)] = 600
    """How long the finished Job is kept; at least 600, so that it outlives a restart of the manager."""
    timeout_seconds: Annotated[int, Bounds(minimum=1, maximum=86400)] = 300
    """How long the command may take. What exceeds 300 is added to the claim's deadline."""
    node_selector: Labels = Field(default_factory=dict)
    """Labels of the nodes that may run the pod."""
    tolerations: Annotated[
        list[Annotated[JsonObject, ShapeOf(Toleration)]], ListKind("atomic"), Bounds(max_items=32)
    ] = Field(default_factory=list)
    """Tolerations, besides those for control-plane nodes that every lifecycle pod has."""
    resources: Annotated[JsonObject | None, ShapeOf(ResourceRequirements)] = None
    """Requests and limits of the container."""
