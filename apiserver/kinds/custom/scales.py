"""The Scale of custom resources: its numbers are where the definition says.

scaling = scaling_of({"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"})
"""

from typing import Any

from kvstack.apiserver.kinds.custom.paths import Finder
from kvstack.apiserver.kinds.strategy import Obj, Scaling
from kvstack.apiserver.kinds.workloads.scales import scale_object, wanted_replicas
from kvstack.apiserver.objects import status
from kvstack.apiserver.objects.text.go_text import quote


def scaling_of(given: Obj) -> Scaling:
    """Return how the Scale is made that a definition describes."""
    path = given["specReplicasPath"]
    steps = tuple(path.removeprefix(".").split("."))
    wanted, current = Finder(path), Finder(given["statusReplicasPath"])
    selector_path = given.get("labelSelectorPath")
    selector = Finder(selector_path) if selector_path else None

    def scale_of(obj: Obj) -> Obj:
        replicas = wanted.first(obj)
        if replicas is None:
            raise status.unknown(f"the spec replicas field {quote(path)} does not exist")
        text = "" if selector is None else selector.first(obj, "")
        return scale_object(obj, _number(replicas), _number(current.first(obj, 0)), str(text))

    def set_replicas(obj: Obj, scale: Obj) -> None:
        replicas = wanted_replicas(obj, scale)
        holder = obj
        for each in steps[:-1]:
            below = holder.get(each)
            if not isinstance(below, dict):
                below = holder[each] = {}
            holder = below
        holder[steps[-1]] = replicas

    return Scaling(path=steps, scale_of=scale_of, set_replicas=set_replicas)


def _number(value: Any) -> int:  # noqa: ANN401 — whatever stands there
    return value if isinstance(value, int) else 0
