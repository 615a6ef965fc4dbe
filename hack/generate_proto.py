"""Generate homelab_autoscaler/provider/pb/ from proto/. With --check: exit 1 if the committed files differ.

The output depends on the version of grpcio-tools, which the lock file pins.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "proto"
OUTPUT = ROOT / "homelab_autoscaler" / "provider" / "pb"
PACKAGE = "homelab_autoscaler/provider/pb"
PACKAGE_DOC = '"""Generated from proto/ by hack/generate_proto.py; never edited by hand."""\n'


def generate(target: Path) -> dict[str, str]:
    """Run protoc into `target` and return file name to text of everything that belongs into the package.

    The sources are presented to protoc under the package's own path, so that the generated imports are absolute.

    Raises:
        SystemExit: protoc's exit code, after it printed its message.
    """
    staged = target / "sources" / PACKAGE
    staged.mkdir(parents=True)
    names = []
    for source in sorted(SOURCES.glob("*.proto")):
        (staged / source.name).write_text(source.read_text())
        names.append(f"{PACKAGE}/{source.name}")
    out = target / "out"
    out.mkdir()
    well_known = resources.files("grpc_tools") / "_proto"
    arguments = ["protoc", f"-I{target / 'sources'}", f"-I{well_known}"]
    code = protoc.main([*arguments, f"--python_out={out}", f"--pyi_out={out}", *names])
    services = [name for name in names if "service " in (target / "sources" / name).read_text()]
    code = code or protoc.main([*arguments, f"--grpc_python_out={out}", *services])
    if code:
        raise SystemExit(code)
    files = {path.name: path.read_text() for path in sorted((out / PACKAGE).iterdir())}
    return {"__init__.py": PACKAGE_DOC, **files}


def stale(files: dict[str, str]) -> list[str]:
    """Names that are missing, different or left over in the committed package."""
    present = {path.name: path.read_text() for path in OUTPUT.iterdir() if path.is_file()} if OUTPUT.is_dir() else {}
    return sorted(name for name in {*files, *present} if files.get(name) != present.get(name))


def main() -> int:
    """Write the package, or with --check only compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the committed files are stale")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as scratch:
        files = generate(Path(scratch))
    differing = stale(files)
    if check:
        for name in differing:
            print(f"{OUTPUT.relative_to(ROOT) / name} does not match proto/: run python hack/generate_proto.py")
        return 1 if differing else 0
    OUTPUT.mkdir(parents=True, exist_ok=True)
    for name in differing:
        if name in files:
            (OUTPUT / name).write_text(files[name])
        else:
            (OUTPUT / name).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
