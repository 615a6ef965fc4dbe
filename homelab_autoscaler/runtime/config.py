"""How to reach an API server and as whom.

Kubeconfig and in-cluster rules (token files, exec plugins, client certificates, CA bundles, proxies) are the
official `kubernetes` package's; it is imported only when a configuration of that sort is loaded.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import urllib3

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from urllib3.connectionpool import HTTPConnectionPool

    from homelab_api.meta import JsonObject

_TOKEN_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
_NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class ConfigError(Exception):
    """No usable configuration; the text says what was looked for and what to do."""


def _no_authorization() -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """A reachable API server.

    Attributes:
        host: base URL, such as `https://10.0.0.1:6443`.
        namespace: the namespace of the context or of the pod; None if neither names one.
        authorization: gives the Authorization header for the next request, refreshed when it has expired; may block
            on an exec plugin.
        make_pool: opens a connection pool of that many kept connections to `host`.
        source: where this came from, for messages.
    """

    host: str
    namespace: str | None = None
    authorization: Callable[[], str | None] = field(default=_no_authorization, repr=False)
    make_pool: Callable[[int], HTTPConnectionPool] = field(default=lambda _: _unset_pool(), repr=False)
    source: str = "code"

    @classmethod
    def for_url(cls, url: str, *, token: str | None = None, ca_file: str | None = None) -> ClientConfig:
        """A server at a known address, with a bearer token if it wants one. Needs no `kubernetes` package."""

        def make_pool(size: int) -> HTTPConnectionPool:
            tls: dict[str, Any] = {"ca_certs": ca_file} if url.startswith("https") else {}
            return urllib3.connection_from_url(url, maxsize=size, block=False, **tls)

        return cls(
            host=url.rstrip("/"),
            authorization=lambda: f"Bearer {token}" if token else None,
            make_pool=make_pool,
            source=url,
        )

    @classmethod
    def from_kubeconfig(cls, content: JsonObject, context: str | None = None) -> ClientConfig:
        """From the content of a kubeconfig (relative file names in it are taken from the working directory).

        Raises:
            ConfigError: naming what is wrong in it.
        """
        from kubernetes.config import ConfigException, load_kube_config_from_dict  # noqa: PLC0415 - heavy, when needed

        configuration = _configuration()
        try:
            load: Any = load_kube_config_from_dict
            load(content, context=context, client_configuration=configuration)
        except (ConfigException, OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"the kubeconfig cannot be used: {error}") from error
        return _from_official(configuration, _context_namespace(content, context), "kubeconfig content")


def _unset_pool() -> HTTPConnectionPool:
    raise ConfigError("make a ClientConfig with load_config, for_url or from_kubeconfig")


def load_config(
    kubeconfig: str | None = None,
    context: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> ClientConfig:
    """Find the API server as kubectl and client-go do.

    Order: the file given here, the files of KUBECONFIG, the service account of the pod that we run in, and
    `~/.kube/config`. A context given here needs a kubeconfig.

    Raises:
        ConfigError: nothing usable was found, or what was found is broken; the text says which and why.
    """
    environ = os.environ if environ is None else environ
    path = kubeconfig or environ.get("KUBECONFIG") or ""
    in_cluster = bool(environ.get("KUBERNETES_SERVICE_HOST"))
    if not path and in_cluster and context is None:
        return _in_cluster(environ)
    if not path:
        default = Path.home() / ".kube" / "config"
        if not default.exists():
            raise ConfigError(
                f"no API server is configured: give --kubeconfig, set KUBECONFIG, create {default}, "
                "or run in a pod with a service account"
            )
        path = str(default)
    return _from_files(path, context)


def _from_files(path: str, context: str | None) -> ClientConfig:
    import yaml  # noqa: PLC0415 - only needed with files
    from kubernetes.config import ConfigException, load_kube_config  # noqa: PLC0415 - heavy, only when needed

    files = [Path(part) for part in path.split(os.pathsep) if part]
    missing = [str(file) for file in files if not file.exists()]
    if len(missing) == len(files):
        raise ConfigError(f"kubeconfig not found: {', '.join(missing)}")
    configuration = _configuration()
    try:
        content = yaml.safe_load(next(file for file in files if file.exists()).read_text())
        load: Any = load_kube_config
        load(config_file=path, context=context, client_configuration=configuration, persist_config=False)
    except (ConfigException, yaml.YAMLError, OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"kubeconfig {path} cannot be used: {error}") from error
    return _from_official(configuration, _context_namespace(content, context), path)


def _in_cluster(environ: Mapping[str, str]) -> ClientConfig:
    from kubernetes.config import ConfigException  # noqa: PLC0415 - heavy, only when needed
    from kubernetes.config.incluster_config import (  # noqa: PLC0415
        SERVICE_CERT_FILENAME,
        InClusterConfigLoader,
    )

    configuration = _configuration()
    try:
        loader: Any = InClusterConfigLoader
        loader(
            token_filename=str(_TOKEN_FILE), cert_filename=SERVICE_CERT_FILENAME, environ=dict(environ)
        ).load_and_set(configuration)
    except (ConfigException, OSError) as error:
        raise ConfigError(f"the pod's service account cannot be used: {error}") from error
    namespace = _NAMESPACE_FILE.read_text().strip() if _NAMESPACE_FILE.exists() else None
    return _from_official(configuration, namespace or None, "service account")


def _configuration() -> Any:
    from kubernetes.client import Configuration  # noqa: PLC0415 - heavy, only when needed

    configuration = Configuration()
    configuration.retries = False
    return configuration


def _context_namespace(content: object, context: str | None) -> str | None:
    if not isinstance(content, dict):
        return None
    wanted = context or content.get("current-context")
    for entry in content.get("contexts") or []:
        if isinstance(entry, dict) and entry.get("name") == wanted:
            namespace = (entry.get("context") or {}).get("namespace")
            return str(namespace) if namespace else None
    return None


def _from_official(configuration: Any, namespace: str | None, source: str) -> ClientConfig:
    def make_pool(size: int) -> HTTPConnectionPool:
        from kubernetes.client.rest import RESTClientObject  # noqa: PLC0415 - heavy, only when needed
        from kubernetes.utils.keepalive import tcp_keepalive_socket_options  # noqa: PLC0415

        configuration.connection_pool_maxsize = size
        configuration.socket_options = tcp_keepalive_socket_options()
        manager = RESTClientObject(configuration).pool_manager
        return manager.connection_from_url(configuration.host)

    def authorization() -> str | None:
        header = configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        if header:
            return str(header)
        if configuration.username:
            return str(configuration.get_basic_auth_token())
        return None

    return ClientConfig(
        host=str(configuration.host).rstrip("/"),
        namespace=namespace,
        authorization=authorization,
        make_pool=make_pool,
        source=source,
    )
