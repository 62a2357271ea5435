"""Whether a node allows a pod: node selectors, required affinity, taints."""

from collections.abc import Iterable, Mapping
from typing import Final

from kvstack.apimachinery.objects import labels
from kvstack.apimachinery.objects.core.tolerations import is_tolerated, taints_of
from kvstack.apimachinery.objects.json_object import Object

NAME_FIELD: Final = "metadata.name"
_OPERATORS: Final = {
    "In": labels.IN,
    "NotIn": labels.NOT_IN,
    "Exists": labels.EXISTS,
    "DoesNotExist": labels.DOES_NOT_EXIST,
    "Gt": labels.GREATER_THAN,
    "Lt": labels.LESS_THAN,
}


def selects(spec: Object, node: Object) -> bool:
    """Return whether a pod's nodeSelector and its required affinity allow a node."""
    wanted: Mapping[str, str] = spec.get("nodeSelector") or {}
    if not wanted.items() <= (node["metadata"].get("labels") or {}).items():
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return any(_matches(term, node) for term in required.get("nodeSelectorTerms") or ())


def untolerated(spec: Object, node: Object) -> set[str]:
    """Return the effects of a node's taints that a pod does not tolerate."""
    tolerations = spec.get("tolerations") or ()
    return {taint.effect for taint in taints_of(node) if not is_tolerated(taint, tolerations)}


def _matches(term: Object, node: Object) -> bool:
    """Return whether a term of a node selector matches; an empty or invalid one does not."""
    expressions = term.get("matchExpressions") or ()
    fields = term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    meta = node["metadata"]
    try:
        by_labels = _selector(expressions).matches(meta.get("labels") or {})
        return by_labels and _selector(fields).matches({NAME_FIELD: meta["name"]})
    except labels.SelectorError:
        return False


def _selector(expressions: Iterable[Object]) -> labels.Selector:
    return labels.Selector(
        labels.requirement(each["key"], _OPERATORS[each["operator"]], each.get("values") or ())
        for each in expressions
    )
