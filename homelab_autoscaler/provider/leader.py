"""The label by which the Service finds the one pod that serves.

Only the leader listens. Its pod carries `infra.homecluster.dev/leader=true`; a pod that led before may still carry it
(a crash removes no label), so a new leader takes it from the others, and a pod takes it from itself when it starts.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import structlog

from homelab_api import names
from homelab_api.core import Pod
from homelab_autoscaler.runtime.errors import ApiError
from homelab_autoscaler.runtime.patch import MergePatch

if TYPE_CHECKING:
    from homelab_autoscaler.runtime.client import Client

log = structlog.get_logger(__name__)
_TRUE = "true"


class LeaderLabel:
    """Sets and clears the label on the manager's own pod. Outside a pod it does nothing.

    A failure is logged and not raised: without the label the Service has no endpoint, which a person sees; ending
    the manager for it would help nobody.

    Args:
        client: for Pods of the manager's namespace.
        name: of the own pod; "" outside a pod.
        namespace: of the own pod.
    """

    def __init__(self, client: Client, name: str, namespace: str) -> None:
        self._client = client
        self._name = name
        self._namespace = namespace

    @classmethod
    def from_environment(cls, client: Client) -> LeaderLabel:
        """For the pod that POD_NAME and POD_NAMESPACE (set by the Deployment) name."""
        return cls(client, os.environ.get("POD_NAME", ""), os.environ.get("POD_NAMESPACE", ""))

    def claim(self) -> None:
        """Make this pod the only one with the label."""
        if not self._name:
            return
        try:
            self._set(self._name, _TRUE)
            others = self._client.list(Pod, self._namespace, label_selector=f"{names.LABEL_LEADER}={_TRUE}")
            for pod in others.items:
                if pod.name != self._name:
                    self._set(pod.name, None)
        except ApiError as error:
            log.exception("the leader's pod could not be labelled: the autoscaler may not reach it", error=str(error))

    def clear(self) -> None:
        """Take the label off this pod."""
        if not self._name:
            return
        try:
            self._set(self._name, None)
        except ApiError as error:
            log.warning("the pod's leader label could not be cleared", error=str(error))

    def _set(self, pod: str, value: str | None) -> None:
        body = {"metadata": {"labels": {names.LABEL_LEADER: value}}}
        self._client.patch(Pod, pod, self._namespace, MergePatch(body))
