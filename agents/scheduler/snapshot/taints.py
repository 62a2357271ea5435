"""Which nodes a pod's tolerations do not allow."""

from collections.abc import Iterable
from typing import Final

from kvstack.apimachinery.objects.core.tolerations import (
    NO_EXECUTE,
    NO_SCHEDULE,
    Taint,
    is_tolerated,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.well_known import UNSCHEDULABLE_TAINT

UNSCHEDULABLE: Final = Taint(UNSCHEDULABLE_TAINT, "", NO_SCHEDULE)


def keeps_away(taints: Iterable[Taint], tolerations: Iterable[Object]) -> bool:
    """Whether an untolerated taint forbids a node."""
    return any(
        taint.effect in (NO_SCHEDULE, NO_EXECUTE) and not is_tolerated(taint, tolerations)
        for taint in taints
    )
