"""ComponentStatuses: computed on request, never stored."""

from typing import Any, Final

from kvstack.apimachinery.objects.core.conditions import find
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.kinds.strategy import Strategy


def _cells(obj: Object, _now: float) -> list[Any]:
    name = obj["metadata"]["name"]
    condition = find(obj.get("conditions"), "Healthy")
    if condition is None:
        return [name, "Unknown", "", ""]
    status = "Healthy" if condition.get("status") == "True" else "Unhealthy"
    return [name, status, condition.get("message", ""), condition.get("error", "")]


COMPONENT_STATUSES: Final = Strategy(cells=_cells)
