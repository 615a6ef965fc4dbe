"""What tests of operators need: virtual time, and a source of objects without a server."""

from homelab_autoscaler.runtime.cache.mutation import MutationError, check_mutations
from homelab_autoscaler.runtime.testing.clock import FakeClock, eventually
from homelab_autoscaler.runtime.testing.source import FakeSource, FakeWatch

__all__ = ["FakeClock", "FakeSource", "FakeWatch", "MutationError", "check_mutations", "eventually"]
