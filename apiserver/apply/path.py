"""Path elements: one step of a field path, in the text of FieldsV1.

    f:replicas                  a field of a struct or a member of a map     .replicas
    k:{"name":"web"}            the item of a list with these key fields     [name="web"]
    v:"example.com/hold"        the item of a set with this value            [="example.com/hold"]
    i:3                         the item at this index                       [3]

The text is the element: two elements are equal if their texts are. That requires one canonical text
for each element, so JSON in it is compact, its members are sorted, and whole numbers are written as
integers. `key_element` and `value_element` make such texts; `canonical` converts those of clients.
A path is a tuple of elements.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

import orjson

from kvstack.apimachinery.objects.text.go_floats import format_float
from kvstack.apimachinery.objects.text.go_numbers import NumberError, atoi
from kvstack.apimachinery.objects.text.go_text import go_json, quote

Path = tuple[str, ...]

FIELD: Final = "f:"
_CACHED: Final = 256
"""Names of fields and keys come again with every object; addresses and uids do not."""


class PathElementError(ValueError):
    """A text is not a path element; the text says why."""


def key_element(keys: Iterable[tuple[str, Any]]) -> str:
    """Return the element of the item with these key fields, in the order of their names."""
    members = ",".join([f"{_member(name)}{_json(value)}" for name, value in keys])
    return f"k:{{{members}}}"


@lru_cache(_CACHED)
def name_element(key: str, value: str) -> str:
    """Return the element of the item with one key field, whose value is a text."""
    return key_element([(key, value)])


@lru_cache(_CACHED)
def keys_element(names: tuple[str, ...], values: tuple[str | int, ...]) -> str:
    """Return the element of the item with several key fields, none of which is a bool or float.

    names: in order.
    """
    return key_element(zip(names, values, strict=True))


def value_element(value: object) -> str:
    """Return the element of the item of a set with this value."""
    return "v:" + _json(value)


def canonical(text: str) -> str | None:
    """Return the canonical text of a client's element.

    None: an unknown kind of element, which is to be left out. Raises PathElementError.
    """
    if text.startswith(FIELD):
        return text
    return _canonical(text)


def in_order(elements: Iterable[str]) -> list[str]:
    """Return the elements sorted; "." comes first."""
    ordered = sorted(elements)
    if ordered and ordered[-1] >= "g":
        ordered.sort(key=_order)
    return ordered


def path_text(path: Path) -> str:
    """Return the path as in conflicts: `.spec.ports[port=80,protocol="TCP"]`."""
    return "".join([_element_text(each) for each in path])


def _element_text(element: str) -> str:
    kind, content = element[:2], element[2:]
    if kind == FIELD:
        return "." + content
    if kind == "k:":
        keys = orjson.loads(content)
        return key_text({name: _as_read(value) for name, value in keys.items()})
    if kind == "v:":
        return value_text(_as_read(orjson.loads(content)))
    return f"[{content}]"


def key_text(keys: Mapping[str, Any]) -> str:
    """Return `[name="web"]` for an item with these key fields, in the given order."""
    return f"[{','.join([f'{name}={scalar_text(value)}' for name, value in keys.items()])}]"


def value_text(value: object) -> str:
    """Return `[="x"]` for the item of a set."""
    return f"[={scalar_text(value)}]"


def scalar_text(value: object) -> str:
    """Return a value as paths print it."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return quote(value)
        case float():
            return format_float(value)
        case list():
            return f"[{','.join([scalar_text(each) for each in value])}]"
        case dict():
            return "".join([f"{name}={scalar_text(each)}" for name, each in value.items()])
        case _:
            return str(value)


def _as_read(value: object) -> object:
    """Return the value as it is read from FieldsV1: every number is a float."""
    return float(value) if type(value) is int else value


@lru_cache(_CACHED)
def _canonical(text: str) -> str | None:
    if text[1:2] != ":":
        raise PathElementError(
            f"missing colon: {text}" if len(text) > 1 else "key must be 2 characters long:"
        )
    content = text[2:]
    match text[0]:
        case "v":
            return value_element(_loads(content))
        case "k":
            keys = _loads(content)
            if keys is not None and not isinstance(keys, dict):
                raise PathElementError(f"not an object: {content}")
            return key_element(sorted((keys or {}).items()))
        case "i":
            return f"i:{_index(content)}"
        case _:
            return None


def _loads(content: str) -> object:
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise PathElementError(f"{error}: {content}") from error


def _index(content: str) -> int:
    try:
        return atoi(content)
    except NumberError as error:
        raise PathElementError(str(error)) from error


@lru_cache(_CACHED)
def _order(element: str) -> tuple[Any, ...]:
    kind, content = element[:1], element[2:]
    match kind:
        case "f":
            return (0, content)
        case "k":
            keys = orjson.loads(content).items()
            return (1, tuple([(name, _value_order(value)) for name, value in keys]))
        case "v":
            return (2, _value_order(orjson.loads(content)))
        case "i":
            return (3, int(content))
        case _:
            return (-1,)


def _value_order(value: object) -> tuple[Any, ...]:
    match value:
        case bool():
            return (2, value)
        case int() | float():
            return (0, value)
        case str():
            return (1, value)
        case list():
            return (3, tuple([_value_order(each) for each in value]))
        case dict():
            return (4, tuple([(name, _value_order(value[name])) for name in sorted(value)]))
        case _:
            return (5,)


@lru_cache(_CACHED)
def _member(name: str) -> str:
    return go_json(name) + ":"


def _json(value: object) -> str:
    if type(value) is str and value.isascii() and value.replace("-", "").isalnum():
        return f'"{value}"'
    if isinstance(value, dict | list | float):
        value = _normal(value)
    return go_json(value)


def _normal(value: object) -> object:
    match value:
        case float() if value.is_integer() and abs(value) < 1e18:
            return int(value)
        case list():
            return [_normal(each) for each in value]
        case dict():
            return {name: _normal(value[name]) for name in sorted(value)}
        case _:
            return value
