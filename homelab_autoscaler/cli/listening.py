"""Ports, before anything is started: a port that is taken is one sentence and not a traceback half-way."""

from __future__ import annotations

import errno
import socket

from homelab_autoscaler.cli.failure import CommandError, UsageError


def check_free(flag: str, address: str) -> None:
    """Make sure that `host:port` can be listened on now. Somebody may still take it before we do.

    Raises:
        UsageError: it is no address, or not one of this machine.
        CommandError: it is in use.
    """
    host, port = split_address(flag, address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise CommandError(
                f"{flag}: {address} is in use already: stop what listens there, or choose another address"
            ) from error
        raise UsageError(f'{flag}: cannot listen on "{address}": {error.strerror or error}') from error


def split_address(flag: str, address: str) -> tuple[str, int]:
    """Host and port of `host:port` or `:port` (all addresses); IPv6 hosts stand in brackets.

    Raises:
        UsageError: naming flag and text.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535 or (":" in host and not host.startswith("[")):
        raise UsageError(f'{flag}: "{address}" is no address: write host:port or :port, like 127.0.0.1:8080')
    return host.strip("[]"), int(port)


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
