"""What the server offers: classic and aggregated discovery, and its version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.apiserver.semantics.resources import Registry, Resource, Subresource

# The Kubernetes version whose behaviour this server follows. kubectl dispatchers pick their binary by it.
VERSION: JsonObject = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.2+sandbox",
    "gitCommit": "0000000000000000000000000000000000000000",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "none",
    "compiler": "cpython",
    "platform": "any",
}
# Groups in the order in which a real server lists them; later ones follow by name.
_GROUP_ORDER = [
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
]


class Discovery:
    """The documents of discovery, made from the registry when asked for."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._cache: dict[Any, JsonObject] = {}
        self._epoch = -1

    def _cached(self, key: Any, make: Any) -> JsonObject:
        if self._epoch != self._registry.epoch:
            self._cache.clear()
            self._epoch = self._registry.epoch
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]

    def _versions(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for group, version in self._registry.group_versions():
            if group:
                found.setdefault(group, []).append(version)
        rank = {name: index for index, name in enumerate(_GROUP_ORDER)}
        ordered = sorted(found, key=lambda name: (rank.get(name, len(rank)), name))
        return {name: sorted(found[name], key=_version_rank) for name in ordered}

    def api(self) -> JsonObject:
        """GET /api, classic."""
        return {
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}],
        }

    def apis(self) -> JsonObject:
        """GET /apis, classic."""
        return self._cached(
            "apis",
            lambda: {
                "kind": "APIGroupList",
                "apiVersion": "v1",
                "groups": [_group(name, versions) for name, versions in self._versions().items()],
            },
        )

    def group(self, name: str) -> JsonObject | None:
        """GET /apis/GROUP; None when there is no such group."""
        versions = self._versions().get(name)
        return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)} if versions else None

    def resources(self, group: str, version: str) -> JsonObject | None:
        """GET /api/v1 or /apis/GROUP/VERSION; None when there is no such version."""
        found = self._registry.group_versions().get((group, version))
        if found is None:
            return None
        listed: list[JsonObject] = []
        for resource in sorted(found, key=lambda item: item.plural):
            listed.append(_resource(resource))
            listed += [_subresource(resource, item) for item in resource.subresources.values()]
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": f"{group}/{version}" if group else version,
            "resources": listed,
        }

    def aggregated(self, version: str, *, core: bool) -> JsonObject:
        """GET /api or /apis as an APIGroupDiscoveryList."""
        return self._cached((version, core), lambda: self._aggregated(version, core=core))

    def _aggregated(self, version: str, *, core: bool) -> JsonObject:
        by_version = self._registry.group_versions()
        groups = {"": ["v1"]} if core else self._versions()
        items = []
        for name, versions in groups.items():
            metadata = {"name": name, "creationTimestamp": None} if name else {"creationTimestamp": None}
            listed = [
                {
                    "version": one,
                    "freshness": "Current",
                    "resources": [
                        _aggregated_resource(resource)
                        for resource in sorted(by_version[name, one], key=lambda item: item.plural)
                    ],
                }
                for one in versions
            ]
            items.append({"metadata": metadata, "versions": listed})
        return {
            "kind": "APIGroupDiscoveryList",
            "apiVersion": f"apidiscovery.k8s.io/{version}",
            "metadata": {},
            "items": items,
        }


def _version_rank(version: str) -> tuple[int, int, int, str]:
    """Stable versions first, then betas, then alphas; newer first."""
    for stage, word in ((1, "beta"), (2, "alpha")):
        if word in version:
            major, _, minor = version.removeprefix("v").partition(word)
            if major.isdigit():
                return (stage, -int(major), -int(minor or 0), "")
    major = version.removeprefix("v")
    return (0, -int(major), 0, "") if major.isdigit() else (3, 0, 0, version)


def _group(name: str, versions: list[str]) -> JsonObject:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _resource(resource: Resource) -> JsonObject:
    shown: JsonObject = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        shown["shortNames"] = list(resource.short_names)
    if resource.categories:
        shown["categories"] = list(resource.categories)
    return shown


def _subresource(resource: Resource, item: Subresource) -> JsonObject:
    shown: JsonObject = {
        "name": f"{resource.plural}/{item.name}",
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": item.kind,
        "verbs": list(item.verbs),
    }
    if item.group is not None:
        shown["group"] = item.group
        shown["version"] = item.version
    return shown


def _aggregated_resource(resource: Resource) -> JsonObject:
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    shown: JsonObject = {
        "resource": resource.plural,
        "responseKind": kind,
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        shown["shortNames"] = list(resource.short_names)
    if resource.categories:
        shown["categories"] = list(resource.categories)
    if resource.subresources:
        shown["subresources"] = [
            {
                "subresource": item.name,
                "responseKind": {
                    "group": resource.group if item.group is None else item.group,
                    "version": item.version or resource.version,
                    "kind": item.kind,
                },
                "verbs": list(item.verbs),
            }
            for item in resource.subresources.values()
        ]
    return shown
