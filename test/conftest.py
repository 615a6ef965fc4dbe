"""Fixtures for all suites."""

import pytest
from hypothesis import HealthCheck, settings

from homelab_autoscaler.sandbox.testing.control_plane import control_plane as running_control_plane

# No test asserts a duration: a busy machine makes an example slow, not wrong.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


def pytest_collection_modifyitems(items):
    """Marks the tests that hold on any control plane: whoever uses the fixture can be sent to a real one."""
    for item in items:
        if "control_plane" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.any_control_plane)


@pytest.fixture(scope="session")
def control_plane():
    """An API server: embedded, or real when KUBEBUILDER_ASSETS is set. Shared: use namespaces and names of your own."""
    with running_control_plane() as plane:
        yield plane
