"""Which nodes suit a DaemonSet, and pods made for a node.

    placement = Placement(daemon_set["spec"]["template"])
    placement.on(node)      → (a pod should run, a pod that runs may go on)
    pod_template(…), for_node(pod, "n1")

A node suits if its name, node selector and required affinity match and its taints that keep pods
away are tolerated. A running pod may stay where only NoSchedule keeps new ones away. Whether a node
is unschedulable, ready or full does not matter: the scheduler sees to it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from kvstack.apiserver.objects import labels
from kvstack.apiserver.objects.text.go_numbers import NumberError, parse_int

Object: TypeAlias = dict[str, Any]

_NAME_FIELD: Final = "metadata.name"
_OPERATORS: Final = {
    "In": labels.IN,
    "NotIn": labels.NOT_IN,
    "Exists": labels.EXISTS,
    "DoesNotExist": labels.DOES_NOT_EXIST,
    "Gt": labels.GREATER_THAN,
    "Lt": labels.LESS_THAN,
}
_NO_EXECUTE: Final = "NoExecute"
_NO_SCHEDULE: Final = "NoSchedule"
_ADDED: Final = (
    ("not-ready", _NO_EXECUTE),
    ("unreachable", _NO_EXECUTE),
    ("disk-pressure", _NO_SCHEDULE),
    ("memory-pressure", _NO_SCHEDULE),
    ("pid-pressure", _NO_SCHEDULE),
    ("unschedulable", _NO_SCHEDULE),
)
_ADDED_ON_HOST_NETWORK: Final = ("network-unavailable", _NO_SCHEDULE)


class Decision(NamedTuple):
    """What is to be on a node."""

    should_run: bool
    may_stay: bool


class Placement:
    """Where the pods of a template belong."""

    def __init__(self, template: Object) -> None:
        """Read the template once, for all nodes."""
        spec = template["spec"]
        self._node_name: str = spec.get("nodeName", "")
        self._selector: Mapping[str, str] = spec.get("nodeSelector") or {}
        affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
        self._terms: Sequence[Object] | None = (
            None if required is None else required.get("nodeSelectorTerms") or ()
        )
        self._tolerations = with_tolerations(spec).get("tolerations") or ()

    def on(self, node: Object) -> Decision:
        """Decide about a node."""
        if self._node_name not in ("", node["metadata"]["name"]):
            return Decision(False, False)
        if not self._has_affinity(node):
            return Decision(False, False)
        effects = {
            taint["effect"]
            for taint in (node.get("spec") or {}).get("taints") or ()
            if not any(tolerates(each, taint) for each in self._tolerations)
        }
        may_stay = _NO_EXECUTE not in effects
        return Decision(may_stay and _NO_SCHEDULE not in effects, may_stay)

    def _has_affinity(self, node: Object) -> bool:
        found = node["metadata"].get("labels") or {}
        if not self._selector.items() <= found.items():
            return False
        return self._terms is None or any(_matches(term, node) for term in self._terms)


def _matches(term: Object, node: Object) -> bool:
    """Whether a term of a node selector matches; an empty one, or one in error, does not."""
    expressions = term.get("matchExpressions") or ()
    fields = term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    meta = node["metadata"]
    try:
        by_labels = _selector(expressions).matches(meta.get("labels") or {})
        return by_labels and _selector(fields).matches({_NAME_FIELD: meta["name"]})
    except labels.SelectorError:
        return False


def _selector(expressions: Iterable[Object]) -> labels.Selector:
    return labels.Selector(
        labels.requirement(each["key"], _OPERATORS[each["operator"]], each.get("values") or ())
        for each in expressions
    )


def tolerates(toleration: Object, taint: Object) -> bool:
    """Whether a toleration tolerates a taint."""
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    operator = toleration.get("operator") or "Equal"
    value: str = toleration.get("value", "")
    if operator == "Exists":
        return True
    if operator == "Equal":
        return bool(value == taint.get("value", ""))
    try:
        number, bound = parse_int(taint.get("value", "")), parse_int(value)
    except NumberError:
        return False
    return number > bound if operator == "Gt" else number < bound


def with_tolerations(spec: Object) -> Object:
    """Return a pod's spec with what every pod of a DaemonSet tolerates."""
    added = [*_ADDED, _ADDED_ON_HOST_NETWORK] if spec.get("hostNetwork") else _ADDED
    tolerations = list(spec.get("tolerations") or ())
    for name, effect in added:
        wanted = {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": effect}
        # One that is the same but for its value or seconds is replaced.
        same = [
            number
            for number, each in enumerate(tolerations)
            if all(each.get(part, "") == wanted[part] for part in wanted) and not each.get("value")
        ]
        if same:
            tolerations[same[0]] = wanted
        else:
            tolerations.append(wanted)
    return {**spec, "tolerations": tolerations}


def for_node(spec: Object, node: str) -> Object:
    """Return a pod's spec that the scheduler can bind to one node only."""
    affinity = spec.get("affinity") or {}
    node_affinity = affinity.get("nodeAffinity") or {}
    term = {"matchFields": [{"key": _NAME_FIELD, "operator": "In", "values": [node]}]}
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
            if field["key"] == _NAME_FIELD and field["operator"] == "In":
                values: Sequence[str] = field.get("values") or ()
                return values[0] if len(values) == 1 else ""
    return ""
