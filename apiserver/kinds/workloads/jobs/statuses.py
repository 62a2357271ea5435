"""Validation of the status of a Job.

External controllers may manage Jobs, so what clients rely on is checked here: a finished Job stays
finished, Complete and Failed require certain fields, counters do not decrease. Most rules are only
checked when something they concern has changed: existing faults of a stored status may stay.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kvstack.apimachinery.objects.core.conditions import find
from kvstack.apimachinery.objects.field_errors import (
    OMITTED,
    FieldError,
    child,
    duplicate,
    index,
    invalid,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import IMMUTABLE
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apiserver.kinds.internal_values import internal_value
from kvstack.apiserver.kinds.rules import Errors, check_not_negative
from kvstack.apiserver.kinds.strategy import Context
from kvstack.apiserver.kinds.workloads.jobs.indexes import IndexesError, count, overlap
from kvstack.apiserver.kinds.workloads.jobs.specs import INDEXED

_UNCOUNTED: Final = "io.k8s.api.batch.v1.UncountedTerminatedPods"
_COUNTERS: Final = ("active", "succeeded", "failed", "ready", "terminating")
_ABSENT: Final[dict[str, object]] = {"active": 0, "completedIndexes": ""}
"""Values that some absent fields are equal to; all others are only equal to being absent."""
_CONDITIONS: Final = ("Complete", "Failed", "FailureTarget", "SuccessCriteriaMet")


class _Side(NamedTuple):
    """One status of the Job, and values derived from it."""

    status: Object
    holds: frozenset[str]
    """The types of true conditions."""

    @property
    def is_finished(self) -> bool:
        return "Complete" in self.holds or "Failed" in self.holds

    def number(self, name: str) -> int:
        value: int = self.status.get(name) or 0
        return value

    @property
    def uncounted(self) -> Object | None:
        pods: Object | None = self.status.get("uncountedTerminatedPods")
        return pods


class _Change(NamedTuple):
    """A Job's new and old status; its spec does not change with them."""

    spec: Object
    new: _Side
    old: _Side
    is_resumed: bool
    """Whether the condition Suspended has just become false."""

    def changed(self, *names: str) -> bool:
        """Return whether one of these fields or conditions has changed, or `finished`."""
        return any(self._changed(name) for name in names)

    def _changed(self, name: str) -> bool:
        new, old = self.new, self.old
        if name == "finished":
            return new.is_finished != old.is_finished
        if name in _CONDITIONS:
            return (name in new.holds) != (name in old.holds)
        absent = _ABSENT.get(name)
        return bool(new.status.get(name, absent) != old.status.get(name, absent))

    def has(self, *types: str) -> bool:
        """Return whether the new status has all these conditions."""
        return self.new.holds.issuperset(types)


class _Rule(NamedTuple):
    """A rule about a change of the status."""

    parts: tuple[str, ...]
    """Its fields and conditions: it is only checked if one of them has changed; empty: always."""
    broken: Callable[[_Change], bool]
    error: Callable[[_Change], FieldError]


def validate_status(new: Object, old: Object, _context: Context) -> list[FieldError]:
    """Return the errors of a Job's new status."""
    errors: list[FieldError] = []
    status = new.get("status") or {}
    for name in _COUNTERS:
        check_not_negative(errors, child("status", name), status.get(name))
    _check_uncounted(errors, status.get("uncountedTerminatedPods") or {})
    before, after = _side(old), _side(new)
    change = _Change(new["spec"], after, before, _is_resumed(old, new))
    errors.extend(
        rule.error(change)
        for rule in _RULES
        if (not rule.parts or change.changed(*rule.parts)) and rule.broken(change)
    )
    return errors


def _side(job: Object) -> _Side:
    status = job.get("status") or {}
    conditions = status.get("conditions") or ()
    return _Side(
        status, frozenset(each.get("type", "") for each in conditions if _is(each, "True"))
    )


def _is_resumed(old: Object, new: Object) -> bool:
    return _has_suspended(old, "True") and _has_suspended(new, "False")


def _has_suspended(job: Object, value: str) -> bool:
    suspended = find((job.get("status") or {}).get("conditions"), "Suspended")
    return suspended is not None and _is(suspended, value)


def _is(condition: Object, value: str) -> bool:
    return condition.get("status") == value


def _check_uncounted(errors: Errors, pods: Object) -> None:
    seen: set[str] = set()
    for name in ("succeeded", "failed"):
        path = child("status", "uncountedTerminatedPods", name)
        for position, uid in enumerate(pods.get(name) or ()):
            if not uid:
                message = "must not be empty"
                errors.append(invalid(index(path, position), JsonText(uid), message))
            elif uid in seen:
                errors.append(duplicate(index(path, position), JsonText(uid)))
            seen.add(uid)


def _about(name: str, message: str) -> Callable[[_Change], FieldError]:
    """Return the error of a field, with its value."""
    path = child("status", name)

    def error(change: _Change) -> FieldError:
        value: Any = change.new.status.get(name)
        if name in {"active", "succeeded", "failed"}:
            value = value or 0
        return invalid(path, JsonText(value) if isinstance(value, str) else value, message)

    return error


def _about_conditions(message: str) -> Callable[[_Change], FieldError]:
    return lambda _change: invalid("status.conditions", OMITTED, message)


def _missing(name: str, message: str) -> Callable[[_Change], FieldError]:
    return lambda _change: required(child("status", name), message)


def _together(*types: str) -> Callable[[_Change], bool]:
    return lambda change: change.has(*types)


def _is_given(change: _Change, name: str) -> bool:
    return change.new.status.get(name) is not None


def _ends_before_start(change: _Change) -> bool:
    status = change.new.status
    start, end = status.get("startTime"), status.get("completionTime")
    # Both are UTC in the same format, so their texts sort like the times.
    return start is not None and end is not None and end < start


def _lacks_start(change: _Change) -> bool:
    spec = change.spec
    never_starts = bool(spec.get("suspend")) and spec.get("completions") == 0
    return change.new.is_finished and not _is_given(change, "startTime") and not never_starts


def _has_uncounted(change: _Change) -> bool:
    pods = change.new.uncounted or {}
    return change.new.is_finished and bool(pods.get("failed") or pods.get("succeeded"))


def _uncounted_error(change: _Change) -> FieldError:
    shown = internal_value(change.new.uncounted, _UNCOUNTED)
    path = "status.uncountedTerminatedPods"
    return invalid(path, shown, "must be empty for finished job")


def _indexes_problem(change: _Change, name: str) -> str:
    """Return the error of a list of indexes; "" if it is valid or cannot be checked."""
    completions = change.spec.get("completions")
    text = change.new.status.get(name)
    if completions is None or text is None:
        return ""
    try:
        count(text, completions)
    except IndexesError as error:
        return f"error parsing {name}: {error}"
    return ""


def _bad_completed(change: _Change) -> bool:
    return bool(_indexes_problem(change, "completedIndexes"))


def _bad_failed(change: _Change) -> bool:
    has_limit = change.spec.get("backoffLimitPerIndex") is not None
    return has_limit and bool(_indexes_problem(change, "failedIndexes"))


def _indexes_error(name: str, *, is_pointer: bool) -> Callable[[_Change], FieldError]:
    path = child("status", name)

    def error(change: _Change) -> FieldError:
        text = change.new.status.get(name) or ""
        shown = JsonText(text) if is_pointer else text
        return invalid(path, shown, _indexes_problem(change, name))

    return error


def _is_not_indexed(change: _Change) -> bool:
    completed = change.new.status.get("completedIndexes")
    return bool(completed) and change.spec.get("completionMode") != INDEXED


def _text_error(name: str, message: str) -> Callable[[_Change], FieldError]:
    path = child("status", name)
    return lambda change: invalid(path, change.new.status.get(name, ""), message)


def _lacks_index_limit(change: _Change) -> bool:
    has_limit = change.spec.get("backoffLimitPerIndex") is not None
    return not has_limit and _is_given(change, "failedIndexes")


def _shared_index(change: _Change) -> int | None:
    completions, status = change.spec.get("completions"), change.new.status
    failed = status.get("failedIndexes")
    if completions is None or failed is None:
        return None
    return overlap(status.get("completedIndexes", ""), failed, completions)


def _shared_index_error(change: _Change) -> FieldError:
    message = f"failedIndexes and completedIndexes overlap at index: {_shared_index(change)}"
    return invalid("status.failedIndexes", change.new.status["failedIndexes"], message)


def _has_shrunk(change: _Change, name: str) -> bool:
    return change.new.number(name) < change.old.number(name)


def _succeeded_shrunk(change: _Change) -> bool:
    spec = change.spec
    # An Indexed Job may be scaled down, and then has fewer successes.
    can_shrink = spec.get("completionMode") == INDEXED and (
        spec.get("completions") == spec.get("parallelism")
    )
    return not can_shrink and _has_shrunk(change, "succeeded")


def _disabled(type_: str) -> Callable[[_Change], bool]:
    return lambda change: type_ in change.old.holds and type_ not in change.new.holds


def _moves_end(change: _Change) -> bool:
    before, after = (each.status.get("completionTime") for each in (change.old, change.new))
    return before is not None and after is not None and before != after


def _moves_start(change: _Change) -> bool:
    is_set = change.old.status.get("startTime") is not None
    return is_set and not change.is_resumed and not change.spec.get("suspend")


_RULES: Final = (
    _Rule(
        ("Complete", "Failed"),
        _together("Complete", "Failed"),
        _about_conditions("cannot set Complete=True and Failed=true conditions"),
    ),
    _Rule(
        ("Complete", "FailureTarget"),
        _together("Complete", "FailureTarget"),
        _about_conditions("cannot set Complete=True and FailureTarget=true conditions"),
    ),
    _Rule(
        ("Complete", "completionTime"),
        lambda change: _is_given(change, "completionTime") and not change.has("Complete"),
        _about(
            "completionTime", "cannot set completionTime when there is no Complete=True condition"
        ),
    ),
    _Rule(
        ("Complete", "completionTime"),
        lambda change: not _is_given(change, "completionTime") and change.has("Complete"),
        _missing("completionTime", "completionTime is required for Complete jobs"),
    ),
    _Rule(
        ("startTime", "completionTime"),
        _ends_before_start,
        _about("completionTime", "must be equal to or after `startTime`"),
    ),
    _Rule(
        ("Failed", "failedIndexes"),
        lambda change: change.has("Failed") and not change.has("FailureTarget"),
        _about_conditions(
            "cannot set Failed=True condition without the FailureTarget=true condition"
        ),
    ),
    _Rule(
        ("Complete", "SuccessCriteriaMet"),
        lambda change: change.has("Complete") and not change.has("SuccessCriteriaMet"),
        _about_conditions(
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition"
        ),
    ),
    _Rule(
        ("finished", "active"),
        lambda change: change.new.is_finished and change.new.number("active") > 0,
        _about("active", "active>0 is invalid for finished job"),
    ),
    _Rule(
        ("finished", "startTime"),
        _lacks_start,
        _missing("startTime", "startTime is required for finished job"),
    ),
    _Rule(("finished", "uncountedTerminatedPods"), _has_uncounted, _uncounted_error),
    _Rule(
        ("completedIndexes",), _bad_completed, _indexes_error("completedIndexes", is_pointer=False)
    ),
    _Rule(("failedIndexes",), _bad_failed, _indexes_error("failedIndexes", is_pointer=True)),
    _Rule(
        ("completedIndexes",),
        _is_not_indexed,
        _text_error(
            "completedIndexes",
            "cannot set non-empty completedIndexes when non-indexed completion mode",
        ),
    ),
    _Rule(
        ("failedIndexes",),
        _lacks_index_limit,
        _text_error(
            "failedIndexes", "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
        ),
    ),
    _Rule(
        ("failedIndexes", "completedIndexes"),
        lambda change: _shared_index(change) is not None,
        _shared_index_error,
    ),
    _Rule(
        ("finished", "terminating"),
        lambda change: change.new.is_finished and change.new.number("terminating") > 0,
        _about("terminating", "terminating>0 is invalid for finished job"),
    ),
    _Rule(
        ("ready", "active"),
        lambda change: (
            change.new.number("ready") > change.new.number("active") and _is_given(change, "ready")
        ),
        _about("ready", "cannot set more ready pods than active"),
    ),
    _Rule(
        (),
        _together("SuccessCriteriaMet", "Failed"),
        _about_conditions("cannot set SuccessCriteriaMet=True and Failed=true conditions"),
    ),
    _Rule(
        (),
        _together("SuccessCriteriaMet", "FailureTarget"),
        _about_conditions("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"),
    ),
    _Rule(
        (),
        lambda change: (
            change.spec.get("successPolicy") is not None
            and change.has("Complete")
            and not change.has("SuccessCriteriaMet")
        ),
        _about_conditions(
            "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True"
        ),
    ),
    *(
        _Rule(
            (),
            _disabled(type_),
            _about_conditions(f"cannot disable the terminal {type_}=True condition"),
        )
        for type_ in ("Failed", "Complete", "FailureTarget")
    ),
    _Rule(
        (),
        lambda change: _has_shrunk(change, "failed"),
        _about("failed", "cannot decrease the failed counter"),
    ),
    _Rule((), _succeeded_shrunk, _about("succeeded", "cannot decrease the succeeded counter")),
    _Rule((), _moves_end, _about("completionTime", IMMUTABLE)),
    _Rule(
        ("startTime",),
        _moves_start,
        _about("startTime", "field is immutable for unsuspended job once set"),
    ),
    _Rule(
        (),
        _disabled("SuccessCriteriaMet"),
        _about_conditions("cannot disable the SuccessCriteriaMet=True condition"),
    ),
    _Rule(
        (),
        lambda change: (
            "Complete" in change.old.holds
            and "SuccessCriteriaMet" not in change.old.holds
            and change.has("SuccessCriteriaMet")
        ),
        _about_conditions(
            "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions"
        ),
    ),
)
"""The rules in the order of errors."""
