"""CustomResourceDefinitions come to life: served resources, status conditions, cleaning up after a deletion.

Works on the store's own changes, so it is right after a restart as well. Everything happens in the commit's own step:
when the answer to a create has been sent, the resource is served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from homelab_autoscaler.sandbox.apiserver.presentation.jsonpath import find
from homelab_autoscaler.sandbox.apiserver.presentation.tables import columns_of_crd
from homelab_autoscaler.sandbox.apiserver.semantics.deleting import CRD_FINALIZER
from homelab_autoscaler.sandbox.apiserver.semantics.resources import Resource, Rules, Subresource
from homelab_autoscaler.sandbox.apiserver.semantics.structural import Schema, conform
from homelab_autoscaler.sandbox.apiserver.store import Change, Key, Stored

if TYPE_CHECKING:
    from collections.abc import Callable

    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.apiserver.semantics.plane import Plane
    from homelab_autoscaler.sandbox.apiserver.semantics.selectors import FieldGetter

CRDS = "apiextensions.k8s.io/customresourcedefinitions"
_STATUS_VERBS = ("get", "patch", "update")
_RULES = Rules(generation=True, unconditional_update=False)


class CustomResources:
    """Keeps the served custom resources in step with the stored definitions."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        # By definition name: what it has put into the registry, and where its objects lie.
        self._served: dict[str, list[tuple[str, str, str]]] = {}
        self._specs: dict[str, JsonObject] = {}
        self._collections: dict[str, str] = {}

    def start(self) -> None:
        """Serve what is stored, and follow changes from now on."""
        for stored in self._plane.store.collection(CRDS).items():
            self._serve(stored.load())
        self._plane.store.listeners.append(self.changed)

    def changed(self, change: Change) -> None:
        """React to a commit."""
        if change.collection == CRDS:
            body = change.stored.load()
            if change.type == "DELETED":
                self._withdraw(body["metadata"]["name"])
                return
            self._serve(body)
            if "deletionTimestamp" in body["metadata"]:
                self._clean_up(body)
            else:
                self._establish(body)
        elif change.type == "DELETED" and change.collection in self._collections:
            stored = self._plane.store.collection(CRDS).get(Key("", self._collections[change.collection]))
            if stored is not None:
                body = stored.load()
                if "deletionTimestamp" in body["metadata"]:
                    self._clean_up(body)

    def _establish(self, body: JsonObject) -> None:
        """Accept the names and say that the resource is served; commits only if that is news."""
        spec, status = body["spec"], body.get("status") or {}
        now = self._plane.now()
        names = {key: value for key, value in spec["names"].items() if value not in (None, [], "")}
        wanted = [
            ("NamesAccepted", "NoConflicts", "no conflicts found"),
            ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ]
        conditions = status.get("conditions") or []
        held = {item["type"]: item["status"] for item in conditions}
        stored_versions = list(status.get("storedVersions") or [])
        storage = next(item["name"] for item in spec["versions"] if item["storage"])
        if storage not in stored_versions:
            stored_versions.append(storage)
        if (
            all(held.get(kind) == "True" for kind, _, _ in wanted)
            and status.get("acceptedNames") == names
            and stored_versions == status.get("storedVersions")
        ):
            return
        for kind, reason, message in wanted:
            if held.get(kind) != "True":
                conditions = [item for item in conditions if item["type"] != kind]
                conditions.append(
                    {
                        "type": kind,
                        "status": "True",
                        "lastTransitionTime": now,
                        "reason": reason,
                        "message": message,
                    }
                )
        body["status"] = {
            **status,
            "conditions": conditions,
            "acceptedNames": names,
            "storedVersions": stored_versions,
        }
        self._plane.store.put(CRDS, Key("", body["metadata"]["name"]), body)

    def _clean_up(self, body: JsonObject) -> None:
        """Delete the objects of a definition that is on its way out; drop the finalizer once none is left."""
        meta = body["metadata"]
        if CRD_FINALIZER not in (meta.get("finalizers") or []):
            return
        spec = body["spec"]
        name = f"{spec['group']}/{spec['names']['plural']}"
        collection = self._plane.store.collection(name)
        for stored in collection.items():
            if collection.get(stored.key) is None:
                continue  # what went first came back here through `changed` and took this one along
            item = stored.load()
            item_meta = item["metadata"]
            if not item_meta.get("finalizers"):
                # The last one of these comes back here through `changed` and finishes the job.
                self._plane.store.delete(name, stored.key)
            elif "deletionTimestamp" not in item_meta:
                item_meta["deletionTimestamp"] = self._plane.now()
                item_meta["deletionGracePeriodSeconds"] = 0
                item_meta["generation"] = item_meta.get("generation", 0) + 1
                self._plane.store.put(name, stored.key, item)
        key = Key("", meta["name"])
        present = self._plane.store.collection(CRDS).get(key)
        if len(collection) or present is None:
            return
        last = present.load()
        rest = [item for item in last["metadata"].get("finalizers") or [] if item != CRD_FINALIZER]
        if rest:
            last["metadata"]["finalizers"] = rest
            self._plane.store.put(CRDS, key, last)
        else:
            last["metadata"].pop("finalizers", None)
            self._plane.store.delete(CRDS, key, last)

    def _withdraw(self, name: str) -> None:
        for path in self._served.pop(name, ()):
            self._plane.registry.remove(*path)
        self._specs.pop(name, None)
        for collection, owner in list(self._collections.items()):
            if owner == name:
                del self._collections[collection]

    def _serve(self, body: JsonObject) -> None:
        name, spec = body["metadata"]["name"], body["spec"]
        before = self._specs.get(name)
        if before == spec:
            return
        self._withdraw(name)
        self._specs[name] = spec
        collection = f"{spec['group']}/{spec['names']['plural']}"
        self._collections[collection] = name
        storage = next(item for item in spec["versions"] if item["storage"])
        paths = []
        for version in spec["versions"]:
            if version.get("served"):
                resource = custom_resource(spec, version, storage, collection)
                self._plane.registry.add(resource)
                paths.append((resource.group, resource.version, resource.plural))
                if version is storage and before is not None:
                    self._gain_defaults(resource)
        self._served[name] = paths

    def _gain_defaults(self, resource: Resource) -> None:
        """Objects that are older than a default show it when they are read, under their old revision."""
        collection = self._plane.store.collection(resource.collection)
        for stored in collection.items():
            body = stored.load()
            metadata = body.pop("metadata")
            found = conform(body, resource.shape, "", [])
            found = {"kind": found.pop("kind"), "apiVersion": found.pop("apiVersion"), "metadata": metadata, **found}
            collection.place(Stored.of(stored.key, stored.revision, found))


def custom_resource(spec: JsonObject, version: JsonObject, storage: JsonObject, collection: str) -> Resource:
    """The served resource of one version of a definition."""
    group, names = spec["group"], spec["names"]
    subresources = version.get("subresources") or {}
    found = {}
    if "status" in subresources:
        found["status"] = Subresource("status", names["kind"], _STATUS_VERBS)
    scale = subresources.get("scale")
    if scale:
        found["scale"] = Subresource("scale", "Scale", _STATUS_VERBS, "autoscaling", "v1")
    schema = Schema(
        (version.get("schema") or {}).get("openAPIV3Schema") or {"type": "object"},
        replicas_path=scale["specReplicasPath"] if scale else None,
    )
    api_version, stored_version = f"{group}/{version['name']}", f"{group}/{storage['name']}"
    single = len([item for item in spec["versions"] if item.get("served")]) == 1 and api_version == stored_version
    return Resource(
        group=group,
        version=version["name"],
        plural=names["plural"],
        singular=names.get("singular") or names["kind"].lower(),
        kind=names["kind"],
        list_kind=names.get("listKind", ""),
        namespaced=spec["scope"] == "Namespaced",
        shape=schema.shape,
        collection=collection,
        custom=True,
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources=found,
        rules=_RULES,
        schema=schema,
        select={
            item["jsonPath"].lstrip("."): _getter(item["jsonPath"]) for item in version.get("selectableFields") or ()
        },
        columns=columns_of_crd(version),
        to_storage=None if single else _renamed(stored_version),
        from_storage=None if single else _viewed(api_version, schema),
        deprecation=_deprecation(spec, version, storage),
        scale=scale,
    )


def _deprecation(spec: JsonObject, version: JsonObject, storage: JsonObject) -> str:
    if not version.get("deprecated"):
        return ""
    kind, group = spec["names"]["kind"], spec["group"]
    default = f"{group}/{version['name']} {kind} is deprecated; use {group}/{storage['name']} {kind}"
    text: str = version.get("deprecationWarning") or default
    return text


def _getter(path: str) -> FieldGetter:
    def get(body: JsonObject) -> str:
        values = find(body, path)
        if not values or values[0] is None:
            return ""
        value = values[0]
        return str(value).lower() if isinstance(value, bool) else str(value)

    return get


def _renamed(api_version: str) -> Callable[[JsonObject], JsonObject]:
    return lambda body: {**body, "apiVersion": api_version, "metadata": {**body["metadata"]}}


def _viewed(api_version: str, schema: Schema) -> Callable[[JsonObject], JsonObject]:
    """Without conversion, another version shows the stored object under its own name and through its own schema."""

    def view(body: JsonObject) -> JsonObject:
        metadata = body.pop("metadata")
        found = conform(body, schema.shape, "", [])
        return {**found, "kind": found["kind"], "apiVersion": api_version, "metadata": metadata}

    return view
