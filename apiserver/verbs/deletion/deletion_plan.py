"""The plan of a delete: remove the object, mark it, or leave it as it is.

    plan(pod, PODS.deletion, DeleteOptions(grace_seconds=30), now)
    → KEEP      it is terminating already, and the request has no shorter grace period
    → UPDATE    its deletionTimestamp is set, finalizers may hold it or it is given time
    → REMOVE    nothing holds it
    → END       it is marked, and then removed at once

Only kinds with graceful deletion (Pods) have a grace period. Finalizers of the garbage collector
are added and removed according to the propagation policy. Everything here is pure.
"""

from enum import Enum, auto
from typing import Final, NamedTuple

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.times import format_time, parse_time
from kvstack.apimachinery.well_known import FOREGROUND_FINALIZER, ORPHAN_FINALIZER
from kvstack.apiserver.kinds.strategy import Deletion
from kvstack.apiserver.verbs.options import DeleteOptions

_COLLECTOR_FINALIZERS: Final = frozenset((ORPHAN_FINALIZER, FOREGROUND_FINALIZER))
_POLICY_FINALIZERS: Final = {
    "Orphan": ORPHAN_FINALIZER,
    "Foreground": FOREGROUND_FINALIZER,
    "Background": "",
}


class Operation(Enum):
    """The operation of a plan."""

    KEEP = auto()
    UPDATE = auto()
    REMOVE = auto()
    END = auto()


class Plan(NamedTuple):
    """The effect of a delete on one object."""

    operation: Operation
    obj: Object
    """The object to store, for UPDATE and END."""


def plan(obj: Object, deletion: Deletion, options: DeleteOptions, now: str) -> Plan:
    """Return the plan of a delete; the caller's object is changed."""
    meta = obj["metadata"]
    if deletion.mark is not None and not meta.get("deletionTimestamp"):
        deletion.mark(obj, now)
        return Plan(Operation.UPDATE, obj)
    is_graceful, seconds = False, 0
    if deletion.grace_period is not None:
        requested = options.grace_seconds
        if requested is not None and requested < 0:
            requested = 1
        if meta.get("deletionTimestamp"):
            given = meta.get("deletionGracePeriodSeconds") or 0
            if given:
                if requested is None or requested >= given:
                    return Plan(Operation.KEEP, obj)
                seconds = _shorten(meta, given, requested, now)
                is_graceful = True
        else:
            seconds = deletion.grace_period(obj, requested)
            meta["deletionTimestamp"] = _later(now, seconds)
            meta["deletionGracePeriodSeconds"] = seconds
            _raise_generation(meta)
            is_graceful = True
    set_collector_finalizers(meta, deletion, options)
    if is_graceful:
        is_held = bool(seconds or meta.get("finalizers"))
        return Plan(Operation.UPDATE if is_held else Operation.END, obj)
    if not meta.get("finalizers"):
        return Plan(Operation.REMOVE, obj)
    mark(meta, now)
    return Plan(Operation.UPDATE, obj)


def mark(meta: Object, now: str) -> None:
    """Mark an object that only finalizers hold."""
    before = meta.get("deletionTimestamp")
    if not before:
        _raise_generation(meta)
    if not before or parse_time(before).seconds > parse_time(now).seconds:
        meta["deletionTimestamp"] = now
    meta["deletionGracePeriodSeconds"] = 0


def set_collector_finalizers(meta: Object, deletion: Deletion, options: DeleteOptions) -> None:
    """Add or remove the garbage collector's finalizers for the propagation policy."""
    if not deletion.sets_finalizers:
        return
    before: list[str] = meta.get("finalizers") or []
    after = [each for each in before if each not in _COLLECTOR_FINALIZERS]
    wanted = _collector_finalizer(before, deletion, options)
    if wanted:
        after.append(wanted)
    if set(before) == set(after):
        return
    if after:
        meta["finalizers"] = after
    else:
        meta.pop("finalizers", None)


def _collector_finalizer(before: list[str], deletion: Deletion, options: DeleteOptions) -> str:
    if options.orphan_dependents is not None:
        return ORPHAN_FINALIZER if options.orphan_dependents else ""
    if options.policy:
        return _POLICY_FINALIZERS[options.policy]
    for each in before:
        if each in _COLLECTOR_FINALIZERS:
            return each
    return ORPHAN_FINALIZER if deletion.orphans_by_default else ""


def _shorten(meta: Object, given: int, requested: int, now: str) -> int:
    """Move the end of an object forward; return its whole grace period in seconds."""
    end = _later(meta["deletionTimestamp"], requested - given)
    if parse_time(end).seconds < parse_time(now).seconds:
        end = now
        requested = 1 if requested else 0
    meta["deletionTimestamp"] = end
    meta["deletionGracePeriodSeconds"] = requested
    return requested


def _later(moment: str, seconds: int) -> str:
    return format_time(parse_time(moment).seconds + seconds)


def _raise_generation(meta: Object) -> None:
    if meta.get("generation"):
        meta["generation"] += 1
