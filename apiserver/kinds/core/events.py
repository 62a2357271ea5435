"""Events: stored once, served in two groups.

    events.k8s.io/v1        v1 (stored)
    note                    message
    regarding               involvedObject
    reportingController     reportingComponent
    deprecatedSource …      source, firstTimestamp, lastTimestamp, count

v1 has few rules, for old clients: metadata is only checked when nothing else is wrong. The newer
API has rules of its own, and its events are immutable except for their series. Errors name the
fields of v1 in both.
"""

from dataclasses import replace
from typing import Any, Final

from kvstack.apimachinery.objects.field_errors import FieldError, invalid, required
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import (
    IMMUTABLE,
    check_dns_subdomain,
    check_label_key,
    length,
    name_is_path_segment,
)
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apimachinery.objects.times import age
from kvstack.apiserver.kinds.rules import add_invalid
from kvstack.apiserver.kinds.strategy import (
    Context,
    Conversion,
    Deletion,
    Peculiarities,
    Strategy,
)

_NEWER: Final = "events.k8s.io/v1"
_TYPES: Final = frozenset({"Normal", "Warning"})
_MISMATCH: Final = "does not match event.namespace"
_LENGTHS: Final = (
    ("reportingInstance", 128, True),
    ("action", 128, True),
    ("reason", 128, True),
    ("message", 1024, False),
)
"""Text fields of an event with an eventTime: maximum length, and whether it is required."""

_RENAMED: Final = {
    "reportingComponent": "reportingController",
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
"""Fields of v1 by their names in events.k8s.io/v1."""


def to_newer(event: Object) -> Object:
    """Return a stored event in events.k8s.io/v1."""
    return _rename(event, _NEWER, _RENAMED)


def from_newer(event: Object) -> Object:
    """Return an event of events.k8s.io/v1 in its stored form."""
    return _rename(event, "v1", {new: old for old, new in _RENAMED.items()})


def _rename(event: Object, version: str, names: dict[str, str]) -> Object:
    renamed = {names.get(name, name): value for name, value in event.items()}
    renamed["apiVersion"] = version
    return renamed


def _validate(obj: Object, context: Context) -> list[FieldError]:
    errors = _old_errors(obj, context)
    if context.api_version != _NEWER:
        return errors
    name = obj["metadata"].get("name", "")
    add_invalid(errors, "metadata.name", name, check_dns_subdomain(name))
    errors += _series_errors(obj)
    if not obj.get("eventTime"):
        errors.append(required("eventTime"))
    if obj.get("type") not in _TYPES:
        errors.append(invalid("type", "", f"has invalid value: {obj.get('type', '')}"))
    errors.extend(
        invalid(each, "", "needs to be unset")
        for each in ("firstTimestamp", "lastTimestamp", "count", "source")
        if obj.get(each)
    )
    return errors


def _validate_update(new: Object, old: Object, context: Context) -> list[FieldError]:
    errors = _old_errors(new, context)
    if context.api_version != _NEWER:
        return errors
    if new.get("series") != old.get("series"):
        errors += _series_errors(new)
    errors.extend(
        invalid(field, show(new.get(name)), IMMUTABLE)
        for name, field, show in _FIXED
        if (new.get(name) or None) != (old.get(name) or None)
    )
    return errors


def _old_errors(obj: Object, context: Context) -> list[FieldError]:
    """Return the errors of both versions."""
    errors: list[FieldError] = []
    namespace = obj["metadata"].get("namespace", "")
    about = (obj.get("involvedObject") or {}).get("namespace", "")
    is_new = bool(obj.get("eventTime"))
    if not about:
        is_wrong = namespace not in ({"default", "kube-system"} if is_new else {"", "default"})
    else:
        is_wrong = not is_new and about != namespace
    if is_wrong:
        errors.append(invalid("involvedObject.namespace", about, _MISMATCH))
    if is_new:
        _check_texts(errors, obj, context)
    return errors


def _check_texts(errors: list[FieldError], obj: Object, context: Context) -> None:
    controller = obj.get("reportingComponent", "")
    path = "reportingController" if context.api_version == _NEWER else "reportingComponent"
    if not controller:
        errors.append(required(path))
    add_invalid(errors, path, controller, check_label_key(controller))
    for name, maximum, is_required in _LENGTHS:
        text = obj.get(name, "")
        if is_required and not text:
            errors.append(required(name))
        if length(text) > maximum:
            errors.append(invalid(name, "", f"can have at most {maximum} characters"))


def _series_errors(obj: Object) -> list[FieldError]:
    series = obj.get("series")
    if series is None:
        return []
    errors: list[FieldError] = []
    if series.get("count", 0) < 2:
        errors.append(invalid("series.count", "", "should be at least 2"))
    if not series.get("lastObservedTime"):
        errors.append(required("series.lastObservedTime"))
    return errors


_REFERENCE: Final = (
    ("Kind", "kind"),
    ("Namespace", "namespace"),
    ("Name", "name"),
    ("UID", "uid"),
    ("APIVersion", "apiVersion"),
    ("ResourceVersion", "resourceVersion"),
    ("FieldPath", "fieldPath"),
)


def _shown_reference(value: Object | None) -> object:
    return {shown: (value or {}).get(name, "") for shown, name in _REFERENCE}


def _shown_related(value: Object | None) -> object:
    return None if value is None else _shown_reference(value)


def _shown_source(value: Object | None) -> object:
    return {"Component": (value or {}).get("component", ""), "Host": (value or {}).get("host", "")}


def _shown_text(value: str | None) -> object:
    return value or ""


def _shown_time(value: str | None) -> object:
    return value if value is None else JsonText(value)


def _shown_number(value: int | None) -> object:
    return value or 0


_FIXED: Final = (
    ("involvedObject", "involvedObject", _shown_reference),
    ("reason", "reason", _shown_text),
    ("message", "message", _shown_text),
    ("source", "source", _shown_source),
    ("firstTimestamp", "firstTimestamp", _shown_time),
    ("lastTimestamp", "lastTimestamp", _shown_time),
    ("count", "count", _shown_number),
    ("type", "type", _shown_text),
    ("eventTime", "eventTime", _shown_time),
    ("action", "action", _shown_text),
    ("related", "related", _shown_related),
    ("reportingComponent", "reportingController", _shown_text),
    ("reportingInstance", "reportingInstance", _shown_text),
)
"""Immutable fields of the newer API: the field, its path in errors, how its value prints."""


def _selectable(obj: Object) -> dict[str, str]:
    about = obj.get("involvedObject") or {}
    controller = obj.get("reportingComponent", "")
    fields = {f"involvedObject.{name}": about.get(name, "") for _, name in _REFERENCE}
    return fields | {
        "reason": obj.get("reason", ""),
        "reportingComponent": controller,
        "source": (obj.get("source") or {}).get("component", "") or controller,
        "type": obj.get("type", ""),
    }


def _selectable_newer(obj: Object) -> dict[str, str]:
    fields = _selectable(obj)
    newer = {f"regarding.{name}": fields[f"involvedObject.{name}"] for _, name in _REFERENCE}
    return newer | {
        "reason": fields["reason"],
        "reportingController": fields["reportingComponent"],
        "type": fields["type"],
    }


def _cells(obj: Object, now: float) -> list[Any]:
    first = age(obj.get("firstTimestamp") or obj.get("eventTime"), now)
    last = age(obj["lastTimestamp"], now) if obj.get("lastTimestamp") else first
    count = obj.get("count") or 1
    series = obj.get("series")
    if series is not None:
        last, count = age(series.get("lastObservedTime"), now), series.get("count", 0)
    about = obj.get("involvedObject") or {}
    kind, name = about.get("kind", "").lower(), about.get("name", "")
    source = obj.get("source") or {}
    component = source.get("component") or obj.get("reportingComponent", "")
    host = source.get("host") or obj.get("reportingInstance", "")
    return [
        last,
        obj.get("type", ""),
        obj.get("reason", ""),
        f"{kind}/{name}" if name else kind,
        about.get("fieldPath", ""),
        f"{component}, {host}" if host else component,
        obj.get("message", "").strip(),
        first,
        count,
        obj["metadata"]["name"],
    ]


EVENTS: Final = Strategy(
    expires=True,
    validate=_validate,
    validate_update=_validate_update,
    check_name=name_is_path_segment,
    peculiarities=Peculiarities(checks_metadata_last=True),
    allows_create_on_update=True,
    deletion=Deletion(sets_finalizers=False),
    selectable=_selectable,
    cells=_cells,
)
NEWER_EVENTS: Final = replace(
    EVENTS,
    selectable=_selectable_newer,
    conversions={"v1": Conversion(to_stored=from_newer, to_served=to_newer)},
)
"""The strategy of events.k8s.io, whose objects are in the form of v1."""
