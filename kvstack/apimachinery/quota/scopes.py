"""Scopes of quotas: which objects a quota counts at all.

    {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}

A quota with several scopes counts objects that are in all of them. Resources that have no scopes
are in none.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from kvstack.apimachinery.objects.core.quality_of_service import BEST_EFFORT, computed_quality
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.labels import SelectorError, from_object

Scope: TypeAlias = Mapping[str, Any]
IsIn: TypeAlias = Callable[[Scope, Object], bool]

_PRIORITY_CLASS: Final = "PriorityClass"
_ATTRIBUTES_CLASS: Final = "VolumeAttributesClass"
_TERMS: Final = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)


def scopes_of(quota: Object) -> list[Scope]:
    """Return the scopes of a quota."""
    spec = quota.get("spec") or {}
    scopes: list[Scope] = [
        {"scopeName": each, "operator": "Exists"} for each in spec.get("scopes") or ()
    ]
    scopes += (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    return scopes


def is_in_none(_scope: Scope, _obj: Object) -> bool:
    """Return False: an object without scopes is in none."""
    return False


def is_pod_in(scope: Scope, pod: Object) -> bool:
    """Return whether a pod is in a scope."""
    name, spec = scope.get("scopeName"), pod.get("spec") or {}
    if name in {"Terminating", "NotTerminating"}:
        return is_terminating(pod) is (name == "Terminating")
    if name in {"BestEffort", "NotBestEffort"}:
        return (computed_quality(spec) == BEST_EFFORT) is (name == "BestEffort")
    if name == _PRIORITY_CLASS:
        class_name = spec.get("priorityClassName")
        return _selects(scope, [class_name] if class_name else [])
    if name == "CrossNamespacePodAffinity":
        return _reaches_other_namespaces(spec)
    return False


def is_claim_in(scope: Scope, claim: Object) -> bool:
    """Return whether a claim is in a scope."""
    if scope.get("scopeName") != _ATTRIBUTES_CLASS:
        return False
    return _selects(scope, attributes_classes(claim))


def is_terminating(pod: Object) -> bool:
    """Return whether a pod has a deadline (scope Terminating)."""
    seconds = (pod.get("spec") or {}).get("activeDeadlineSeconds")
    return seconds is not None and seconds >= 0


def attributes_classes(claim: Object) -> list[str]:
    """Return the VolumeAttributesClasses that a claim has, wants and gets."""
    status = claim.get("status") or {}
    names = (
        (claim.get("spec") or {}).get("volumeAttributesClassName"),
        status.get("currentVolumeAttributesClassName"),
        (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName"),
    )
    return sorted({each for each in names if each})


def _selects(scope: Scope, names: Iterable[str]) -> bool:
    key = scope.get("scopeName", "")
    expression = {
        "key": key,
        "operator": scope.get("operator", ""),
        "values": scope.get("values") or (),
    }
    try:
        selector = from_object({"matchExpressions": [expression]})
    except SelectorError:
        return False
    found = [{key: each} for each in names] or [{}]
    return any(selector.matches(each) for each in found)


def _reaches_other_namespaces(spec: Object) -> bool:
    affinity = spec.get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        for name in _TERMS:
            for each in (affinity.get(kind) or {}).get(name) or ():
                term = each.get("podAffinityTerm", each)
                if term.get("namespaces") or term.get("namespaceSelector") is not None:
                    return True
    return False
