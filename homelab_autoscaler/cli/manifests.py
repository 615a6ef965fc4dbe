"""`homelab-autoscaler manifests`: what has to be applied to a cluster, printed for `kubectl apply -f -`."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import yaml
from pydantic import ValidationError

from homelab_api import names
from homelab_api.crd import definitions
from homelab_api.v2alpha1 import Group
from homelab_autoscaler.cli.connection import Context, Kubeconfig, Namespace, connected
from homelab_autoscaler.cli.failure import UsageError
from homelab_autoscaler.install.migrate import OLD_VERSION, migrated
from homelab_autoscaler.install.roles import MANAGER, POOLS_NAMESPACE, Place, manager_roles, pool_roles

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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


Files = Annotated[list[str] | None, typer.Argument(metavar="[FILE]...", help='YAML files, "-" for standard input.')]


@app.command()
def migrate(files: Files = None) -> None:
    """Print Groups and Nodes of v1alpha1 as v2alpha1 has them, and on stderr what was left out or has to be looked at.

    Documents of other kinds are not printed. Comments are lost.
    """
    new = []
    for place, document in _documents(files or ["-"]):
        if document.get("apiVersion") != OLD_VERSION:
            continue
        try:
            result = migrated(document)
        except ValueError as error:
            raise UsageError(f"{place}: {error}") from error
        new.append(result.body)
        for note in result.notes:
            typer.echo(f"{result.body['kind']} {result.body['metadata']['name']}: {note}", err=True)
    if not new:
        raise UsageError(f"no Group or Node of {OLD_VERSION} is in there: nothing to migrate")
    typer.echo(as_yaml(new), nl=False)


@app.command()
def startup_taints(
    files: Files = None, kubeconfig: Kubeconfig = None, context: Context = None, namespace: Namespace = None
) -> None:
    """Print Cluster Autoscaler's `--startup-taint` flags: one for each key in a Group's `nodeReadinessTaints`.

    Without FILE the Groups of the cluster are read.
    """
    with ExitStack() as stack:
        if files:
            groups = list(_groups(files))
        else:
            client, where, _ = stack.enter_context(connected(kubeconfig, context, namespace))
            groups = client.list(Group, where).items
    if not groups:
        raise UsageError("there is no Group whose readiness taints could be told")
    keys = {taint.key for group in groups for taint in group.spec.node_readiness_taints}
    if not keys:
        typer.echo("no Group names a readiness taint: no flag is needed", err=True)
    for key in sorted(keys):
        typer.echo(f"--startup-taint={key}")


def _groups(files: Iterable[str]) -> Iterator[Group]:
    for place, document in _documents(files):
        if (document.get("apiVersion"), document.get("kind")) == (Group.resource.api_version, Group.resource.kind):
            try:
                yield Group.from_json(document)
            except ValidationError as error:
                wrong = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
                raise UsageError(f"{place}: {wrong}") from error


def _documents(files: Iterable[str]) -> Iterator[tuple[str, JsonObject]]:
    """The objects in YAML files, each with where it stands; a List is taken apart.

    Raises:
        UsageError: a file cannot be read, or is no YAML, or holds something that is no object.
    """
    for file in files:
        try:
            text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
            documents = list(yaml.safe_load_all(text))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise UsageError(f"{file} cannot be read: {error}") from error
        for number, document in enumerate(documents, 1):
            if document is None:
                continue
            place = f"{file}, document {number}"
            items = document.get("items") if isinstance(document, dict) and document.get("kind") == "List" else None
            for item in [document] if items is None else items:
                if not isinstance(item, dict):
                    raise UsageError(f"{place} is no Kubernetes object: it has no fields")
                yield place, item


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
