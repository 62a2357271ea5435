"""The metrics of a controller manager, under upstream's names."""

from typing import Final

from kvstack.agents.reconcile.manager import Manager
from kvstack.component.metrics.exposition import FamilyKind, FamilySamples, labels

_MANAGER: Final = "kube-controller-manager"


def manager_metrics(manager: Manager | None) -> list[FamilySamples]:
    """Return the samples of the controllers that work; None: none does."""
    runners = manager.runners if manager is not None else []
    adds, depths, retries, running = {}, {}, {}, {}
    for runner in runners:
        name = runner.controller.identity.name
        running[labels(manager=_MANAGER, name=name)] = 1
        key = labels(name=name.removesuffix("-controller"))
        work = runner.work
        adds[key], depths[key], retries[key] = work.added, work.waiting, work.retried
    return [
        (
            "running_managed_controllers",
            FamilyKind.GAUGE,
            "Indicates where instances of a controller are currently running",
            running,
        ),
        (
            "workqueue_adds_total",
            FamilyKind.COUNTER,
            "Total number of adds handled by workqueue",
            adds,
        ),
        ("workqueue_depth", FamilyKind.GAUGE, "Current depth of workqueue", depths),
        (
            "workqueue_retries_total",
            FamilyKind.COUNTER,
            "Total number of retries handled by workqueue",
            retries,
        ),
    ]
