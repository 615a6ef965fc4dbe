import pytest


@pytest.fixture
def api(admin, our_kinds):
    return admin


@pytest.fixture
def place(make_namespace):
    """The path of our kinds in a namespace of the test's own."""
    return f"/apis/infra.homecluster.dev/v2alpha1/namespaces/{make_namespace()}"
