"""The pace of a sandbox: every delay of the simulated cluster in one place, faster by one factor."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

from homelab_autoscaler.sandbox.kubelet.node_agent import KubeletTimings


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds, with Kubernetes' own defaults.

    What objects say themselves (activeDeadlineSeconds, ttlSecondsAfterFinished, tolerationSeconds, grace periods) is
    not scaled: it is part of the API. Whoever runs a scaled sandbox writes scaled numbers into objects.

    Attributes:
        factor: By how much everything was made faster.
        node_grace: Silence of a kubelet until its node is Unknown.
        node_startup_grace: The same for a node that never posted a status.
        pod_gc_quarantine: How long a node is missing before its pods go.
        namespace_retry: Between looks at a namespace that still holds something.
        kubelet: The kubelets' pace.
    """

    factor: float = 1.0
    node_grace: float = 40.0
    node_startup_grace: float = 60.0
    pod_gc_quarantine: float = 40.0
    namespace_retry: float = 0.5
    kubelet: KubeletTimings = field(default_factory=KubeletTimings)

    def scaled(self, factor: float) -> Timings:
        """Every delay divided by the factor.

        Raises:
            ValueError: the factor is not positive.
        """
        if factor <= 0:
            raise ValueError(f"speed {factor} must be greater than 0: 20 means twenty times faster")
        times = {
            item.name: getattr(self, item.name) / factor
            for item in fields(self)
            if item.name not in ("factor", "kubelet")
        }
        return replace(self, factor=self.factor * factor, kubelet=self.kubelet.scaled(factor), **times)
