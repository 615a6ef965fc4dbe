"""An embedded Kubernetes API server for one process on one machine.

`store` keeps objects under one revision, `semantics` says what requests mean, `presentation` how answers look,
`transport` how requests arrive, `builtin` what is particular about the built-in kinds. `docs/sandbox.md` says what the
server is not.
"""

from homelab_autoscaler.sandbox.apiserver.faults import Fault, Faults
from homelab_autoscaler.sandbox.apiserver.request import User
from homelab_autoscaler.sandbox.apiserver.server import ApiServer, ApiServerOptions
from homelab_autoscaler.sandbox.apiserver.transport.local import LocalClient
from homelab_autoscaler.sandbox.apiserver.writelog import Write, WriteLog
from homelab_autoscaler.sandbox.status import ApiStatusError

__all__ = [
    "ApiServer",
    "ApiServerOptions",
    "ApiStatusError",
    "Fault",
    "Faults",
    "LocalClient",
    "User",
    "Write",
    "WriteLog",
]
