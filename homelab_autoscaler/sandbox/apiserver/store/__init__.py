"""Storage: objects as bytes under one global revision, a bounded log of what happened, and those who watch it."""

from homelab_autoscaler.sandbox.apiserver.store.objects import Change, Key, Stored
from homelab_autoscaler.sandbox.apiserver.store.store import Collection, ExpiredRevisionError, Store
from homelab_autoscaler.sandbox.apiserver.store.watchers import Watcher

__all__ = ["Change", "Collection", "ExpiredRevisionError", "Key", "Store", "Stored", "Watcher"]
