"""URLs of requests: nothing in a name can make it another request."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from urllib3.util import parse_url

from homelab_api.core import CoreNode, Pod
from homelab_autoscaler.runtime.client.paths import object_path


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a-1.b", "/api/v1/nodes/a-1.b"),
        ("system:node:x", "/api/v1/nodes/system:node:x"),
        ("a/b", "/api/v1/nodes/a%2Fb"),
        ("a?x=1#y", "/api/v1/nodes/a%3Fx%3D1%23y"),
        ("a\n", "/api/v1/nodes/a%0A"),
        ("ü", "/api/v1/nodes/%C3%BC"),
    ],
)
def test_a_name_is_quoted_where_it_needs_it(name, path):
    assert object_path(CoreNode.resource, name, None) == path


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_would_lead_elsewhere_is_refused(name):
    with pytest.raises(ValueError, match=r"needs a name|another place"):
        object_path(CoreNode.resource, name, None)


NAMES = st.text(min_size=1).filter(lambda name: name not in {".", ".."})


@given(name=NAMES, namespace=NAMES)
def test_a_name_stays_one_part_of_the_path(name, namespace):
    path = object_path(Pod.resource, name, namespace, "status")
    assert path.isascii()
    assert path.count("/") == 7
    assert parse_url(f"http://host{path}").query is None
