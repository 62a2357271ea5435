"""Schemas of custom resources as in a definition: traversal, and field paths.

    everywhere(schema)   → the schema and all its subschemas
    unsupported(schema)  → "OpenAPIV3Schema 'schema' is not supported"
    find_field(".spec.color", schema)  → Found("spec.color", {"type": "string"})

A schema is a plain dict with the JSON names of apiextensions/v1. Where the API has a schema or
something else (`items`, `additionalProperties`, `dependencies`), the dict has the same.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

Schema = dict[str, Any]

META_FIELDS: Final = ("apiVersion", "kind", "metadata")
"""The properties that every resource has, and embedded ones."""

_UNSUPPORTED: Final = (
    ("id", "id"),
    ("$schema", "schema"),
    ("$ref", "$ref"),
    ("patternProperties", "patternProperties"),
    ("dependencies", "dependencies"),
    ("additionalItems", "additionalItems"),
    ("definitions", "definitions"),
)
_JUNCTORS: Final = ("allOf", "anyOf", "oneOf")
_MAPS: Final = ("properties", "patternProperties", "definitions", "dependencies")
_SINGLE: Final = ("not", "additionalProperties", "additionalItems")
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_HOLDERS: Final = frozenset(("items", *_JUNCTORS, *_SINGLE, *_MAPS))
_LOOKED_AT: Final = _HOLDERS | {_PRESERVE, *(name for name, _ in _UNSUPPORTED)}
_DELIMITERS: Final = ".[]"


class PathError(ValueError):
    """A path does not exist in a schema."""


class PathTarget(NamedTuple):
    """The target of a path."""

    path: str
    """The path as in errors."""
    root: str
    """Its first step."""
    schema: Schema
    """The schema of the target."""


def everywhere(schema: Schema) -> Iterator[Schema]:
    """Yield a schema and all its subschemas."""
    waiting = [schema]
    while waiting:
        each = waiting.pop()
        yield each
        if has_inner(each):
            waiting += reversed(_inner(each))


def has_inner(schema: Schema) -> bool:
    """Return whether a schema may have subschemas; most do not."""
    return not _HOLDERS.isdisjoint(schema)


def _inner(schema: Schema) -> list[Schema]:
    """Return the direct subschemas of a schema."""
    items = schema.get("items")
    inner: list[Any] = list(items) if isinstance(items, list) else [items]
    for name in _JUNCTORS:
        inner += schema.get(name) or ()
    inner += [schema.get(name) for name in _SINGLE]
    for name in _MAPS:
        inner += (schema.get(name) or {}).values()
    return [each for each in inner if isinstance(each, dict)]


def unsupported(schema: Schema) -> str:
    """Return why a schema cannot be made structural; empty if it can."""
    if _LOOKED_AT.isdisjoint(schema):
        return ""
    for name, text in _UNSUPPORTED:
        if name in schema and schema[name] not in ("", {}, None):
            return f"OpenAPIV3Schema '{text}' is not supported"
    inner = [schema["not"]] if schema.get("not") is not None else []
    inner += [each for name in _JUNCTORS for each in schema.get(name) or ()]
    for each in inner:
        if problem := unsupported(each):
            return problem
    if schema.get(_PRESERVE) is False:
        return "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined"
    items, extra = schema.get("items"), schema.get("additionalProperties")
    if isinstance(items, list) and items:
        return "OpenAPIV3Schema 'items' must be a schema, but is an array"
    for each in (items, *(schema.get("properties") or {}).values(), extra):
        if isinstance(each, dict) and (problem := unsupported(each)):
            return problem
    return ""


def find_field(path: str, schema: Schema, *, allows_brackets: bool = True) -> PathTarget:
    """Return the target of a field path; raises PathError."""
    steps = _Steps(path, schema)
    tokens = _tokens(path)
    for token in tokens:
        if token == ".":
            steps.go(_next(tokens))
        elif token == "[":
            if not allows_brackets:
                raise PathError("array notation is not allowed")
            steps.go(_unquoted(_next(tokens)))
            closing = _next(tokens)
            if closing != "]":
                raise PathError(f"expected ] but got {closing}")
        else:
            raise PathError(f"expected [ or . but got: {token}")
    return steps.target()


class _Steps:
    """A path through a schema."""

    def __init__(self, path: str, schema: Schema) -> None:
        self._given = path
        self._schema = schema
        self._path = ""
        self._root = ""

    def go(self, name: str) -> None:
        """Take one step down."""
        properties, extra = self._schema.get("properties"), self._schema.get("additionalProperties")
        if properties:
            below, text = properties.get(name), f".{name}" if self._path else name
        else:
            below, text = extra, f"[{name}]"
        if not isinstance(below, dict):
            raise PathError("does not refer to a valid field")
        self._schema = below
        self._path += text
        self._root = self._root or text

    def target(self) -> PathTarget:
        """Return the target."""
        return PathTarget(self._path, self._root, self._schema)


def _next(tokens: Iterator[str]) -> str:
    token = next(tokens, None)
    if token is None:
        raise PathError("unexpected end of JSON path")
    return token


def _tokens(path: str) -> Iterator[str]:
    """Yield delimiters, and the texts between them; quoted delimiters do not count."""
    position = 0
    while position < len(path):
        if path[position] == "'":
            end = _end_of_quoted(path, position)
        elif path[position] in _DELIMITERS:
            end = position + 1
        else:
            end = position
            while end < len(path) and path[end] not in _DELIMITERS:
                end += 1
        yield path[position:end]
        position = end


def _end_of_quoted(path: str, start: int) -> int:
    for position in range(start + 1, len(path)):
        if path[position] == "'" and path[position - 1] != "\\":
            return position + 1
    return len(path)


def _unquoted(token: str) -> str:
    if len(token) < 2 or token[0] != "'" or token[-1] != "'":
        raise PathError(f"expected single quoted string but got {token}")
    text: list[str] = []
    characters = iter(token[1:-1])
    for each in characters:
        if each != "\\":
            text.append(each)
            continue
        escaped = next(characters, "")
        if escaped not in _ESCAPES:
            raise PathError(f"invalid string literal: invalid escape char \\{escaped}")
        text.append(_ESCAPES[escaped])
    return "".join(text)


_ESCAPES: Final = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "'": "'",
    "\\": "\\",
    "": "\\",
}
"""By the character after a backslash; empty: a backslash at the end is literal."""


def any_schema(schema: Schema, is_such: Callable[[Schema], bool]) -> bool:
    """Return whether a predicate holds for a schema or a subschema."""
    return any(is_such(each) for each in everywhere(schema))
