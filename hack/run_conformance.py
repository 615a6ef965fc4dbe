"""Run the black-box battery for API servers against the embedded control plane.

Usage: run_conformance.py DIRECTORY [options of the battery]

The battery is not part of this repository. The control plane is started as a process with its controllers and with
RBAC, without the scheduler and the node that runs pods, whose parts the battery plays.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

TOKEN = "conformance-administrator"  # noqa: S105 - of a server on loopback that lives as long as this
START_WITHIN = 30.0


def main() -> int:
    """Run; the battery's exit code."""
    battery = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="conformance-") as name:
        directory = Path(name)
        tokens = directory / "tokens"
        tokens.write_text(f'{TOKEN},administrator,1,"system:masters"\n')
        kubeconfig = directory / "kubeconfig"
        flags = ["--rbac", f"--token-file={tokens}", f"--kubeconfig={kubeconfig}", "--no-scheduler", "--no-host-node"]
        server = subprocess.Popen(
            [sys.executable, "-m", "homelab_autoscaler.sandbox", *flags], stdout=subprocess.DEVNULL
        )
        try:
            return run(battery, address(server, kubeconfig), sys.argv[2:])
        finally:
            server.terminate()
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()


def address(server: subprocess.Popen[bytes], kubeconfig: Path) -> str:
    """Where the server listens, once it does."""
    end = time.monotonic() + START_WITHIN
    while time.monotonic() < end and server.poll() is None:
        if kubeconfig.exists() and kubeconfig.stat().st_size:
            return str(yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"])
        time.sleep(0.1)
    sys.exit("the control plane did not start")


def run(battery: Path, url: str, more: list[str]) -> int:
    """The battery's own command line."""
    beside = Path(sys.executable).with_name("kubectl")
    kubectl = str(beside) if beside.exists() else shutil.which("kubectl")
    command = [sys.executable, "-m", "battery", "--server", url, "--token", TOKEN, "--insecure", "--jobs", "4", *more]
    if kubectl and "--kubectl" not in more:
        command += ["--kubectl", kubectl]
    return subprocess.run(command, cwd=battery, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
