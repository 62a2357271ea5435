"""ComponentStatuses: computed on request, never stored."""

from typing import Any, Final

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.kinds.strategy import Strategy


def _cells(obj: Object, _now: float) -> list[Any]:
    name = obj["metadata"]["name"]
    for each in obj.get("conditions") or ():
        if each.get("type") == "Healthy":
            status = "Healthy" if each.get("status") == "True" else "Unhealthy"
            return [name, status, each.get("message", ""), each.get("error", "")]
    return [name, "Unknown", "", ""]


COMPONENT_STATUSES: Final = Strategy(cells=_cells)
