"""Fixtures for all suites."""

import pytest

from homelab_autoscaler.sandbox.testing.control_plane import control_plane as running_control_plane


@pytest.fixture(scope="session")
def control_plane():
    """An API server: embedded, or real when KUBEBUILDER_ASSETS is set. Shared: use namespaces and names of your own."""
    with running_control_plane() as plane:
        yield plane
