"""The API server as one object: made, started, asked, stopped."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING

from homelab_autoscaler.sandbox.apiserver.builtin.kinds import builtin_resources
from homelab_autoscaler.sandbox.apiserver.faults import Faults
from homelab_autoscaler.sandbox.apiserver.pipeline import Pipeline
from homelab_autoscaler.sandbox.apiserver.request import ADMIN, ApiRequest, ApiResponse, User
from homelab_autoscaler.sandbox.apiserver.semantics.admission import Webhooks
from homelab_autoscaler.sandbox.apiserver.semantics.bootstrap import bootstrap
from homelab_autoscaler.sandbox.apiserver.semantics.crds import CustomResources
from homelab_autoscaler.sandbox.apiserver.semantics.identity import Authenticator, read_token_file, with_groups
from homelab_autoscaler.sandbox.apiserver.semantics.plane import LogProvider, Plane
from homelab_autoscaler.sandbox.apiserver.semantics.rbac import Authorizer
from homelab_autoscaler.sandbox.apiserver.semantics.resources import Registry
from homelab_autoscaler.sandbox.apiserver.store import Store
from homelab_autoscaler.sandbox.apiserver.store.journal import Journal
from homelab_autoscaler.sandbox.apiserver.transport.http import HttpServer
from homelab_autoscaler.sandbox.apiserver.transport.local import LocalClient
from homelab_autoscaler.sandbox.apiserver.writelog import WriteLog
from homelab_autoscaler.sandbox.clock import SandboxClock, SystemSandboxClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.apiserver.semantics.rbac import Attributes


@dataclass(frozen=True, slots=True)
class ApiServerOptions:
    """How a server is set up.

    Attributes:
        rbac: authorise requests; without it everybody may do everything.
        token_file: static tokens, one `token,user,uid,"groups"` a line.
        data_dir: where to keep objects across restarts; in memory only when None.
        log_size: how many changes watches and snapshots can reach back.
        write_log_size: how many writes the write log keeps.
        seed: of fault injection.
        tls: listen with a certificate of its own; by default when there are users, since kubectl sends tokens over
            TLS only.
    """

    rbac: bool = False
    token_file: Path | None = None
    data_dir: Path | None = None
    log_size: int = 10_000
    write_log_size: int = 10_000
    seed: int = 0
    tls: bool | None = None


class ApiServer:
    """An embedded Kubernetes API server. Belongs to the asyncio loop on which it is used.

    It may be used without being started: `local()` needs no socket.
    """

    def __init__(self, clock: SandboxClock | None = None, options: ApiServerOptions | None = None) -> None:
        self.options = options or ApiServerOptions()
        self.clock: SandboxClock = clock or SystemSandboxClock()
        store = Store(self.options.log_size)
        self._journal = Journal(self.options.data_dir) if self.options.data_dir else None
        self._webhooks = Webhooks(store)
        self.writes = WriteLog(self.options.write_log_size)
        self._plane = Plane(store, Registry(), self.clock, self.writes, self._webhooks)
        for resource in builtin_resources():
            self._plane.registry.add(resource)
        if self._journal is not None:
            # First of the listeners: what others commit in turn must come after what made them do so.
            store.listeners.insert(0, self._journal.append)
            self._journal.load(store)
        self._authorizer = Authorizer(store, enabled=self.options.rbac)
        tokens = read_token_file(self.options.token_file) if self.options.token_file else {}
        self.authenticator = Authenticator(self._authorizer, tokens)
        self.faults = Faults(store, self.options.seed)
        self._custom = CustomResources(self._plane)
        self._custom.start()
        bootstrap(self._plane)
        self._pipeline = Pipeline(self._plane, self._authorizer, self.authenticator, self.faults)
        self._http = HttpServer(self.handle)
        self._certificate = b""
        self._admin_token = self._find_admin_token(tokens)

    def _find_admin_token(self, tokens: dict[str, User]) -> str:
        if not self.options.rbac and not tokens:
            return ""
        found = [token for token, user in tokens.items() if "system:masters" in user.groups]
        return found[0] if found else self.authenticator.issue(ADMIN)

    @property
    def store(self) -> Store:
        """The objects themselves, for tests that look behind the API."""
        return self._plane.store

    @property
    def url(self) -> str:
        """Where the server listens; empty before it is started."""
        return self._http.url

    @property
    def open_watches(self) -> int:
        """How many watches are running."""
        return self._pipeline.watching.open

    def on_decision(self, listener: Callable[[User, Attributes, bool], None]) -> None:
        """Call back for each question that RBAC answers, on the server's loop: who, what, and whether it may be."""
        self._authorizer.listeners.append(listener)

    def set_log_provider(self, provider: LogProvider | None) -> None:
        """Register who answers `kubectl logs`: gets the Pod, the container's name and the query."""
        self._plane.log_provider = provider

    async def handle(self, request: ApiRequest) -> ApiResponse:
        """Answer one request."""
        return await self._pipeline.handle(request)

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Listen; returns the URL.

        Raises:
            OSError: the address is taken or not this machine's.
        """
        users = self.options.rbac or self.options.token_file is not None
        if self.options.tls or (self.options.tls is None and users):
            # Imported when needed: a server without users starts twice as fast without it.
            from homelab_autoscaler.sandbox.apiserver.transport.certificates import self_signed  # noqa: PLC0415

            pair = self_signed(host)
            self._certificate = pair.certificate
            return await self._http.start(host, port, pair.context())
        return await self._http.start(host, port)

    async def stop(self) -> None:
        """End watches, close sockets and files. A stopped server cannot be started again."""
        self._pipeline.watching.close_all()
        self.faults.clear()
        await self._http.stop()
        await self._webhooks.close()
        if self._journal is not None:
            self._journal.close()
        # Closed streams get a turn to leave their loops.
        await asyncio.sleep(0)

    def local(self, user: str | User = "system:admin", groups: Iterable[str] = ()) -> LocalClient:
        """A client inside the process, acting as a user.

        Args:
            user: a name, or a User with exactly its groups. `system:admin` may do everything.
            groups: further groups of a named user. Without any, and unless RBAC is on, they do not matter.
        """
        if isinstance(user, str):
            user = ADMIN if user == ADMIN.name else with_groups(user, groups)
        return LocalClient(self.handle, user)

    def token(self, user: str | User, groups: Iterable[str] = ()) -> str:
        """A bearer token for a user, valid as long as the process."""
        return self.authenticator.issue(user if isinstance(user, User) else with_groups(user, groups))

    def kubeconfig(self, token: str | None = None, namespace: str = "default") -> JsonObject:
        """A kubeconfig for this server.

        Args:
            token: whose rights to use; the administrator's when None.
            namespace: of the context.
        """
        token = self._admin_token if token is None else token
        cluster: JsonObject = {"server": self.url}
        if self._certificate:
            cluster["certificate-authority-data"] = base64.b64encode(self._certificate).decode()
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "sandbox", "cluster": cluster}],
            "users": [{"name": "sandbox", "user": {"token": token} if token else {}}],
            "contexts": [
                {"name": "sandbox", "context": {"cluster": "sandbox", "user": "sandbox", "namespace": namespace}}
            ],
            "current-context": "sandbox",
        }
