"""Probes and metrics over HTTP."""

from homelab_autoscaler.runtime.health.checks import Check, CheckReport, HealthChecks
from homelab_autoscaler.runtime.health.server import HttpServer, health_route, metrics_route, parse_address

__all__ = ["Check", "CheckReport", "HealthChecks", "HttpServer", "health_route", "metrics_route", "parse_address"]
