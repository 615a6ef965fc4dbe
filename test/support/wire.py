"""Requests as bytes: what no client library would send."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
import urllib.parse
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from pathlib import Path


class Wire:
    """The address of an API server and a token for it, from a kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        content = yaml.safe_load(kubeconfig.read_text())
        cluster = content["clusters"][0]["cluster"]
        url = urllib.parse.urlsplit(cluster["server"])
        self.address = (url.hostname, url.port)
        self.token = content["users"][0]["user"].get("token", "")
        authority = cluster.get("certificate-authority-data")
        secure = url.scheme == "https"
        text = base64.b64decode(authority).decode() if authority else None
        self._tls = ssl.create_default_context(cadata=text) if secure else None

    def send(self, method, path, body=None, content_type="application/json", accept="application/json", **headers):
        """One raw request; the answer as (status, parsed body or text)."""
        sent = {"Accept": accept, **{key.replace("_", "-"): value for key, value in headers.items()}}
        if self.token:
            sent.setdefault("Authorization", f"Bearer {self.token}")
        if body is not None:
            sent["Content-Type"] = content_type
        if self._tls:
            connection = http.client.HTTPSConnection(*self.address, timeout=30, context=self._tls)
        else:
            connection = http.client.HTTPConnection(*self.address, timeout=30)
        try:
            connection.request(method, path, body, sent)
            with connection.getresponse() as response:
                status, raw = response.status, response.read()
        finally:
            connection.close()
        try:
            return status, json.loads(raw)
        except ValueError:
            return status, raw.decode(errors="replace")

    def connect(self) -> socket.socket:
        """An open connection."""
        plain = socket.create_connection(self.address, timeout=30)
        return self._tls.wrap_socket(plain, server_hostname=self.address[0]) if self._tls else plain

    def head(self, method, path, *lines):
        """The head of a request, as bytes."""
        known = [f"{method} {path} HTTP/1.1", f"Host: {self.address[0]}:{self.address[1]}"]
        if self.token:
            known.append(f"Authorization: Bearer {self.token}")
        return "\r\n".join([*known, *lines, "", ""]).encode()
