"""HTTP servers of a manager."""

from homelab_autoscaler.runtime.http.routes import HttpServer, Route, health_route, metrics_route
from homelab_autoscaler.runtime.http.server import ThreadedServer, parse_address

__all__ = ["HttpServer", "Route", "ThreadedServer", "health_route", "metrics_route", "parse_address"]
