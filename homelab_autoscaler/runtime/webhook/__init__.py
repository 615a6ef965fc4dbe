"""Admission webhooks: `WebhookServer` with handlers by path, and certificates that renew themselves."""

from homelab_autoscaler.runtime.webhook.admission import (
    AdmissionHandler,
    AdmissionRequest,
    Decision,
    FieldCause,
    NotReadyError,
    UnreadableObjectError,
    allow,
    deny,
    field_path,
    mutate,
)
from homelab_autoscaler.runtime.webhook.certificates import (
    CertificateError,
    ManagedCertificates,
    ManagedCertificatesOptions,
    MountedCertificates,
)
from homelab_autoscaler.runtime.webhook.server import WebhookServer

__all__ = [
    "AdmissionHandler",
    "AdmissionRequest",
    "CertificateError",
    "Decision",
    "FieldCause",
    "ManagedCertificates",
    "ManagedCertificatesOptions",
    "MountedCertificates",
    "NotReadyError",
    "UnreadableObjectError",
    "WebhookServer",
    "allow",
    "deny",
    "field_path",
    "mutate",
]
