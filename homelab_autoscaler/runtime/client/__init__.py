"""Talking to the API server: `Client` for typed requests, `Transport` for the HTTP below it."""

from homelab_autoscaler.runtime.client.client import Client, ObjectList, Propagation, Write
from homelab_autoscaler.runtime.client.ratelimit import TokenBucket
from homelab_autoscaler.runtime.client.retry import NO_RETRY, RetryPolicy
from homelab_autoscaler.runtime.client.transport import Reply, RequestSeen, Stream, Transport

__all__ = [
    "NO_RETRY",
    "Client",
    "ObjectList",
    "Propagation",
    "Reply",
    "RequestSeen",
    "RetryPolicy",
    "Stream",
    "TokenBucket",
    "Transport",
    "Write",
]
