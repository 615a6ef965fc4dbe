"""The gRPC cloud provider: how Cluster Autoscaler asks for machines and gives them back.

The parts, from the wire inwards: `server` (TLS, health, reflection), `service` (messages to calls, errors to status
codes), `scale` (the calls that write), `pool` with `index`, `view` and `offer` (what every answer is computed from),
and one module for each thing that is only said: `template`, `options`, `pricing`, `gpu`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from homelab_autoscaler.provider.server import ProviderOptions, ProviderServer

__all__ = ["ProviderOptions", "ProviderServer"]


def __getattr__(name: str) -> Any:
    """Import the server on first use, so that clients of the messages in `pb` do not pay for it."""
    if name in __all__:
        from homelab_autoscaler.provider import server  # noqa: PLC0415 - see above

        return getattr(server, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
