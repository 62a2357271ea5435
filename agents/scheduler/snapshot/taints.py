"""Which nodes a pod's tolerations do not allow."""

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from kvstack.apimachinery.objects.core.tolerations import (
    NO_EXECUTE,
    NO_SCHEDULE,
    Taint,
    is_tolerated,
)

Object: TypeAlias = dict[str, Any]

UNSCHEDULABLE: Final = Taint("node.kubernetes.io/unschedulable", "", NO_SCHEDULE)


def keeps_away(taints: Iterable[Taint], tolerations: Iterable[Object]) -> bool:
    """Whether an untolerated taint forbids a node."""
    return any(
        taint.effect in (NO_SCHEDULE, NO_EXECUTE) and not is_tolerated(taint, tolerations)
        for taint in taints
    )
