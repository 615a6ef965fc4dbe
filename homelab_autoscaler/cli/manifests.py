"""`homelab-autoscaler manifests`: what has to be applied to a cluster, printed for `kubectl apply -f -`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer
import yaml

from homelab_api.crd import definitions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from homelab_api.meta import JsonObject

app = typer.Typer(help="Print what a cluster needs, for `kubectl apply -f -`.", no_args_is_help=True)


@app.callback()
def _manifests() -> None:
    """Print what a cluster needs, for `kubectl apply -f -`."""


@app.command()
def crds() -> None:
    """Print the CustomResourceDefinitions of this version."""
    typer.echo(as_yaml(definitions()), nl=False)


class _PlainDumper(yaml.SafeDumper):
    """Without anchors: what is shared is written out where it stands."""

    def ignore_aliases(self, data: object) -> bool:
        del data
        return True


def as_yaml(objects: Iterable[JsonObject]) -> str:
    """Objects as YAML documents."""
    return yaml.dump_all(
        list(objects), Dumper=_PlainDumper, sort_keys=False, allow_unicode=True, width=110, explicit_start=True
    )
