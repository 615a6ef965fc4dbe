"""Write the manager's roles from the inventory of its calls to config/rbac/role.yaml and config/pool/role.yaml.

Usage: generate_rbac.py [--check]    --check writes nothing and fails when a committed file differs from the inventory
"""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

from homelab_autoscaler.install.roles import Place, manager_roles, pool_roles

CONFIG = Path(__file__).resolve().parent.parent / "config"
HEADER = (
    "# Generated from the inventory in homelab_autoscaler/install/rights.py by hack/generate_rbac.py. Do not edit.\n"
    "# What each right is for stands there.\n"
)


class _Dumper(yaml.SafeDumper):
    """Plain YAML without anchors: what is shared is written out where it stands."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - signature of the base class
        return True


def rendered() -> dict[Path, str]:
    """File to text."""
    everywhere = Place(pools=None)
    files = {
        CONFIG / "rbac" / "role.yaml": manager_roles(Place()),
        CONFIG / "pool" / "role.yaml": pool_roles(Place()),
        CONFIG / "components" / "all-namespaces" / "role.yaml": pool_roles(everywhere),
    }
    return {
        path: HEADER + yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, width=110, explicit_start=True)
        for path, objects in files.items()
    }


def differing() -> list[str]:
    """Committed files that are missing or stale, from the top of the repository."""
    return sorted(
        str(path.relative_to(CONFIG.parent))
        for path, text in rendered().items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    )


def main() -> int:
    """Write, or check."""
    stale = differing()
    if "--check" in sys.argv[1:]:
        if stale:
            print(f"not as the inventory says: {', '.join(stale)}. Run {Path(__file__).name}.", file=sys.stderr)
        return bool(stale)
    for path, text in rendered().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    print("\n".join(stale) or "nothing to do")
    return 0


if __name__ == "__main__":
    sys.exit(main())
