"""The local copy of the API: reflector, store, indexes, informers, listers.

Data flows in one direction: a `ListWatch` is read by a `Reflector`, which feeds an `Informer`, which keeps a `Store`
(read through a `Lister`) and tells its handlers; a `Cache` holds one informer per kind and scope.
"""

from homelab_autoscaler.runtime.cache.backoff import Backoff, BackoffOptions
from homelab_autoscaler.runtime.cache.cache import Cache
from homelab_autoscaler.runtime.cache.delivery import Handler, Registration
from homelab_autoscaler.runtime.cache.indexers import Indexer, field_index_name, field_indexer
from homelab_autoscaler.runtime.cache.informer import Informer
from homelab_autoscaler.runtime.cache.lister import CacheNotStartedError, Lister
from homelab_autoscaler.runtime.cache.listwatch import ApiListWatch, ListPage, ListWatch, Watch, WatchEvent
from homelab_autoscaler.runtime.cache.mutation import MutationError, check_mutations
from homelab_autoscaler.runtime.cache.reflector import Reflector, ReflectorOptions, Sink
from homelab_autoscaler.runtime.cache.store import Store, Transform, is_older, object_key, strip_managed_fields

__all__ = [
    "ApiListWatch",
    "Backoff",
    "BackoffOptions",
    "Cache",
    "CacheNotStartedError",
    "Handler",
    "Indexer",
    "Informer",
    "ListPage",
    "ListWatch",
    "Lister",
    "MutationError",
    "Reflector",
    "ReflectorOptions",
    "Registration",
    "Sink",
    "Store",
    "Transform",
    "Watch",
    "WatchEvent",
    "check_mutations",
    "field_index_name",
    "field_indexer",
    "is_older",
    "object_key",
    "strip_managed_fields",
]
