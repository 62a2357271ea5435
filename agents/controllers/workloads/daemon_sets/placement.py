"""Which nodes are eligible for a DaemonSet, and pods for a node.

    placement = Placement(daemon_set["spec"]["template"])
    placement.on(node)      → (a pod should run, a pod that runs may go on)
    pod_template(…), for_node(pod, "n1")

A node suits if its name, node selector and required affinity match and its taints that keep pods
away are tolerated. A running pod may stay where only NoSchedule keeps new ones away. Whether a node
is unschedulable, ready or full does not matter: the scheduler sees to it.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

from kvstack.apimachinery.objects.core.tolerations import NO_EXECUTE, NO_SCHEDULE
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.node_rules import NAME_FIELD, selects, untolerated
from kvstack.apimachinery.well_known import (
    DISK_PRESSURE_TAINT,
    MEMORY_PRESSURE_TAINT,
    NETWORK_UNAVAILABLE_TAINT,
    NOT_READY_TAINT,
    PID_PRESSURE_TAINT,
    UNREACHABLE_TAINT,
    UNSCHEDULABLE_TAINT,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


_ADDED: Final = (
    (NOT_READY_TAINT, NO_EXECUTE),
    (UNREACHABLE_TAINT, NO_EXECUTE),
    (DISK_PRESSURE_TAINT, NO_SCHEDULE),
    (MEMORY_PRESSURE_TAINT, NO_SCHEDULE),
    (PID_PRESSURE_TAINT, NO_SCHEDULE),
    (UNSCHEDULABLE_TAINT, NO_SCHEDULE),
)
_ADDED_ON_HOST_NETWORK: Final = (NETWORK_UNAVAILABLE_TAINT, NO_SCHEDULE)


class Decision(NamedTuple):
    """Whether a pod should run on a node."""

    should_run: bool
    may_stay: bool


class Placement:
    """The nodes of a template's pods."""

    def __init__(self, template: Object) -> None:
        """Read the template once, for all nodes."""
        spec = template["spec"]
        self._node_name: str = spec.get("nodeName", "")
        self._spec = with_tolerations(spec)

    def on(self, node: Object) -> Decision:
        """Decide about a node."""
        if self._node_name not in ("", node["metadata"]["name"]):
            return Decision(False, False)
        if not selects(self._spec, node):
            return Decision(False, False)
        effects = untolerated(self._spec, node)
        may_stay = NO_EXECUTE not in effects
        return Decision(may_stay and NO_SCHEDULE not in effects, may_stay)


def with_tolerations(spec: Object) -> Object:
    """Return a pod's spec with what every pod of a DaemonSet tolerates."""
    added = [*_ADDED, _ADDED_ON_HOST_NETWORK] if spec.get("hostNetwork") else _ADDED
    tolerations = list(spec.get("tolerations") or ())
    for key, effect in added:
        toleration = {"key": key, "operator": "Exists", "effect": effect}
        # One that is the same but for its value or seconds is replaced.
        same = [
            number
            for number, each in enumerate(tolerations)
            if all(each.get(part, "") == toleration[part] for part in toleration)
            and not each.get("value")
        ]
        if same:
            tolerations[same[0]] = toleration
        else:
            tolerations.append(toleration)
    return {**spec, "tolerations": tolerations}


def for_node(spec: Object, node: str) -> Object:
    """Return a pod's spec that the scheduler can bind to one node only."""
    affinity = spec.get("affinity") or {}
    node_affinity = affinity.get("nodeAffinity") or {}
    term = {"matchFields": [{"key": NAME_FIELD, "operator": "In", "values": [node]}]}
    node_affinity = {
        **node_affinity,
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]},
    }
    return {**spec, "affinity": {**affinity, "nodeAffinity": node_affinity}}


def node_of(pod: Object) -> str:
    """Return the node that a pod is on, or made for; empty: none."""
    spec = pod["spec"]
    if spec.get("nodeName"):
        name: str = spec["nodeName"]
        return name
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field["key"] == NAME_FIELD and field["operator"] == "In":
                values: Sequence[str] = field.get("values") or ()
                return values[0] if len(values) == 1 else ""
    return ""
