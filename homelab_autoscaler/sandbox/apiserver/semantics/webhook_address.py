"""Where a webhook is: from its clientConfig, and from a Service that the clientConfig names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from homelab_autoscaler.sandbox.apiserver.store import Key, Store

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject

_SERVICES = "/services"


class NoAddressError(Exception):
    """A Service that is not there, or that leads nowhere."""


@dataclass(frozen=True, slots=True)
class WebhookAddress:
    """A webhook's address.

    Attributes:
        url: to connect to.
        shown: the URL of error texts, and of the Host header.
        server_name: whom the certificate has to be for; the URL's host when None.
    """

    url: str
    shown: str
    server_name: str | None = None

    def with_timeout(self, seconds: int) -> WebhookAddress:
        """The same, telling the webhook in the query how long it has."""
        return WebhookAddress(_with_timeout(self.url, seconds), _with_timeout(self.shown, seconds), self.server_name)


def address_of(client: JsonObject, store: Store) -> WebhookAddress:
    """The address that a clientConfig gives.

    There is no service network: a Service counts if it is of type ExternalName, which a real server follows in the
    same way, to `externalName` and the port of the clientConfig.

    Raises:
        NoAddressError: the Service is missing, or of another type.
    """
    if client.get("url"):
        return WebhookAddress(str(client["url"]), str(client["url"]))
    reference = client.get("service") or {}
    namespace, name = reference.get("namespace", ""), reference.get("name", "")
    stored = store.collection(_SERVICES).get(Key(namespace, name))
    if stored is None:
        raise NoAddressError(f'service "{name}" not found')
    spec = stored.load().get("spec") or {}
    if spec.get("type") != "ExternalName":
        raise NoAddressError(
            f"this server has no service network: make Service {namespace}/{name} one of type ExternalName, "
            "or give the webhook a URL"
        )
    port, path = reference.get("port") or 443, "/" + str(reference.get("path") or "").lstrip("/")
    host = f"{name}.{namespace}.svc"
    return WebhookAddress(
        f"https://{spec.get('externalName', '')}:{port}{path}", f"https://{host}:{port}{path}", server_name=host
    )


def _with_timeout(url: str, seconds: int) -> str:
    parts = urlsplit(url)
    query = f"{parts.query}&" if parts.query else ""
    return urlunsplit(parts._replace(query=f"{query}timeout={seconds}s"))
