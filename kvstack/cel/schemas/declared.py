"""The types that a schema declares for the values of expressions.

    declared = declare(schema, is_resource=True)
    declared.type               struct, list(string), …: what the checker sees
    declared.structs("self")    the fields of all types within it
    declared.sizes              how large values may be, for costs
    declared.value(obj)         a value of JSON as expressions see it

Fields that no expression can name, and what is kept without being known, are not declared.
"""

import datetime as dt
from base64 import b64decode
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from kvstack.apimachinery.objects import durations
from kvstack.apimachinery.objects.times import TimeError, parse_time
from kvstack.cel.checker.call_estimates import Path
from kvstack.cel.checker.ranges import Range
from kvstack.cel.checker.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    Type,
    list_of,
    map_of,
    struct,
)
from kvstack.cel.errors import CelError
from kvstack.cel.schemas.names import escaped
from kvstack.cel.values import Duration, KeyedList, ObjectValue, SetList, Timestamp

Schema: TypeAlias = dict[str, Any]
Wrap: TypeAlias = Callable[[Any], Any]

REQUEST_BYTES_MAX: Final = 3 * 1024 * 1024
"""The largest request, which bounds the size of values."""
_NAME_MAX: Final = 253
_TEXT_MAX: Final = REQUEST_BYTES_MAX - 2
_TIME_FORMATS: Final = {"duration": (DURATION, 32, 3), "date": (TIMESTAMP, 12, 12)}
_DATE_TIME: Final = (TIMESTAMP, 32, 21)
_SECOND: Final = 1_000_000_000
_EMBEDDED: Final = "x-kubernetes-embedded-resource"
_INT_OR_STRING: Final = "x-kubernetes-int-or-string"


class Declared:
    """One schema."""

    __slots__ = ("fields", "items", "keys", "max_elements", "min_size", "type", "value")

    def __init__(
        self,
        type_: Type,
        value: Wrap,
        *,
        max_elements: int = 0,
        min_size: int = 2,
        items: "Declared | None" = None,
        fields: "dict[str, Declared] | None" = None,
    ) -> None:
        """Make one; min_size: the fewest bytes of a value as JSON."""
        self.type = type_
        self.value = value
        self.max_elements = max_elements
        self.min_size = min_size
        self.items = items
        self.fields = fields
        """The fields by their escaped names; None: it has none."""
        self.keys = _KEY if type_.kind == "map" else None

    def structs(self) -> dict[str, dict[str, Type]]:
        """Return the fields of all types within this one, by the names of the types."""
        structs: dict[str, dict[str, Type]] = {}
        waiting = [self]
        while waiting:
            each = waiting.pop()
            if each.items is not None:
                waiting.append(each.items)
            if each.fields is not None:
                structs[each.type.name] = {name: inner.type for name, inner in each.fields.items()}
                waiting += each.fields.values()
        return structs

    def sizes(self, path: Path, _type: Type) -> Range | None:
        """Return how large the value at a path may be; see `checker.estimates`."""
        if not path:
            return None
        declared: Declared | None = self
        for name in path[1:]:
            if declared is None:
                return None
            if name in {"@items", "@values"}:
                declared = declared.items
            elif name == "@keys":
                declared = declared.keys
            else:
                declared = (declared.fields or {}).get(name)
        return None if declared is None else Range(0, declared.max_elements % 2**64)

    @property
    def cardinality(self) -> int:
        """The maximum number of values in a request."""
        return REQUEST_BYTES_MAX // (self.min_size + 1)


def _plain(value: Any) -> Any:  # noqa: ANN401
    return value


_KEY: Final = Declared(STRING, _plain)


def declare(schema: Schema, *, is_resource: bool, name: str = "selfType") -> Declared | None:
    """Return the declaration of a schema; None: expressions cannot see its values.

    name: of the type, if it has fields.
    """
    if schema.get(_INT_OR_STRING):
        limit = schema.get("maxLength")
        size = _TEXT_MAX if limit is None else max(limit, 0) * 4
        return Declared(DYN, _plain, max_elements=size, min_size=1)
    if is_resource:
        schema = with_metadata(schema)
    kind = schema.get("type", "")
    if kind == "array":
        return _array(schema, name)
    if kind == "object":
        return _object(schema, name)
    if kind == "string":
        return _text(schema)
    return {"boolean": _BOOLEAN, "number": _NUMBER, "integer": _INTEGER}.get(kind)


def with_metadata(schema: Schema) -> Schema:
    """Return the schema of a resource with the fields that every resource has."""
    properties = schema.get("properties") or {}
    metadata = properties.get("metadata") or {}
    inner = metadata.get("properties") or {}
    known = (properties.get("kind"), properties.get("apiVersion"), inner.get("name"))
    is_complete = metadata.get("type") == "object" and all(
        (each or {}).get("type") == "string" for each in (*known, inner.get("generateName"))
    )
    if is_complete:
        return schema
    text = {"type": "string"}
    names = {
        "name": _capped(inner.get("name"), _NAME_MAX),
        "generateName": _capped(inner.get("generateName"), _NAME_MAX - 1),
    }
    added = {"type": "object", "properties": names}
    return {
        **schema,
        "properties": {**properties, "kind": text, "apiVersion": text, "metadata": added},
    }


def _capped(schema: Schema | None, limit: int) -> Schema:
    given = (schema or {}).get("maxLength")
    return {"type": "string", "maxLength": limit if given is None else min(given, limit)}


def _inner(schema: Schema, name: str) -> Declared | None:
    return declare(schema, is_resource=bool(schema.get(_EMBEDDED)), name=name)


def _array(schema: Schema, name: str) -> Declared | None:
    items = schema.get("items")
    if not isinstance(items, dict):
        return None
    declared = _inner(items, f"{name}.@idx")
    if declared is None:
        return None
    limit = schema.get("maxItems")
    count = _TEXT_MAX // (declared.min_size + 1) if limit is None else max(limit, 0)
    wrap = _list_wrap(schema, _nullable(items, declared.value))
    return Declared(list_of(declared.type), wrap, max_elements=count, items=declared)


def _nullable(schema: Schema, wrap: Wrap) -> Wrap:
    """Return a wrap that leaves null as it is, where it may be."""
    if wrap is _plain:
        return wrap
    if not schema.get("nullable"):
        return lambda value: wrap(_unwrap(value))
    return lambda value: None if value is None else wrap(value)


def _unwrap(value: Any) -> Any:  # noqa: ANN401
    if value is None:
        raise CelError("invalid data, got null for schema with nullable=false")
    return value


def _list_wrap(schema: Schema, wrap: Wrap) -> Wrap:
    list_type = schema.get("x-kubernetes-list-type")
    if list_type == "set":
        return lambda value: SetList(map(wrap, value))
    if list_type == "map":
        keys = tuple(
            escaped(each) or each for each in schema.get("x-kubernetes-list-map-keys") or ()
        )
        return lambda value: KeyedList(list(map(wrap, value)), keys)
    return _plain if wrap is _plain else lambda value: list(map(wrap, value))


def _object(schema: Schema, name: str) -> Declared | None:
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        return _map(schema, extra, name)
    fields: dict[str, Declared] = {}
    members: dict[str, tuple[str, Wrap]] = {}
    size = 2
    needed = frozenset(schema.get("required") or ())
    for field, inner in (schema.get("properties") or {}).items():
        spelled = escaped(field)
        declared = _inner(inner, f"{name}.{spelled}")
        if declared is None:
            continue
        if spelled is not None:
            fields[spelled] = declared
            members[spelled] = (field, _nullable(inner, declared.value))
        if field in needed and inner.get("default") is None:
            size += len(field.encode()) + declared.min_size + 4
    shape = _Shape(members)
    return Declared(
        struct(name), lambda value: ObjectValue(value, shape), min_size=size, fields=fields
    )


def _map(schema: Schema, extra: Schema, name: str) -> Declared | None:
    declared = _inner(extra, f"{name}.@elem")
    if declared is None:
        return None
    limit = schema.get("maxProperties")
    count = _TEXT_MAX // (declared.min_size + 6) if limit is None else max(limit, 0)
    wrap = _nullable(extra, declared.value)
    value = _plain if wrap is _plain else _map_wrap(wrap)
    return Declared(map_of(STRING, declared.type), value, max_elements=count, items=declared)


def _map_wrap(wrap: Wrap) -> Wrap:
    return lambda value: {key: wrap(each) for key, each in value.items()}


class _Shape:
    """The members of an object; see `values.Shape`."""

    __slots__ = ("_members",)

    def __init__(self, members: dict[str, tuple[str, Wrap]]) -> None:
        self._members = members

    def member(self, raw: dict[str, Any], name: str) -> Any:  # noqa: ANN401
        field, wrap = self._members[name]
        return wrap(raw[field])

    def has(self, raw: dict[str, Any], name: object) -> bool:
        found = self._members.get(name) if isinstance(name, str) else None
        return found is not None and found[0] in raw

    def names(self, raw: dict[str, Any]) -> list[str]:
        return [name for name, (field, _) in self._members.items() if field in raw]


def _text(schema: Schema) -> Declared:
    format_ = schema.get("format", "")
    limit = schema.get("maxLength")
    if format_ == "byte":
        size = _TEXT_MAX if limit is None else max(limit, 0)
        return Declared(BYTES, _bytes, max_elements=size)
    known = _DATE_TIME if format_ == "date-time" else _TIME_FORMATS.get(format_)
    if known is not None:
        type_, size, least = known
        return Declared(type_, _WRAPS[format_], max_elements=size, min_size=least)
    if limit is not None:
        size = max(limit, 0) * 4
    elif schema.get("enum"):
        texts = (each for each in schema["enum"] if isinstance(each, str))
        size = max((len(each.encode()) for each in texts), default=0)
    else:
        size = _TEXT_MAX
    return Declared(STRING, _plain, max_elements=size)


def _bytes(value: str) -> bytes:
    try:
        return b64decode(value)
    except ValueError as error:
        raise CelError(f"Invalid byte formatted string {value}: {error}") from None


def _duration(value: str) -> Duration:
    try:
        return Duration(durations.parse(value))
    except durations.DurationError as error:
        raise CelError(f"Invalid duration {value}: {error}") from None


def _date(value: str) -> Timestamp:
    try:
        day = dt.date.fromisoformat(value)
    except ValueError as error:
        raise CelError(f"Invalid date formatted string {value}: {error}") from None
    days = (day - dt.date(1970, 1, 1)).days
    return Timestamp(days * 86400 * _SECOND)


def _date_time(value: str) -> Timestamp:
    try:
        moment = parse_time(value)
    except TimeError as error:
        raise CelError(f"Invalid date-time formatted string {value}: {error}") from None
    return Timestamp(moment.seconds * _SECOND + moment.nanoseconds)


_WRAPS: Final = {"duration": _duration, "date": _date, "date-time": _date_time}


def _float(value: Any) -> Any:  # noqa: ANN401
    return float(value) if type(value) is int else value


_BOOLEAN: Final = Declared(BOOL, _plain, min_size=4)
_NUMBER: Final = Declared(DOUBLE, _float, min_size=1)
_INTEGER: Final = Declared(INT, _plain, min_size=1)
