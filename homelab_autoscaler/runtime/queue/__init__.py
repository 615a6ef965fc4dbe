"""Work queues: `PriorityQueue` for controllers, and the classic three layers."""

from homelab_autoscaler.runtime.queue.delaying import DelayingQueue, RateLimitingQueue
from homelab_autoscaler.runtime.queue.limiters import (
    BucketLimiter,
    ExponentialLimiter,
    FastSlowLimiter,
    MaxLimiter,
    MaxWaitLimiter,
    RateLimiter,
    default_limiter,
)
from homelab_autoscaler.runtime.queue.metrics import NoQueueMetrics, QueueMetrics
from homelab_autoscaler.runtime.queue.priority import PriorityQueue
from homelab_autoscaler.runtime.queue.workqueue import QueueShutDown, WorkQueue

__all__ = [
    "BucketLimiter",
    "DelayingQueue",
    "ExponentialLimiter",
    "FastSlowLimiter",
    "MaxLimiter",
    "MaxWaitLimiter",
    "NoQueueMetrics",
    "PriorityQueue",
    "QueueMetrics",
    "QueueShutDown",
    "RateLimiter",
    "RateLimitingQueue",
    "WorkQueue",
    "default_limiter",
]
