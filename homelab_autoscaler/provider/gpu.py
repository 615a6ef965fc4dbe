"""The label that tells the autoscaler which nodes have a GPU, and the kinds that it names.

Source: the contract's section 3 and 5. A node with that label and without an allocatable GPU counts as unready for
ever, so the label is only named if every group that has it in its template also promises a GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from homelab_api.v2alpha1 import Group


def gpu_label(groups: Iterable[Group]) -> str:
    """The first label (by name) that says gpu or accelerator and marks exactly the groups with a GPU; "" if none."""
    with_gpu: list[Mapping[str, str]] = []
    without: list[Mapping[str, str]] = []
    for group in groups:
        (with_gpu if promises_gpu(group) else without).append(template_labels(group))
    if not with_gpu:
        return ""
    shared = set(with_gpu[0]).intersection(*with_gpu[1:])
    candidates = (key for key in sorted(shared) if "gpu" in key.lower() or "accelerator" in key.lower())
    return next((key for key in candidates if not any(key in labels for labels in without)), "")


def gpu_types(groups: Iterable[Group]) -> list[str]:
    """The values of that label over the groups that have it, sorted."""
    known = list(groups)
    label = gpu_label(known)
    return sorted({template_labels(group)[label] for group in known if promises_gpu(group)}) if label else []


def promises_gpu(group: Group) -> bool:
    """Whether the group's template offers an extended resource that is a GPU, like `nvidia.com/gpu`."""
    template = group.spec.template
    resources = {**template.capacity, **template.allocatable} if template else {}
    return any("/" in name and "gpu" in name.lower() and amount != "0" for name, amount in resources.items())


def template_labels(group: Group) -> dict[str, str]:
    """Labels of the group's machines, as the group itself promises them."""
    return {**group.spec.node_labels, **(group.spec.template.labels if group.spec.template else {})}
