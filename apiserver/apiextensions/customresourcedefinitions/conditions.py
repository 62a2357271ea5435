"""The status of a definition: its accepted names, and its conditions.

    named = with_names(definition, others, now)     NamesAccepted, Established, acceptedNames

Names are checked against those accepted for other definitions of the same group; existing ones are
kept. If the accepted names are unchanged and somebody removed the condition, it is not added again,
as upstream.
"""

from collections.abc import Iterable
from typing import Any, Final

from kvstack.apimachinery.objects.core import conditions
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text import json_text
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.component.certs.ca_bundles import bundle_problem

CLEANUP: Final = "customresourcecleanup.apiextensions.k8s.io"
"""The finalizer that keeps a definition until its objects are deleted."""
TERMINATING: Final = "Terminating"
ESTABLISHED: Final = "Established"
NAMES_ACCEPTED: Final = "NamesAccepted"
TRUE: Final = "True"
FALSE: Final = "False"

_ALL_FINE: Final = "no conflicts found"
_NAMED: Final = "the initial names have been accepted"
_UNNAMED: Final = "not all names are accepted"
_BAD_BUNDLE: Final = "The conversion webhook CABundle is invalid"


def _has(definition: Object, type_: str) -> bool:
    return conditions.find((definition.get("status") or {}).get("conditions"), type_) is not None


def is_true(definition: Object, type_: str) -> bool:
    """Return whether a condition of a definition is true."""
    return conditions.is_true((definition.get("status") or {}).get("conditions"), type_)


def set_condition(
    status: Object, type_: str, value: str, reason: str, message: str, now: str
) -> None:
    """Set a condition in a status; its time stays if its value does, its generation is updated."""
    new = {
        "type": type_,
        "status": value,
        "lastTransitionTime": now,
        "reason": reason,
        "message": message,
    }
    known = status.get("conditions")
    if generation := (conditions.find(known, type_) or {}).get("observedGeneration"):
        new["observedGeneration"] = generation
    status["conditions"] = conditions.set_condition(known, new)


def with_names(definition: Object, others: Iterable[Object], now: str) -> Object:
    """Return a definition with its name conditions; others: all existing definitions."""
    new: Object = json_text.copied(definition)
    status = new["status"]
    taken, kinds = _names_of_others(definition, others)
    requested = definition["spec"]["names"]
    accepted = dict(status.get("acceptedNames") or {})
    if accepted == requested and not _has(definition, NAMES_ACCEPTED):
        return new
    conflict: tuple[str, str] | None = None
    short = requested.get("shortNames") or []
    used = [each for each in short if each in taken]
    if used:
        message = ", ".join(f"{quote(each)} is already in use" for each in used)
        conflict = "ShortNamesConflict", message if len(used) == 1 else f"[{message}]"
    else:
        _set(accepted, "shortNames", short)
    for name, reason, accepted_name in (
        ("plural", "PluralConflict", taken),
        ("singular", "SingularConflict", taken),
        ("kind", "KindConflict", kinds),
        ("listKind", "ListKindConflict", kinds),
    ):
        value = requested.get(name, "")
        if value and value in accepted_name:
            conflict = reason, f"{quote(value)} is already in use"  # the last one is reported
        else:
            _set(accepted, name, value)
    _set(accepted, "categories", requested.get("categories"))
    status["acceptedNames"] = {
        name: accepted[name]
        for name in ("plural", "singular", "shortNames", "kind", "listKind", "categories")
        if name in accepted
    } | {name: accepted.get(name, "") for name in ("plural", "kind")}
    if conflict:
        set_condition(status, NAMES_ACCEPTED, FALSE, *conflict, now)
    else:
        set_condition(status, NAMES_ACCEPTED, TRUE, "NoConflicts", _ALL_FINE, now)
    if not is_true(definition, ESTABLISHED):
        if conflict:
            set_condition(status, ESTABLISHED, FALSE, "NotAccepted", _UNNAMED, now)
        elif has_bad_bundle(definition["spec"]):
            set_condition(status, ESTABLISHED, FALSE, "InvalidCABundle", _BAD_BUNDLE, now)
        else:
            set_condition(status, ESTABLISHED, TRUE, "InitialNamesAccepted", _NAMED, now)
    return new


def has_bad_bundle(spec: Object) -> bool:
    """Return whether the conversion webhook has an invalid CA bundle."""
    webhook = (spec.get("conversion") or {}).get("webhook") or {}
    bundle: str = (webhook.get("clientConfig") or {}).get("caBundle") or ""
    return bundle != "" and bundle_problem(bundle) != ""


def _set(names: dict[str, Any], name: str, value: object) -> None:
    if value:
        names[name] = value
    else:
        names.pop(name, None)


def _names_of_others(definition: Object, others: Iterable[Object]) -> tuple[set[str], set[str]]:
    """Return the resources and kinds that are accepted for other definitions of the group."""
    resources: set[str] = set()
    kinds: set[str] = set()
    for each in others:
        is_same = each["metadata"]["name"] == definition["metadata"]["name"]
        if is_same or each["spec"].get("group") != definition["spec"].get("group"):
            continue
        names = (each.get("status") or {}).get("acceptedNames") or {}
        resources.update(
            (names.get("plural", ""), names.get("singular", ""), *(names.get("shortNames") or ()))
        )
        kinds.update((names.get("kind", ""), names.get("listKind", "")))
    return resources - {""}, kinds - {""}
