"""The file that tells the autoscaler where its provider is (`--cloud-config`)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import grpc
import yaml


@dataclass(frozen=True, slots=True)
class CloudConfig:
    """The file that `--cloud-config` names.

    Attributes:
        address: `host:port`.
        cert, key, cacert: PEM files; without `cert` the connection is plaintext.
        grpc_timeout: deadline of calls in seconds.
    """

    address: str
    cert: str = ""
    key: str = ""
    cacert: str = ""
    grpc_timeout: float = 5.0

    @classmethod
    def read(cls, path: str) -> CloudConfig:
        """Read the YAML file.

        Raises:
            ValueError: naming the file and what is wrong in it.
        """
        try:
            body = yaml.safe_load(Path(path).read_text())
        except (OSError, yaml.YAMLError) as error:
            raise ValueError(f"cannot read cloud-config {path}: {error}") from error
        if not isinstance(body, dict) or ":" not in str(body.get("address", "")):
            raise ValueError(f"cloud-config {path} needs an address of the form host:port")
        timeout = str(body.get("grpc_timeout", "5s")).removesuffix("s")
        try:
            seconds = float(timeout)
        except ValueError:
            raise ValueError(f'cloud-config {path}: grpc_timeout "{timeout}" must be seconds, like 10s') from None
        files = {name: str(body.get(name, "")) for name in ("cert", "key", "cacert")}
        return cls(str(body["address"]), grpc_timeout=seconds, **files)

    def channel(self) -> grpc.Channel:
        """Dial, lazily: nothing is connected before the first call.

        Raises:
            ValueError: a file cannot be read.
        """
        if not self.cert:
            return grpc.insecure_channel(self.address)
        try:
            read = {name: Path(getattr(self, name)).read_bytes() for name in ("cacert", "key", "cert")}
        except OSError as error:
            raise ValueError(f"cloud-config: cannot read {error.filename}: {error.strerror}") from error
        return grpc.secure_channel(
            self.address, grpc.ssl_channel_credentials(read["cacert"], read["key"], read["cert"])
        )
