import contextlib

import pytest
import structlog
from lab.scene import Scene
from lab.world import World
from virtual.cluster import Cluster

# A manager that dies is the story of these tests: its traceback without the values of every variable.
structlog.configure(
    processors=[
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper("%H:%M:%S.%f"),
        structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
    ]
)


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    """One control plane for all stories of a worker; each story has a namespace and machines of its own."""
    with World(tmp_path_factory.mktemp("world")) as running:
        yield running


@pytest.fixture
def scene_of(world, tmp_path):
    """Makes scenes: `scene_of(settings=…, on=True, boot_seconds=…)`."""
    with contextlib.ExitStack() as stack:
        yield lambda **how: stack.enter_context(Scene(world, tmp_path, **how))


@pytest.fixture
def scene(scene_of):
    """A machine that is off and its slot; no manager yet."""
    return scene_of()


@pytest.fixture
def quick(world):
    """The world's settings, some of them changed."""

    def changed(**settings):
        return world.settings.model_copy(update=settings)

    return changed


@pytest.fixture
def cluster():
    """A cluster on virtual time with a pool and the operator; machines are added by the test."""
    with Cluster() as running:
        running.start()
        yield running
