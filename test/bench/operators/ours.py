"""Gives each Widget one status patch when it is seen: on our runtime."""

import logging
import sys

import structlog
from widget import Widget

from homelab_autoscaler.runtime import ControllerBuilder, Manager, ManagerOptions, Result, load_config, run_process


class SeeWidgets:
    """Writes status.seen where it is missing."""

    def __init__(self, manager: Manager) -> None:
        self._client = manager.client
        self._widgets = manager.cache.lister(Widget)

    def reconcile(self, request) -> Result:
        widget = self._widgets.get(request.name, request.namespace)
        if widget is not None and not widget.status.get("seen"):
            self._client.patch_status(widget, {"seen": True})
        return Result()


def main() -> None:
    """Arguments: kubeconfig, workers."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    manager = Manager(ManagerOptions(config=load_config(sys.argv[1])))
    manager.cache.informer(Widget)
    ControllerBuilder(manager, "widgets").for_(Widget).with_options(workers=int(sys.argv[2])).complete(
        SeeWidgets(manager)
    )
    run_process(manager)


if __name__ == "__main__":
    main()
