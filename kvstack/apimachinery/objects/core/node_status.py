"""Facts from a node's status: whether it is ready."""

from typing import Final

from kvstack.apimachinery.objects.core import conditions
from kvstack.apimachinery.objects.json_object import Object

READY: Final = "Ready"


def ready_condition(node: Object) -> Object | None:
    """Return the condition that its kubelet renews; None: it never did."""
    return conditions.find((node.get("status") or {}).get("conditions"), READY)


def is_ready(node: Object) -> bool:
    """Return whether the node is Ready."""
    return conditions.is_true((node.get("status") or {}).get("conditions"), READY)
