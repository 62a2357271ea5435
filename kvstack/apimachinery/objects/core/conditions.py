"""Conditions of statuses: found by type, and set with times that move only with their status.

    conditions = set_condition(status.get("conditions"), {"type": …, "status": …, …})

All setters keep a time so, but these do more or less, as their writers upstream do: `replaced`
(below) sets a condition with the time that it has; `with_condition` is for workloads; a
Deployment's Progressing also moves to the end while its reason stays (`deployments/status`);
`nodes/health` sets only what is not Unknown yet; a CertificateSigningRequest keeps each condition's
own time and lets several have one type (`certificates/signing_requests`); the scheduler's and the
hollow kubelet's patches of pods name only what changes.
"""

from collections.abc import Iterable, Sequence

from kvstack.apimachinery.objects.json_object import Object


def find(conditions: Iterable[Object] | None, type_: str) -> Object | None:
    """Return the condition of a type."""
    for condition in conditions or ():
        if condition.get("type") == type_:
            return condition
    return None


def is_true(conditions: Iterable[Object] | None, type_: str) -> bool:
    """Return whether a condition exists and is True."""
    condition = find(conditions, type_)
    return condition is not None and condition.get("status") == "True"


def without(conditions: Iterable[Object] | None, type_: str) -> list[Object]:
    """Return all conditions but that of a type."""
    return [condition for condition in conditions or () if condition.get("type") != type_]


def transition_time(old: Object | None, status: str, now: str) -> str:
    """Return since when a condition has a status, if it has it now. now: RFC 3339, UTC."""
    if old is None or old.get("status") != status:
        return now
    since: str = old.get("lastTransitionTime") or now
    return since


def set_condition(conditions: Sequence[Object] | None, new: Object) -> list[Object]:
    """Return the conditions with one set, which replaces that of its type or is appended.

    new: with the present time as lastTransitionTime; it is taken if the status changes.
    """
    since = transition_time(find(conditions, new["type"]), new["status"], new["lastTransitionTime"])
    return replaced(conditions, {**new, "lastTransitionTime": since})


def replaced(conditions: Sequence[Object] | None, new: Object) -> list[Object]:
    """Return the conditions with one as it is, which replaces that of its type or is appended."""
    old = find(conditions, new["type"])
    if old is None:
        return [*(conditions or ()), new]
    return [new if each is old else each for each in conditions or ()]


def with_condition(conditions: Sequence[Object] | None, new: Object) -> list[Object]:
    """Return the conditions with one set: the same status and reason change nothing.

    lastTransitionTime stays while the status does. The condition moves to the end, as upstream's
    setters of workloads have it.
    """
    old = find(conditions, new["type"])
    if old is not None:
        if old["status"] == new["status"] and old.get("reason") == new.get("reason"):
            return list(conditions or ())
        if old["status"] == new["status"]:
            new = {**new, "lastTransitionTime": old.get("lastTransitionTime")}
    return [*without(conditions, new["type"]), new]
