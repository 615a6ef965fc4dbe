"""`homelab-autoscaler manifests`: what has to be applied to a cluster, printed for `kubectl apply -f -`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
import yaml

from homelab_api import names
from homelab_api.crd import definitions
from homelab_autoscaler.install.roles import MANAGER, POOLS_NAMESPACE, Place, manager_roles, pool_roles

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


@app.command()
def rbac(
    *,
    namespace: Annotated[str, typer.Option(help="The pools' namespace.")] = POOLS_NAMESPACE,
    own_namespace: Annotated[str, typer.Option(help="The manager's namespace.")] = names.DEFAULT_NAMESPACE,
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", help="For a manager that serves every namespace.")
    ] = False,
) -> None:
    """Print the manager's service account and its roles: the rights that its calls take, and no more."""
    place = Place(own=own_namespace, pools=None if all_namespaces else namespace)
    account: JsonObject = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": MANAGER, "namespace": own_namespace},
        "automountServiceAccountToken": False,
    }
    typer.echo(as_yaml([account, *manager_roles(place), *pool_roles(place)]), nl=False)


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
