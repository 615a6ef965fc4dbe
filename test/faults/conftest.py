import pytest
from lab.world import World
from virtual.cluster import Cluster


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    """One control plane for all stories of a worker; each story has a namespace and machines of its own."""
    with World(tmp_path_factory.mktemp("world")) as running:
        yield running


@pytest.fixture
def cluster():
    """A cluster on virtual time with a pool and the operator; machines are added by the test."""
    with Cluster() as running:
        running.start()
        yield running
