"""Objects whose text has a member twice: the result and the errors of Go's decoder.

    resolve({"spec": {"a": 1, "bogus": 2}, "spec": {"b": 3}}, type)
    → {"spec": {"a": 1, "b": 3}}, ['unknown field "spec.bogus"', 'duplicate field "spec"']

Among equal members the last one counts, but Go decodes it into what the first one left: fields of
a struct, entries of a map and items of a list that the later one does not touch stay. Only values
that read themselves are replaced. Unknown fields are told of once however often they stand there,
and nothing within them.

One thing is not followed: items that Go has in memory beyond the end of a list that became shorter,
and finds there again when the list stands a third time and is longer.

This is the slow way of the few texts for which `json_text.has_repeated` holds. Of untyped objects,
the last member counts alone: `json_text.parse` and `json_text.repeated_fields` do.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from kvstack.apimachinery.objects.text.json_text import (
    FINDINGS_MAX,
    RepeatedMembers,
    duplicate_field,
    unknown_field,
)
from kvstack.apimachinery.schema.types import Shape, Type

Value = Any
"""A value of JSON."""


class Resolved(NamedTuple):
    """An object without repeated members, and the errors of a strict reader."""

    obj: dict[str, Any]
    """The object to decode by its type; unknown fields are dropped."""
    findings: list[str]
    """Unknown fields and repeated ones in the order of the text, at most FINDINGS_MAX."""


def resolve(value: dict[str, Any], type_: Type) -> Resolved:
    """Return the object of a value of `json_text.parse_repeated`."""
    found: dict[str, None] = {}
    obj = _read(value, type_, None, None, found)
    return Resolved(obj, list(found))


def _read(
    value: Value, type_: Type, former: Value, path: str | None, found: dict[str, None]
) -> Value:
    """Return a value merged into the one that was decoded there before, if any."""
    if isinstance(value, list) and type_.shape is Shape.LIST and type_.element is not None:
        places = former if isinstance(former, list) else []
        places = places + [None] * (len(value) - len(places))
        return [
            _read(item, type_.element, place, f"{path or ''}[{position}]", found)
            for position, (item, place) in enumerate(zip(value, places, strict=False))
        ]
    if not isinstance(value, dict):
        return value
    entries = dict(former) if isinstance(former, dict) else {}
    if type_.shape is Shape.STRUCT:
        return _struct(value, type_, entries, path, found)
    if type_.shape is Shape.MAP and type_.element is not None:
        return _map(value, type_.element, entries, path, found)
    return _last(value)


def _struct(
    value: dict[str, Any],
    type_: Type,
    fields: dict[str, Any],
    path: str | None,
    found: dict[str, None],
) -> dict[str, Any]:
    seen: set[str] = set()
    for name, member in _members(value):
        where = name if path is None else f"{path}.{name}"
        field = type_.fields.get(name)
        if field is None:
            _tell(found, unknown_field(where))
            continue
        if name in seen:
            _tell(found, duplicate_field(where))
        seen.add(name)
        if member is not None or field.is_pointer or field.type.shape in _NULLABLE:
            fields[name] = _read(member, field.type, fields.get(name), where, found)
    return fields


def _map(
    value: dict[str, Any],
    element: Type,
    entries: dict[str, Any],
    path: str | None,
    found: dict[str, None],
) -> dict[str, Any]:
    seen: set[str] = set()
    for name, member in _members(value):
        where = name if path is None else f"{path}.{name}"
        if name in seen:
            _tell(found, duplicate_field(where))
        seen.add(name)
        entries[name] = _read(member, element, None, where, found)
    return entries


_NULLABLE: Final = frozenset((Shape.MAP, Shape.LIST, Shape.BYTES, Shape.TIME, Shape.MICRO_TIME))
"""Shapes of values that null empties; others it leaves as they are."""


def _members(value: dict[str, Any]) -> Iterable[tuple[str, Value]]:
    return value.members if isinstance(value, RepeatedMembers) else value.items()


def _last(value: Value) -> Value:
    """Return a value of which the last of equal members counts."""
    if isinstance(value, dict):
        return {name: _last(each) for name, each in value.items()}
    return [_last(each) for each in value] if isinstance(value, list) else value


def _tell(found: dict[str, None], text: str) -> None:
    if len(found) < FINDINGS_MAX:
        found[text] = None
