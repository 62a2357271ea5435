"""YAML as text: read as Kubernetes reads it, written as it writes it.

    parse(b"a: yes\\nb: 010\\nc: {<<: *x}")    booleans and numbers of YAML 1.1, merge keys, anchors
    parse(b"a: 1\\na: 2").repeated           → "yaml: unmarshal errors:\\n  line 2: key …"
    write({"b": "1", "a": None})            → b'a: null\\nb: "1"\\n'

PyYAML's binding of libyaml reads the text into events and writes events as text: upstream's library
is a port of libyaml too, so the syntax, the errors and the choice of quotes are the same. What the
events mean is upstream's own and done here and in `yaml_scalars`. A document nests at most
DEPTH_MAX deep, and what aliases repeat is limited by upstream's own ratio, so that no small text
becomes a large object.

Only the first document of a stream is read. A time stays a text, as it does upstream.
"""

import functools
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import orjson
import yaml
from yaml.reader import ReaderError
from yaml.scanner import ScannerError

from kvstack.apimachinery.objects.text.go_floats import format_float, format_json_float
from kvstack.apimachinery.objects.text.json_syntax import DEPTH_MAX, JsonError
from kvstack.apimachinery.objects.text.json_text import Json, canonical_number, has_repeated
from kvstack.apimachinery.objects.text.json_text import parse as parse_json
from kvstack.apimachinery.objects.text.value_limit import check_count, check_json
from kvstack.apimachinery.objects.text.yaml_scalars import (
    MERGE,
    STR,
    Scalar,
    YamlError,
    go_key,
    go_syntax,
    member_name,
    needs_quotes,
    resolve,
)

_ODD_NUMBER: Final = re.compile(rb"[:,\[]\s*-?[0-9]+(?:[.eE]|[0-9]{18})")
"""What may be a number that YAML's way to JSON changes."""
_ALIASES_LOW: Final = 400_000
_ALIASES_HIGH: Final = 4_000_000
_KEPT_NAMES_MAX: Final = 64
"""Objects of one kind have the same few names; the order of more is not kept."""


class Parsed(NamedTuple):
    """What a text holds."""

    value: Json
    repeated: str
    """What strict reading says of keys that stand twice; empty if none does."""


def parse(data: bytes) -> Parsed:
    """Return the value of the first document of a YAML text, members sorted.

    Raises YamlError, and TooManyValuesError.
    """
    if data[:1] == b"{":
        check_json(data)
        if (value := _parse_json(data)) is not None:
            return Parsed(value, "")
    root = _Composer(data).compose()
    if root is None:
        return Parsed(None, "")
    builder = _Builder()
    value = builder.build(root, 0)
    if builder.refusal is not None:
        raise builder.refusal
    lines = "\n  ".join(builder.repeated)
    return Parsed(value, f"yaml: unmarshal errors:\n  {lines}" if lines else "")


def write(value: Json) -> bytes:
    """Return the value of a JSON object as YAML, members sorted as upstream sorts them."""
    text: str = yaml.emit(_events(value), Dumper=yaml.CSafeDumper, allow_unicode=True)
    # libyaml marks the end of a document whose last text ends in empty lines; upstream does not.
    return (text.removesuffix("...\n") if text.endswith("\n...\n") else text).encode()


def _parse_json(data: bytes) -> Json:
    """Return the value of a text that is JSON too and repeats no key; None: ask the YAML parser."""
    try:
        value = parse_json(data)
    except JsonError:
        return None
    if has_repeated(data, value):
        return None
    value = orjson.loads(orjson.dumps(value, option=orjson.OPT_SORT_KEYS))
    return _canonical(value) if _ODD_NUMBER.search(data) else value


def _canonical(value: Json) -> Json:
    if isinstance(value, dict):
        return {name: _canonical(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_canonical(each) for each in value]
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return canonical_number(value) if is_number else value


class _Node:
    """One node of a document: a scalar, a mapping (keys and values in turn), a list, an alias."""

    __slots__ = ("children", "kind", "line", "tag", "target", "value")

    def __init__(self, kind: str, line: int, value: str = "", tag: str = "") -> None:
        self.kind = kind
        self.line = line
        self.value = value
        self.tag = tag
        """Of a scalar: its tag; empty if its form decides, `tag:…:str` if it is quoted."""
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
        self.repeated: list[str] = []
        """What is said of keys that stand twice."""
        self.refusal: YamlError | None = None
        """Why JSON cannot hold it, if so; what is wrong as YAML is told before."""
        self._followed: set[_Node] = set()
        self._count = 0
        self._count_by_alias = 0

    def build(self, node: _Node, depth: int) -> Json:
        self._visit(node.line, depth)
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
                self.repeated.append(f"line {value.line}: key {go_key(name)} already set in map")
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
        self._visit(key.line, depth)
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
        """Take over the members of the mappings that stand after a `<<`."""
        # Of several the first counts most, so it comes last.
        for each in reversed(node.children) if node.kind is _SEQUENCE else (node,):
            self._visit(each.line, depth)
            target = each
            if each.kind is _ALIAS:
                target = self._follow(each)
                self._visit(target.line, depth + 1)
            if target.kind is not _MAPPING:
                raise YamlError("yaml: map merge requires map or sequence of maps as the value")
            self._fill(members, keys, target, depth + 1)
            self._followed.discard(each)

    def _follow(self, alias: _Node) -> _Node:
        """Return what an alias stands for; it is followed until it is taken out of the set."""
        if alias in self._followed or alias.target is None:
            raise YamlError(f"yaml: anchor '{alias.value}' value contains itself")
        self._followed.add(alias)
        return alias.target

    def _visit(self, line: int, depth: int) -> None:
        """Count a node; raises YamlError if too many come from aliases, or they nest too deep."""
        if depth > DEPTH_MAX:
            raise _too_deep(line)
        self._count += 1
        self._count_by_alias += bool(self._followed)
        if (
            self._count_by_alias > 100
            and self._count > 1000
            and self._count_by_alias / self._count > _allowed_share(self._count)
        ):
            raise YamlError("yaml: document contains excessive aliasing")


def _allowed_share(count: int) -> float:
    """Return which share of so many nodes may come from aliases."""
    part = (count - _ALIASES_LOW) / (_ALIASES_HIGH - _ALIASES_LOW)
    return 0.99 - 0.89 * min(max(part, 0.0), 1.0)


def _too_deep(line: int) -> YamlError:
    return YamlError(f"yaml: line {line}: exceeded max depth of {DEPTH_MAX}")


def _marked(error: yaml.MarkedYAMLError) -> str:
    """Return what upstream says of bad syntax; it counts lines in its own way."""
    line = error.problem_mark.line if error.problem_mark is not None else 0
    if line:
        line += isinstance(error, ScannerError)
    elif error.context_mark is not None:
        line = error.context_mark.line
    place = f"line {line}: " if line else ""
    return f"yaml: {place}{error.problem or 'unknown problem parsing YAML content'}"


def _events(value: Json) -> Iterator[yaml.Event]:
    yield yaml.StreamStartEvent()
    yield yaml.DocumentStartEvent(explicit=False)
    yield from _value_events(value)
    yield yaml.DocumentEndEvent(explicit=False)
    yield yaml.StreamEndEvent()


def _value_events(value: Json) -> Iterator[yaml.Event]:
    if isinstance(value, dict):
        yield yaml.MappingStartEvent(None, None, implicit=True, flow_style=False)
        names = tuple(value)
        is_kept = len(names) <= _KEPT_NAMES_MAX
        for name in _kept_order(names) if is_kept else _sorted_names(names):
            yield _string_event(name)
            yield from _value_events(value[name])
        yield yaml.MappingEndEvent()
    elif isinstance(value, list):
        yield yaml.SequenceStartEvent(None, None, implicit=True, flow_style=False)
        for each in value:
            yield from _value_events(each)
        yield yaml.SequenceEndEvent()
    elif isinstance(value, str):
        yield _string_event(value)
    else:
        yield _scalar_event(_plain(value), "")


def _plain(value: float | None) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if -(2**63) <= value < 2**64 else format_float(float(value))
    # Upstream writes JSON first, and reads what looks like an integer as one.
    text = format_json_float(value)
    is_integer = text.lstrip("-").isdigit() and -(2.0**63) <= value < 2.0**64
    return text if is_integer else format_float(value)


def _string_event(text: str) -> yaml.Event:
    if "\n" in text:
        return _scalar_event(text, "|")
    return _scalar_event(text, '"' if needs_quotes(text) else "")


def _scalar_event(text: str, style: str) -> yaml.Event:
    return yaml.ScalarEvent(None, None, (True, True), text, style=style)


@functools.lru_cache(maxsize=1024)
def _kept_order(names: tuple[str, ...]) -> Sequence[str]:
    return _sorted_names(names)


def _sorted_names(names: tuple[str, ...]) -> Sequence[str]:
    """Return the names as people would sort them: `a2` before `a10`."""
    return sorted(names, key=functools.cmp_to_key(_compare_names))


def _compare_names(left: str, right: str) -> int:
    for position, (one, other) in enumerate(zip(left, right, strict=False)):
        if one == other:
            continue
        if one.isalpha() or other.isalpha():
            is_less = one < other if one.isalpha() and other.isalpha() else other.isalpha()
            return -1 if is_less else 1
        # Within a number that has begun, zeros count: it goes on with as many digits.
        start = int("0" in (one, other) and left[:position].rstrip("0")[-1:].isdigit())
        first = (*_number_at(left, position, start), one)
        second = (*_number_at(right, position, start), other)
        return -1 if first < second else 1
    return (len(left) > len(right)) - (len(left) < len(right))


def _number_at(name: str, position: int, start: int) -> tuple[int, int]:
    """Return the number whose digits stand at a position, in 64 bits, and where they end."""
    number = start
    while position < len(name) and name[position].isdecimal():
        number = (number * 10 + ord(name[position]) - ord("0") + 2**63) % 2**64 - 2**63
        position += 1
    return number, position
