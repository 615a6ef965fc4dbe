"""Which kinds the server has, by its classic discovery documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from homelab_api.meta import JsonObject, ResourceInfo
from homelab_autoscaler.sandbox import resources
from homelab_autoscaler.sandbox.status import ApiStatusError

if TYPE_CHECKING:
    from homelab_autoscaler.sandbox.client import ApiClient

_NEEDED: Final = frozenset({"list", "watch", "delete"})


class Discovery:
    """Remembers what it found; a kind that is not known is asked for once more before it counts as unknown."""

    def __init__(self, client: ApiClient) -> None:
        """Discover through a client."""
        self._client = client
        self._by_kind: dict[tuple[str, str], ResourceInfo] = {}

    async def deletable(self) -> set[ResourceInfo]:
        """Every kind, in its preferred version, whose objects can be listed, watched and deleted."""
        found: set[ResourceInfo] = set()
        by_kind: dict[tuple[str, str], ResourceInfo] = {}
        for group, version in await self._versions():
            api_version = f"{group}/{version}" if group else version
            try:
                answer = await self._client.get(resources.group_version_path(api_version))
            except ApiStatusError as error:
                if error.code == 404:
                    continue  # The group went away between the two questions.
                raise
            for entry in answer.get("resources") or []:
                if "/" in entry["name"]:
                    continue
                info = ResourceInfo(group, version, entry["kind"], entry["name"], namespaced=entry["namespaced"])
                by_kind[group, entry["kind"]] = info
                if set(entry.get("verbs") or []) >= _NEEDED:
                    found.add(info)
        self._by_kind = by_kind
        return found

    async def _versions(self) -> list[tuple[str, str]]:
        groups: JsonObject = await self._client.get("/apis")
        preferred = [(group["name"], group["preferredVersion"]["version"]) for group in groups.get("groups") or []]
        return [("", "v1"), *preferred]

    def known(self, api_version: str, kind: str) -> ResourceInfo:
        """The resource of a kind that was seen, whatever version the reference names.

        Raises:
            LookupError: naming the kind.
        """
        group = api_version.rpartition("/")[0]
        try:
            return self._by_kind[group, kind]
        except KeyError:
            raise LookupError(f'no resource of kind "{kind}" in "{api_version}" is served') from None

    async def resource(self, api_version: str, kind: str) -> ResourceInfo:
        """As `known`, but asks the server again before it gives up.

        Raises:
            LookupError: naming the kind.
        """
        try:
            return self.known(api_version, kind)
        except LookupError:
            await self.deletable()
            return self.known(api_version, kind)
