"""A pod's volumes as directories."""

from __future__ import annotations

import shutil
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from homelab_autoscaler.sandbox import objects
from homelab_autoscaler.sandbox.kubelet.runtime import NotReadyYetError, StartError
from homelab_autoscaler.sandbox.podrunner.environment import Lookup, contents

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject

_DEFAULT_MODE: Final = 0o644
_OWNER_ONLY: Final = 0o700


async def make_volumes(pod: JsonObject, directory: Path, lookup: Lookup) -> None:
    """Write every Secret and ConfigMap volume of a pod, and make its emptyDirs.

    Files are readable for the sandbox's user alone, executable where the mode says so. They are written once: later
    changes of the Secret do not arrive.

    Args:
        pod: The pod.
        directory: Where; `<directory>/<volume name>/`.
        lookup: Finds Secrets and ConfigMaps.

    Raises:
        NotReadyYetError: a Secret, ConfigMap or key is missing and not optional.
        StartError: a volume of a kind that the sandbox has not.
    """
    for volume in objects.spec(pod).get("volumes") or []:
        target = directory / volume["name"]
        target.mkdir(parents=True, exist_ok=True)
        if "secret" in volume:
            source = volume["secret"]
            found = await lookup("Secret", source.get("secretName") or "")
            _write(volume["name"], f'secret "{source.get("secretName")}"', found, source, target)
        elif "configMap" in volume:
            source = volume["configMap"]
            found = await lookup("ConfigMap", source.get("name") or "")
            _write(volume["name"], f'configmap "{source.get("name")}"', found, source, target)
        elif "emptyDir" not in volume and set(volume) != {"name"}:
            kind = next(key for key in volume if key != "name")
            text = f'volume "{volume["name"]}" is a {kind}: the sandbox has secret, configMap and emptyDir volumes'
            raise StartError(text, reason="UnsupportedVolume")


def _write(volume: str, title: str, found: JsonObject | None, source: JsonObject, target: Path) -> None:
    optional = bool(source.get("optional"))
    if found is None:
        if optional:
            return
        raise NotReadyYetError(f'MountVolume.SetUp failed for volume "{volume}" : {title} not found')
    data = contents(found)
    mode = int(source.get("defaultMode") or _DEFAULT_MODE)
    items = source.get("items") or [{"key": key, "path": key} for key in sorted(data)]
    for item in items:
        if item["key"] not in data:
            if optional:
                continue
            text = f'MountVolume.SetUp failed for volume "{volume}" : references non-existent key: {item["key"]}'
            raise NotReadyYetError(text)
        path = target / _inside(item["path"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.touch(mode=0o600)
        path.write_bytes(data[item["key"]])
        path.chmod(int(item.get("mode") or mode) & _OWNER_ONLY | 0o400)


def _inside(path: str) -> PurePosixPath:
    """A relative path without `..`: a volume must not write outside its directory."""
    found = PurePosixPath(path)
    if found.is_absolute() or ".." in found.parts:
        raise StartError(f'volume path "{path}" must be relative and must not contain ".."', reason="InvalidVolumePath")
    return found


def mount(container: JsonObject, volumes: Path, root: Path) -> dict[str, str]:
    """Show volumes at their mount paths below a root directory.

    Returns:
        Mount path to real path.

    Raises:
        StartError: a mount names no volume of the pod.
    """
    found: dict[str, str] = {}
    for entry in container.get("volumeMounts") or []:
        source = volumes / entry["name"]
        if not source.is_dir():
            raise StartError(f'volumeMount "{entry["name"]}" names no volume of the pod', reason="InvalidVolumeMount")
        if entry.get("subPath"):
            source /= _inside(entry["subPath"])
        place = root / _inside(str(entry["mountPath"]).lstrip("/"))
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.is_symlink():
            place.unlink()
        elif place.is_dir():
            shutil.rmtree(place)
        place.symlink_to(source)
        found[entry["mountPath"]] = str(place)
    return found
