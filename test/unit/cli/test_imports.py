"""What a manager loads: an import that nobody needs is resident for as long as the process lives."""

import subprocess
import sys

import pytest

ABSENT = {
    "aiohttp": "the embedded control plane's",
    "homelab_autoscaler.cli.demo": "another command",
    "homelab_autoscaler.power": "runs in Jobs",
    "homelab_autoscaler.sandbox": "another command",
    "jinja2": "no dependency",
    "jsonschema_rs": "the embedded control plane's",
    "kubernetes": "only once a configuration is read",
    "pygments": "structlog would load it through rich",
    "rich": "for help texts and screens",
}


@pytest.fixture(scope="module")
def loaded():
    code = "import sys, homelab_autoscaler.cli.app, homelab_autoscaler.cli.manager; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("name", ABSENT)
def test_a_manager_starts_without(loaded, name):
    assert {"grpc", "structlog", "homelab_autoscaler.runtime"} <= loaded
    assert sorted(module for module in loaded if module == name or module.startswith(f"{name}.")) == []


def test_help_has_its_colours_all_the_same():
    code = (
        "import homelab_autoscaler.cli.logs, sys; assert 'rich' not in sys.modules; import rich.console;"
        "print(rich.console.Console.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "Console"
