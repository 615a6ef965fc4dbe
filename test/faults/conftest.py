import pytest
from lab.world import World


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    """One control plane for all stories of a worker; each story has a namespace and machines of its own."""
    with World(tmp_path_factory.mktemp("world")) as running:
        yield running
