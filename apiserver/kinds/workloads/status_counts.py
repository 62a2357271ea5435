"""Validation of counters in workload statuses.

RULES = StatusCounts(
    not_negative=("replicas", "readyReplicas"),
    limits=(("readyReplicas", "replicas", "cannot be greater than status.replicas"),),
)
RULES.check(errors, {"replicas": 1, "readyReplicas": 2})
→ status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas
"""

from typing import NamedTuple

from kvstack.apimachinery.objects.field_errors import child, invalid
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.kinds.rules import Errors, check_not_negative


class StatusCounts(NamedTuple):
    """The checks of one kind."""

    not_negative: tuple[str, ...]
    """Counters in the order of errors."""
    limits: tuple[tuple[str, str, str], ...] = ()
    """Counter, its upper bound (another counter), and the error text."""

    def check(self, errors: Errors, status: Object) -> None:
        """Check the counters of a status."""
        for name in self.not_negative:
            check_not_negative(errors, child("status", name), status.get(name))
        for name, limit, message in self.limits:
            value = status.get(name, 0)
            if value > status.get(limit, 0):
                errors.append(invalid(child("status", name), value, message))


def check_collisions(errors: Errors, new: Object, old: Object) -> None:
    """Check that collisionCount has not decreased."""
    count = (new.get("status") or {}).get("collisionCount")
    before = (old.get("status") or {}).get("collisionCount")
    if before is not None and (count is None or count < before):
        errors.append(invalid("status.collisionCount", count or 0, "cannot be decremented"))
