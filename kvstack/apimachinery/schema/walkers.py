"""One compiled walker for each type: an object of JSON → as Go would write it after decoding it.

A walker takes a value that is not null, and the list of findings it adds to; it returns a value of
its own, or OMITTED where it could not read one. Of a struct it

- drops fields that are not known, and nulls,
- drops zero values that Go leaves out, and adds those that Go always writes; of lists and maps that
  are given empty it tells, and keeps them,
- puts the fields in the order of the struct, and the keys of maps in theirs.

Nothing here looks at more than the type; what kinds add to that are their hooks.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, cast

from kvstack.apimachinery.schema.findings import EMPTY, ERROR, UNKNOWN, Finding, StopDecodingError
from kvstack.apimachinery.schema.recurring import RECURRING, RecentResults, key_of, value_of
from kvstack.apimachinery.schema.scalars import OMITTED, Read, Value, mismatch, reader
from kvstack.apimachinery.schema.stored_form import is_left_out_empty
from kvstack.apimachinery.schema.types import Field, Shape, Type
from kvstack.apimachinery.schema.zeros import always_written, zero

_COMPILED: Final = "walker"
_PLAIN: Final[dict[Shape, type]] = {Shape.STRING: str, Shape.BOOL: bool}
"""Types whose values need only a check of their class."""


def walker(type_: Type) -> Read:
    """Return the walker of a type, compiled at its first use."""
    found = type_.compiled.get(_COMPILED)
    if found is None:
        # Types refer to one another in circles: until it is made, look it up when called.
        type_.compiled[_COMPILED] = lambda value, findings: walker(type_)(value, findings)
        found = type_.compiled[_COMPILED] = _make(type_)
    return cast("Read", found)


def set_walker(type_: Type, read: Read) -> None:
    """Replace the walker of a type by one that was made elsewhere."""
    type_.compiled[_COMPILED] = read


def _make(type_: Type) -> Read:
    if type_.shape is Shape.STRUCT:
        return _recurring(_struct(type_)) if type_.name in RECURRING else _struct(type_)
    if type_.shape is Shape.LIST:
        return _list(type_)
    if type_.shape is Shape.MAP:
        return _map(type_)
    holder = _HOLDERS.get(type_.go_kind)
    if holder is not None and type_.element is not None:
        return partial(holder, walker(type_.element))
    return reader(type_)


def _struct(type_: Type) -> Read:
    fields = type_.fields
    members = {name: _member(field) for name, field in fields.items()}
    find = members.get
    kept_empty = {name for name, field in fields.items() if is_left_out_empty(field)}
    always = always_written(type_)
    rank = _Ranks({name: place for place, name in enumerate(fields)}).__getitem__
    struct = type_.name.rpartition(".")[2]
    unknown = _unknown(type_)

    def walk(value: Value, findings: list[Finding]) -> Value:
        if value.__class__ is not dict:
            return mismatch(value, type_.go_kind, findings)
        got = {}
        before = len(findings)
        name = ""
        try:
            for name, item in value.items():
                member = find(name)
                if member is None:
                    item = unknown(name, item, findings)
                    if item is not OMITTED:
                        got[name] = item
                    before = len(findings)
                    continue
                plain, keeps_zero, read = member
                if item.__class__ is plain:
                    if item or keeps_zero:
                        got[name] = item
                elif item is not None:
                    item = read(item, findings)
                    if len(findings) != before:
                        for each in findings[before:]:
                            each.enter_field(struct, fields[name].embedded_in, name)
                        before = len(findings)
                    if item or (keeps_zero and item is not OMITTED):
                        got[name] = item
                    elif name in kept_empty and item is not OMITTED:
                        got[name] = item
                        findings.append(Finding(EMPTY))
                        before = len(findings)
        except StopDecodingError as stop:
            stop.finding.enter_field(struct, fields[name].embedded_in, name)
            raise
        for name, make in always:
            if name not in got:
                got[name] = make()
        if len(got) < 2:
            return got
        return {name: got[name] for name in sorted(got, key=rank)}

    return walk


def _recurring(read: Read) -> Read:
    """Return a walker that keeps what it read without findings."""
    results = RecentResults[bytes]()

    def walk(value: Value, findings: list[Finding]) -> Value:
        key = key_of(value)
        kept = results.get(key)
        if kept is not None:
            return value_of(kept)
        before = len(findings)
        got = read(value, findings)
        if key is not None and len(findings) == before:
            results.put(key, key_of(got))
        return got

    return walk


class _Ranks(dict[str, int]):
    """The positions of members; undeclared ones come last, in their own order."""

    __slots__ = ()

    def __missing__(self, _name: str) -> int:
        return len(self)


def _member(field: Field) -> tuple[type | None, bool, Read]:
    """Return the class of values to take as they are, whether zeros are kept, and the reader."""
    keeps_zero = field.is_pointer or not field.omit_empty
    return _PLAIN.get(field.type.shape), keeps_zero, walker(field.type)


def _unknown(type_: Type) -> Callable[[str, Value, list[Finding]], Value]:
    """Return what happens to members that are not declared."""
    if type_.additional is not None:
        read = walker(type_.additional)

        def take(name: str, value: Value, findings: list[Finding]) -> Value:
            return None if value is None else _entry(name, value, read, findings)

        return take
    if type_.preserves_unknown:
        return lambda _name, value, _findings: value

    def drop(name: str, _value: Value, findings: list[Finding]) -> Value:
        findings.append(Finding(UNKNOWN, path=name))
        return OMITTED

    return drop


def _list(type_: Type) -> Read:
    element = type_.element
    if element is None:
        raise ValueError(f"{type_!r} has no items")
    read = walker(element)
    make_zero = zero(element)
    plain = _PLAIN.get(element.shape)

    def walk(value: Value, findings: list[Finding]) -> Value:
        if value.__class__ is not list:
            return mismatch(value, type_.go_kind, findings)
        got = []
        before = len(findings)
        for item in value:
            if item.__class__ is plain:
                got.append(item)
            elif item is None:
                got.append(make_zero())
            else:
                try:
                    got.append(read(item, findings))
                except StopDecodingError as stop:
                    stop.finding.enter_index(len(got))
                    raise
                if len(findings) != before:
                    for each in findings[before:]:
                        each.enter_index(len(got) - 1)
                    before = len(findings)
        return got

    return walk


def _map(type_: Type) -> Read:
    element = type_.element
    if element is None:
        raise ValueError(f"{type_!r} has no values")
    read = walker(element)
    make_zero = zero(element)
    plain = _PLAIN.get(element.shape)

    def walk(value: Value, findings: list[Finding]) -> Value:
        if value.__class__ is not dict:
            return mismatch(value, type_.go_kind, findings)
        got = {}
        last = ""
        is_sorted = True
        for key, item in value.items():
            if item.__class__ is plain:
                got[key] = item
            elif item is None:
                got[key] = make_zero()
            else:
                got[key] = _entry(key, item, read, findings)
            if key < last:
                is_sorted = False
            last = key
        return got if is_sorted else dict(sorted(got.items()))

    return walk


def _entry(key: str, value: Value, read: Read, findings: list[Finding]) -> Value:
    before = len(findings)
    try:
        entry = read(value, findings)
    except StopDecodingError as stop:
        stop.finding.enter_key(key)
        raise
    for each in findings[before:]:
        each.enter_key(key)
    return entry


def _schema_or_bool(read: Read, value: Value, findings: list[Finding]) -> Value:
    if isinstance(value, bool):
        return value
    if isinstance(value, dict):
        return _on_its_own(read, value, findings)
    raise StopDecodingError(Finding(ERROR, "boolean or JSON schema expected"))


def _schema_or_array(read: Read, value: Value, findings: list[Finding]) -> Value:
    if isinstance(value, list):
        return [
            _on_its_own(read, {} if each is None else each, findings) for each in value
        ] or OMITTED
    return _on_its_own(read, value, findings) if isinstance(value, dict) else OMITTED


def _schema_or_strings(read: Read, value: Value, findings: list[Finding]) -> Value:
    if isinstance(value, list):
        return [_text(each) for each in value] or None
    return _on_its_own(read, value, findings) if isinstance(value, dict) else None


def _text(value: Value) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    found: list[Finding] = []
    mismatch(value, "string", found)
    raise StopDecodingError(found[0])


def _on_its_own(read: Read, value: Value, findings: list[Finding]) -> Value:
    """Read a value as a type does that decodes itself: leniently, and up to the first error."""
    found: list[Finding] = []
    result = read(value, found)
    for each in found:
        if each.kind is EMPTY:
            findings.append(Finding(EMPTY))
        elif each.kind is not UNKNOWN:
            raise StopDecodingError(each)
    return result


_HOLDERS: Final[dict[str, Callable[[Read, Value, list[Finding]], Value]]] = {
    "v1.JSONSchemaPropsOrBool": _schema_or_bool,
    "v1.JSONSchemaPropsOrArray": _schema_or_array,
    "v1.JSONSchemaPropsOrStringArray": _schema_or_strings,
    "v1beta1.JSONSchemaPropsOrBool": _schema_or_bool,
    "v1beta1.JSONSchemaPropsOrArray": _schema_or_array,
    "v1beta1.JSONSchemaPropsOrStringArray": _schema_or_strings,
}
