"""`python -m homelab_autoscaler.sandbox.apiserver`: the API server alone, without controllers and machines."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path

import orjson

from homelab_autoscaler.sandbox.apiserver.server import ApiServer, ApiServerOptions


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m homelab_autoscaler.sandbox.apiserver",
        description="An embedded Kubernetes API server for one machine: no authentication beyond loopback tokens, "
        "in memory unless --data-dir is given. Prints its URL.",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, default=0, help="port; 0 takes a free one (0)")
    parser.add_argument("--rbac", action="store_true", help="authorise requests with Roles and their bindings")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help='static tokens: token,user,uid,"group1,group2"')
    parser.add_argument(
        "--tls", action=argparse.BooleanOptionalAction, default=None, help="serve HTTPS (on with users, else off)"
    )
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="keep objects and revisions here across restarts")
    parser.add_argument("--kubeconfig", type=Path, metavar="FILE", help="write a kubeconfig for the administrator")
    parser.add_argument("--log-size", type=int, default=10_000, help="changes that watches can reach back (10000)")
    return parser.parse_args()


async def _run(arguments: argparse.Namespace) -> None:
    server = ApiServer(
        options=ApiServerOptions(
            rbac=arguments.rbac,
            tls=arguments.tls,
            token_file=arguments.token_file,
            data_dir=arguments.data_dir,
            log_size=arguments.log_size,
        )
    )
    url = await server.start(arguments.host, arguments.port)
    if arguments.kubeconfig:
        arguments.kubeconfig.touch(mode=0o600)
        arguments.kubeconfig.write_bytes(orjson.dumps(server.kubeconfig(), option=orjson.OPT_INDENT_2))
    sys.stdout.write(f"{url}\n")
    sys.stdout.flush()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, stop.set)
    await stop.wait()
    await server.stop()


def main() -> int:
    """Run until a signal; returns the exit status."""
    arguments = _arguments()
    try:
        asyncio.run(_run(arguments))
    except (OSError, ValueError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
