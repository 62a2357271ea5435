"""YAML read in Python: values of libyaml's events, which PyYAML gives.

    read(b"a: 1\\na: 2")    → Read({"a": 2}, [(2, "a")])

The reference of the crate's reader, and what runs without it. What the events mean is upstream's
own, and done here and in `yaml_scalars`. Whatever the bytes: a document nests at most DEPTH_MAX
deep and has at most VALUES_MAX values, with those that aliases repeat. Of these there are no more
than upstream's ratio allows, and they repeat at most REPEATED_BYTES_MAX of text, so that no small
text becomes a large object. At most DIRECTIVES_MAX directives stand before it, since libyaml
compares each with all others.
"""

import math
import re
from typing import Any, Final, NamedTuple

import yaml
from yaml.reader import ReaderError
from yaml.scanner import ScannerError

from kvstack.apimachinery.objects.text.go_floats import format_float
from kvstack.apimachinery.objects.text.json_syntax import DEPTH_MAX
from kvstack.apimachinery.objects.text.json_text import Json, canonical_number
from kvstack.apimachinery.objects.text.value_limit import check_count
from kvstack.apimachinery.objects.text.yaml_scalars import (
    MERGE,
    STR,
    Scalar,
    YamlError,
    go_syntax,
    member_name,
    resolve,
)

REPEATED_BYTES_MAX: Final = 3 << 20
"""As much as a whole body may have."""
DIRECTIVES_MAX: Final = 100
_ALIASES_LOW: Final = 400_000
_ALIASES_HIGH: Final = 4_000_000
_BREAK: Final = re.compile("[\\n\\r\\x85\\u2028\\u2029]")
_BEFORE_DOCUMENT: Final = frozenset("% \t#\ufeff\n\r\x85\u2028\u2029")
"""First characters of lines that may precede a document."""
_UTF16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")


class Read(NamedTuple):
    """The contents of a text."""

    value: Json
    repeated: list[tuple[int, Scalar]]
    """Lines and keys of duplicates."""


def read(data: bytes) -> Read:
    """Return the value of the first document, members sorted.

    Raises YamlError, and TooManyValuesError.
    """
    root = _Composer(data).compose()
    if root is None:
        return Read(None, [])
    builder = _Builder()
    value = builder.build(root, 0)
    if builder.refusal is not None:
        raise builder.refusal
    return Read(value, builder.repeated)


def _check_directives(data: bytes) -> None:
    """Count the directives before the first document; raises YamlError."""
    text = data.decode("utf-16" if data.startswith(_UTF16_MARKS) else "utf-8-sig", "replace")
    count = position = 0
    while text[position : position + 1] in _BEFORE_DOCUMENT:
        count += text[position] == "%"
        end = _BREAK.search(text, position)
        if end is None:
            break
        position = end.end()
    if count > DIRECTIVES_MAX:
        raise YamlError(f"yaml: a document may have at most {DIRECTIVES_MAX} directives")


class _Node:
    """One node of a document: a scalar, a mapping (keys and values in turn), a list, an alias."""

    __slots__ = ("children", "kind", "line", "tag", "target", "value")

    def __init__(self, kind: str, line: int, value: str = "", tag: str = "") -> None:
        self.kind = kind
        self.line = line
        self.value = value
        self.tag = tag
        """The tag of a scalar; empty if its form decides, `tag:…:str` if it is quoted."""
        self.children: list[_Node] = []
        self.target: _Node | None = None


_SCALAR: Final = "scalar"
_MAPPING: Final = "mapping"
_SEQUENCE: Final = "sequence"
_ALIAS: Final = "alias"


class _Composer:
    """Makes nodes of the events of the first document."""

    def __init__(self, data: bytes) -> None:
        self._data = data or b"\n"
        _check_directives(self._data)
        self._anchors: dict[str, _Node] = {}
        self._count = 0

    def compose(self) -> _Node | None:
        try:
            self._parser = yaml.CSafeLoader(self._data)
            self._next()
            if isinstance(self._next(), yaml.StreamEndEvent):
                return None
            root = self._node(self._next(), 0)
            self._next()
        except yaml.MarkedYAMLError as error:
            raise YamlError(_marked(error)) from None
        except ReaderError as error:
            raise YamlError(f"yaml: {error.reason}") from None
        return root

    def _next(self) -> Any:  # noqa: ANN401  # one of the classes of events
        return self._parser.get_event()

    def _node(self, event: Any, depth: int) -> _Node:  # noqa: ANN401
        self._count += 1
        check_count(self._count // 2)  # a member is two nodes
        line = event.start_mark.line + 1
        if isinstance(event, yaml.ScalarEvent):
            tag = event.tag or ("" if event.implicit[0] else STR)
            return self._anchored(_Node(_SCALAR, line, event.value, tag), event.anchor)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event.anchor, line)
        if depth >= DEPTH_MAX:
            raise _too_deep(line)
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        end = yaml.MappingEndEvent if is_mapping else yaml.SequenceEndEvent
        node = self._anchored(_Node(_MAPPING if is_mapping else _SEQUENCE, line), event.anchor)
        while not isinstance(event := self._next(), end):
            node.children.append(self._node(event, depth + 1))
        return node

    def _anchored(self, node: _Node, anchor: str | None) -> _Node:
        if anchor is not None:
            self._anchors[anchor] = node
        return node

    def _alias(self, anchor: str | None, line: int) -> _Node:
        if anchor is None or anchor not in self._anchors:
            raise YamlError(f"yaml: unknown anchor '{anchor}' referenced")
        node = _Node(_ALIAS, line, anchor)
        node.target = self._anchors[anchor]
        return node


class _Builder:
    """Makes values of nodes, as upstream does on the way from YAML over JSON to an object."""

    def __init__(self) -> None:
        self.repeated: list[tuple[int, Scalar]] = []
        """Lines and keys of duplicates."""
        self.refusal: YamlError | None = None
        """Why JSON cannot represent it, if so; YAML errors are reported first."""
        self._followed: set[_Node] = set()
        self._count = 0
        self._count_by_alias = 0
        self._bytes_by_alias = 0

    def build(self, node: _Node, depth: int) -> Json:
        self._visit(node, depth)
        if node.kind is _SCALAR:
            return self._number(resolve(node.tag, node.value)[1])
        if node.kind is _SEQUENCE:
            items: list[Json] = []
            for each in node.children:
                items.append(self.build(each, depth + 1))  # noqa: PERF401  # a frame a level
            return items
        if node.kind is _ALIAS:
            value = self.build(self._follow(node), depth)
            self._followed.remove(node)
            return value
        members: dict[str, Json] = {}
        self._fill(members, set(), node, depth)
        return dict(sorted(members.items()))

    def _fill(
        self, members: dict[str, Json], keys: set[tuple[type, Scalar]], node: _Node, depth: int
    ) -> None:
        """Set the members that a mapping has; later ones replace earlier ones."""
        for key, value in zip(node.children[::2], node.children[1::2], strict=True):
            if key.kind is _SCALAR and key.value == "<<" and key.tag in {"", MERGE}:
                self._merge(members, keys, value, depth)
                continue
            name = self._key(key, depth)
            typed = (type(name), name)
            built = self.build(value, depth + 1)
            if typed in keys:
                self.repeated.append((value.line, name))
            keys.add(typed)
            try:
                members[member_name(name, built)] = built
            except YamlError as error:
                self.refusal = self.refusal or error

    def _number(self, value: Scalar) -> Scalar:
        """Return a scalar as it comes out of JSON."""
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return value
        if math.isfinite(value):
            return canonical_number(value)
        text = f"json: unsupported value: {format_float(value)}"
        self.refusal = self.refusal or YamlError(text)
        return value

    def _key(self, key: _Node, depth: int) -> Scalar:
        """Return the value of a key."""
        self._visit(key, depth)
        if key.kind is _ALIAS:
            target = self._follow(key)
            self._followed.remove(key)
            return self._key(target, depth + 1)
        if key.kind is not _SCALAR:
            raise YamlError(f"yaml: invalid map key: {go_syntax(self.build(key, depth))}")
        return resolve(key.tag, key.value)[1]

    def _merge(
        self, members: dict[str, Json], keys: set[tuple[type, Scalar]], node: _Node, depth: int
    ) -> None:
        """Merge the members of the mappings after a `<<`."""
        # Of several the first counts most, so it comes last.
        for mapping in reversed(node.children) if node.kind is _SEQUENCE else (node,):
            self._visit(mapping, depth)
            target = mapping
            if mapping.kind is _ALIAS:
                target = self._follow(mapping)
                self._visit(target, depth + 1)
            if target.kind is not _MAPPING:
                raise YamlError("yaml: map merge requires map or sequence of maps as the value")
            self._fill(members, keys, target, depth + 1)
            self._followed.discard(mapping)

    def _follow(self, alias: _Node) -> _Node:
        """Return the node of an alias; it counts as being followed until removed from the set."""
        if alias in self._followed or alias.target is None:
            raise YamlError(f"yaml: anchor '{alias.value}' value contains itself")
        self._followed.add(alias)
        return alias.target

    def _visit(self, node: _Node, depth: int) -> None:
        """Count a node; raises YamlError if too many come from aliases, or they nest too deep."""
        if depth > DEPTH_MAX:
            raise _too_deep(node.line)
        self._count += 1
        if self._followed:
            self._count_by_alias += 1
            if node.kind is _SCALAR:
                self._bytes_by_alias += len(node.value.encode())
        is_excessive = (
            self._count_by_alias > 100
            and self._count > 1000
            and self._count_by_alias / self._count > _allowed_share(self._count)
        )
        if is_excessive or self._bytes_by_alias > REPEATED_BYTES_MAX:
            raise YamlError("yaml: document contains excessive aliasing")
        check_count(self._count // 2)  # a member is two nodes


def _allowed_share(count: int) -> float:
    """Return which share of so many nodes may come from aliases."""
    part = (count - _ALIASES_LOW) / (_ALIASES_HIGH - _ALIASES_LOW)
    return 0.99 - 0.89 * min(max(part, 0.0), 1.0)


def _too_deep(line: int) -> YamlError:
    return YamlError(f"yaml: line {line}: exceeded max depth of {DEPTH_MAX}")


def _marked(error: yaml.MarkedYAMLError) -> str:
    """Return upstream's error for bad syntax; it counts lines in its own way."""
    line = error.problem_mark.line if error.problem_mark is not None else 0
    if line:
        line += isinstance(error, ScannerError)
    elif error.context_mark is not None:
        line = error.context_mark.line
    place = f"line {line}: " if line else ""
    return f"yaml: {place}{error.problem or 'unknown problem parsing YAML content'}"
