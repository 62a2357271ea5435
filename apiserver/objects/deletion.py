"""What a delete does to the metadata of an object, before the object is gone.

    check_preconditions → begin | shorten → gc_finalizers → mark, if finalizers hold it

A pod is deleted gracefully: it first gets a deletionTimestamp in the future and stays until someone
deletes it with a grace period of 0. Any object stays as long as it has finalizers. Options are the
plain dict of DeleteOptions. Times are RFC 3339 in seconds, `now` Unix seconds; the dicts of
metadata that are given are changed in place.
"""

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Any, Final

from kvstack.apiserver.objects.field_errors import FieldError, invalid, not_supported
from kvstack.apiserver.objects.groups import GroupResource
from kvstack.apiserver.objects.metadata import (
    FOREGROUND_FINALIZER,
    ORPHAN_FINALIZER,
    Meta,
)
from kvstack.apiserver.objects.status import conflict
from kvstack.apiserver.objects.times import format_time, parse_time

Options = Mapping[str, Any]

_POLICIES: Final = ("Foreground", "Background", "Orphan")
_GC_FINALIZERS: Final = {ORPHAN_FINALIZER: "Orphan", FOREGROUND_FINALIZER: "Foreground"}
_UNSAFE: Final = "ignoreStoreReadErrorWithClusterBreakingPotential"
_NOT_WITH_UNSAFE: Final = (
    "propagationPolicy",
    "orphanDependents",
    "gracePeriodSeconds",
    "preconditions",
)


class Grace(Enum):
    """What a delete comes to for an object that is deleted gracefully."""

    NOW = auto()
    """It may go at once, as far as grace is concerned."""
    STARTED = auto()
    """Its metadata were changed, and it stays until its time has come."""
    PENDING = auto()
    """It is being deleted already, and nothing changes."""


def validate_options(options: Options) -> list[FieldError]:
    """Return what is wrong with DeleteOptions."""
    errors: list[FieldError] = []
    policy = options.get("propagationPolicy")
    if policy is not None and options.get("orphanDependents") is not None:
        detail = "orphanDependents and deletionPropagation cannot be both set"
        errors.append(invalid("propagationPolicy", policy, detail))
    if policy is not None and policy not in _POLICIES:
        errors.append(not_supported("propagationPolicy", policy, (*_POLICIES, "nil")))
    dry_run = options.get("dryRun") or []
    if any(each != "All" for each in dry_run):
        errors.append(not_supported("dryRun", dry_run, ("All",)))
    if options.get(_UNSAFE):
        errors += [
            invalid(_UNSAFE, True, f"cannot be set together with .{name}")
            for name in _NOT_WITH_UNSAFE
            if options.get(name) is not None
        ]
    return errors


def check_preconditions(meta: Meta, options: Options, kind: GroupResource) -> None:
    """Check uid and resourceVersion that a delete asks for; raises ApiError.

    kind: the group and, in place of the resource, the kind: upstream's message names it.
    """
    wanted: Mapping[str, Any] = options.get("preconditions") or {}
    name: str = meta.get("name") or ""
    uid, found_uid = wanted.get("uid"), meta.get("uid") or ""
    if uid is not None and uid != found_uid:
        raise conflict(
            kind,
            name,
            f"the UID in the precondition ({uid}) does not match the UID in record ({found_uid})."
            " The object might have been deleted and then recreated",
        )
    version, found_version = wanted.get("resourceVersion"), meta.get("resourceVersion") or ""
    if version is not None and version != found_version:
        raise conflict(
            kind,
            name,
            f"the ResourceVersion in the precondition ({version}) does not match the"
            f" ResourceVersion in record ({found_version}). The object might have been modified",
        )


def grace_seconds(options: Options) -> int | None:
    """Return the grace period that options give; one second for a negative one."""
    seconds: int | None = options.get("gracePeriodSeconds")
    return 1 if seconds is not None and seconds < 0 else seconds


def begin(meta: Meta, seconds: int, now: float) -> None:
    """Give an object so many seconds to end; its generation rises."""
    _set(meta, now + seconds, seconds)
    _raise_generation(meta)


def shorten(meta: Meta, seconds: int | None, now: float) -> Grace:
    """Decide about another delete of an object that is being deleted gracefully.

    Only a shorter grace period changes anything; None: the delete gave none.
    """
    current = max(meta.get("deletionGracePeriodSeconds") or 0, 0)
    if (meta.get("deletionGracePeriodSeconds") or 0) < 0:
        current = meta["deletionGracePeriodSeconds"] = 1
    if current == 0:
        return Grace.NOW
    if seconds is None or seconds >= current:
        return Grace.PENDING
    ends = parse_time(meta["deletionTimestamp"]).seconds - current + seconds
    if ends < now:
        # Still a graceful end: someone sees the change and deletes the object for good.
        _set(meta, now, min(seconds, 1))
    else:
        _set(meta, ends, seconds)
    return Grace.STARTED


def mark(meta: Meta, now: float) -> None:
    """Mark an object that its finalizers hold as being deleted, without any grace."""
    timestamp = meta.get("deletionTimestamp")
    if not timestamp:
        _raise_generation(meta)
    if not timestamp or parse_time(timestamp).seconds > now:
        meta["deletionTimestamp"] = format_time(now)
    meta["deletionGracePeriodSeconds"] = 0


def gc_finalizers(
    meta: Meta, options: Options, *, orphans_by_default: bool = False, is_supported: bool = True
) -> list[str] | None:
    """Return the finalizers after those of the garbage collector; None: they stay as they are.

    is_supported: whether the garbage collector knows the kind; it does not know events.
    """
    finalizers: Sequence[str] = meta.get("finalizers") or ()
    policy = _policy(finalizers, options, orphans_by_default=orphans_by_default)
    kept = [each for each in finalizers if each not in _GC_FINALIZERS]
    if is_supported:
        kept += [name for name, wanted in _GC_FINALIZERS.items() if policy == wanted]
    return None if set(kept) == set(finalizers) else kept


def _policy(finalizers: Sequence[str], options: Options, *, orphans_by_default: bool) -> str:
    """Return what becomes of dependents: by the options, else by finalizers, else by the kind."""
    if options.get("orphanDependents") is not None:
        return "Orphan" if options["orphanDependents"] else "Background"
    if options.get("propagationPolicy") is not None:
        return str(options["propagationPolicy"])
    for each in finalizers:
        if each in _GC_FINALIZERS:
            return _GC_FINALIZERS[each]
    return "Orphan" if orphans_by_default else "Background"


def _set(meta: Meta, ends: float, seconds: int) -> None:
    meta["deletionTimestamp"] = format_time(ends)
    meta["deletionGracePeriodSeconds"] = seconds


def _raise_generation(meta: Meta) -> None:
    if (meta.get("generation") or 0) > 0:
        meta["generation"] += 1
