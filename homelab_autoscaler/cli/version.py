"""`homelab-autoscaler version`."""

from __future__ import annotations

import importlib.metadata
import platform

import typer

from homelab_autoscaler.cli.app import single


def package_version() -> str:
    """The installed version; "unknown" when run from a tree that was not installed."""
    try:
        return importlib.metadata.version("homelab-autoscaler")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def version() -> None:
    """Print the version, and the Python that runs it."""
    typer.echo(f"homelab-autoscaler {package_version()} (Python {platform.python_version()})")


app = single(version)
