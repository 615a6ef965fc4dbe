"""A controller runtime: what an operator needs besides its own logic. It knows nothing of machines.

The tour, in the order in which data flows:

1. `Client` asks the API server, typed and uncached; `load_config` finds the server.
2. `Cache` keeps local copies: an informer per kind lists, watches and stores; a `Lister` reads.
3. `ControllerBuilder` connects kinds to a `Reconciler`: events become `Request`s on a queue that holds each object
   once; workers call `reconcile` and act on its `Result` or exception.
4. `Manager` runs all of it in order, with leader election, probes, metrics and events, until a `StopSignal`.

The smallest operator:

    class LabelNodes:
        def __init__(self, manager: Manager) -> None:
            self._nodes = manager.cache.lister(CoreNode)
            self._client = manager.client

        def reconcile(self, request: Request) -> Result:
            node = self._nodes.get(request.name)
            if node is not None and "seen" not in node.metadata.labels:
                patch = MergePatch({"metadata": {"labels": {"seen": "true"}}})
                self._client.patch(CoreNode, node.name, None, patch)
            return Result()

    manager = Manager(ManagerOptions(config=load_config()))
    manager.cache.informer(CoreNode)
    ControllerBuilder(manager, "label-nodes").for_(CoreNode).complete(LabelNodes(manager))
    run_process(manager)

Everything takes its clock, its random source and its object source from outside; `testing` has fake ones.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from homelab_autoscaler.runtime.builder import ControllerBuilder
    from homelab_autoscaler.runtime.cache import Cache, Informer, Lister, field_indexer
    from homelab_autoscaler.runtime.channel import Channel
    from homelab_autoscaler.runtime.client import Client, ObjectList
    from homelab_autoscaler.runtime.clock import Clock, SystemClock
    from homelab_autoscaler.runtime.config import ClientConfig, ConfigError, load_config
    from homelab_autoscaler.runtime.controller import Controller
    from homelab_autoscaler.runtime.errors import (
        AlreadyExistsError,
        ApiError,
        BadRequestError,
        ConflictError,
        DeadlineExceededError,
        ForbiddenError,
        GoneError,
        InternalServerError,
        InvalidError,
        NotFoundError,
        ServerTimeoutError,
        TooManyRequestsError,
        TransportError,
        UnauthorizedError,
        UnavailableError,
    )
    from homelab_autoscaler.runtime.leaderelection import LeaderElectionOptions, Leadership, LeadershipLost
    from homelab_autoscaler.runtime.manager import Manager, ManagerOptions, Runnable, run_process
    from homelab_autoscaler.runtime.patch import ApplyPatch, JsonPatch, MergePatch, Patch, StrategicMergePatch
    from homelab_autoscaler.runtime.reconcile import Reconciler, Request, Result, TerminalError
    from homelab_autoscaler.runtime.recorder import EventRecorder
    from homelab_autoscaler.runtime.server_clock import ServerClock
    from homelab_autoscaler.runtime.stop import StopSignal

_HOMES = {
    "builder": ("ControllerBuilder",),
    "cache": ("Cache", "Informer", "Lister", "field_indexer"),
    "channel": ("Channel",),
    "client": ("Client", "ObjectList"),
    "clock": ("Clock", "SystemClock"),
    "config": ("ClientConfig", "ConfigError", "load_config"),
    "controller": ("Controller",),
    "errors": (
        "AlreadyExistsError",
        "ApiError",
        "BadRequestError",
        "ConflictError",
        "DeadlineExceededError",
        "ForbiddenError",
        "GoneError",
        "InternalServerError",
        "InvalidError",
        "NotFoundError",
        "ServerTimeoutError",
        "TooManyRequestsError",
        "TransportError",
        "UnauthorizedError",
        "UnavailableError",
    ),
    "leaderelection": ("LeaderElectionOptions", "Leadership", "LeadershipLost"),
    "manager": ("Manager", "ManagerOptions", "Runnable", "run_process"),
    "patch": ("ApplyPatch", "JsonPatch", "MergePatch", "Patch", "StrategicMergePatch"),
    "reconcile": ("Reconciler", "Request", "Result", "TerminalError"),
    "recorder": ("EventRecorder",),
    "server_clock": ("ServerClock",),
    "stop": ("StopSignal",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}
__all__ = [
    "AlreadyExistsError",
    "ApiError",
    "ApplyPatch",
    "BadRequestError",
    "Cache",
    "Channel",
    "Client",
    "ClientConfig",
    "Clock",
    "ConfigError",
    "ConflictError",
    "Controller",
    "ControllerBuilder",
    "DeadlineExceededError",
    "EventRecorder",
    "ForbiddenError",
    "GoneError",
    "Informer",
    "InternalServerError",
    "InvalidError",
    "JsonPatch",
    "LeaderElectionOptions",
    "Leadership",
    "LeadershipLost",
    "Lister",
    "Manager",
    "ManagerOptions",
    "MergePatch",
    "NotFoundError",
    "ObjectList",
    "Patch",
    "Reconciler",
    "Request",
    "Result",
    "Runnable",
    "ServerClock",
    "ServerTimeoutError",
    "StopSignal",
    "StrategicMergePatch",
    "SystemClock",
    "TerminalError",
    "TooManyRequestsError",
    "TransportError",
    "UnauthorizedError",
    "UnavailableError",
    "field_indexer",
    "load_config",
    "run_process",
]


def __getattr__(name: str) -> Any:
    """Import a public name from its module when it is first used, so that small programs stay small."""
    module = _HOME_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value
