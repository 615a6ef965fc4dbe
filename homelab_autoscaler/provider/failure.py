"""Refusals and failures of a call, with the status code that they get on the wire.

Cluster Autoscaler treats every code alike, UNIMPLEMENTED of the optional calls excepted; the text reaches its log and
events, so each names the group, the claim or node, and the cause.
"""

from __future__ import annotations

from enum import Enum


class Cause(Enum):
    """Why a call did not do what it was asked; the names are those of gRPC's status codes."""

    INVALID_ARGUMENT = "the request makes no sense by itself"
    NOT_FOUND = "no such group, or a node that was never ours"
    FAILED_PRECONDITION = "the pool's present state does not allow it; nothing was done"
    ABORTED = "something changed underneath; trying again is right"
    DEADLINE_EXCEEDED = "the caller has given up; nothing was left behind"
    UNAVAILABLE = "the API server does not answer, or the provider has not yet read the pool"
    PERMISSION_DENIED = "the client is not one that may call"
    UNIMPLEMENTED = "not configured: the autoscaler falls back to its own ways"
    INTERNAL = "the API server refuses, or a fault of ours"


class CallError(Exception):
    """A call that ends with a status other than OK."""

    def __init__(self, cause: Cause, text: str) -> None:
        super().__init__(text)
        self.cause = cause
        self.text = text
