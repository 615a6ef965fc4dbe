"""Write the CustomResourceDefinitions of `homelab_api` to config/crd/bases.

Usage: generate_crds.py [--check]    --check writes nothing and fails when a committed file differs from the types
"""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

from homelab_api.crd import definitions

TARGET = Path(__file__).resolve().parent.parent / "config" / "crd" / "bases"
HEADER = "# Generated from the types in api/homelab_api by hack/generate_crds.py. Do not edit.\n---\n"


class _Dumper(yaml.SafeDumper):
    """Plain YAML without anchors: a shared default is written out where it stands."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - signature of the base class
        return True


def rendered() -> dict[str, str]:
    """File name to text."""
    return {
        f"{crd['spec']['group']}_{crd['spec']['names']['plural']}.yaml": HEADER
        + yaml.dump(crd, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
        for crd in definitions()
    }


def differing() -> list[str]:
    """Names of committed files that are missing, stale, or no longer generated."""
    wanted = rendered()
    present = {path.name: path.read_text(encoding="utf-8") for path in TARGET.glob("*.yaml")}
    return sorted(name for name in wanted.keys() | present.keys() if wanted.get(name) != present.get(name))


def main() -> int:
    """Write, or check."""
    stale = differing()
    if "--check" in sys.argv[1:]:
        if stale:
            print(f"not as the types say: {', '.join(stale)}. Run {Path(__file__).name} and commit.", file=sys.stderr)
        return bool(stale)
    TARGET.mkdir(parents=True, exist_ok=True)
    wanted = rendered()
    for name in stale:
        if name in wanted:
            (TARGET / name).write_text(wanted[name], encoding="utf-8")
        else:
            (TARGET / name).unlink()
        print(name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
