"""Health checks."""

from homelab_autoscaler.runtime.health.checks import Check, CheckReport, HealthChecks

__all__ = ["Check", "CheckReport", "HealthChecks"]
