import pytest
from lab.plans import recorded
from lab.world import World


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    """One control plane for all stories of a worker; each story has a namespace and machines of its own."""
    with World(tmp_path_factory.mktemp("world")) as running:
        yield running


@pytest.fixture(scope="session")
def clean_of(world):
    """The clean runs of a story, recorded once for each worker."""
    known = {}

    def record(story):
        if story.name not in known:
            known[story.name] = recorded(world, story)
        return known[story.name]

    return record
