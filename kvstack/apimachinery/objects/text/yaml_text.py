"""YAML as text: read as Kubernetes reads it, written as it writes it.

    parse(b"a: yes\\nb: 010\\nc: {<<: *x}")    booleans and numbers of YAML 1.1, merge keys, anchors
    parse(b"a: 1\\na: 2").repeated           → "yaml: unmarshal errors:\\n  line 2: key …"
    write({"b": "1", "a": None})            → b'a: null\\nb: "1"\\n'

Upstream's library is a port of libyaml. The crate's reader is one too, and the reader in Python
(`yaml_reader`), which is the reference and what runs without the crate, takes libyaml's events
from PyYAML. PyYAML also writes events as text. So the syntax, the errors and the choice of quotes
are the same everywhere. The limits of a text are in `yaml_reader`.

Only the first document of a stream is read. A time stays a text, as it does upstream.
"""

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import orjson
import yaml

from kvstack.apimachinery.objects.text import yaml_crate, yaml_reader
from kvstack.apimachinery.objects.text.go_floats import format_float, format_json_float
from kvstack.apimachinery.objects.text.json_syntax import JsonError
from kvstack.apimachinery.objects.text.json_text import Json, canonical_number, has_repeated
from kvstack.apimachinery.objects.text.json_text import parse as parse_json
from kvstack.apimachinery.objects.text.value_limit import check_json
from kvstack.apimachinery.objects.text.yaml_reader import Read
from kvstack.apimachinery.objects.text.yaml_scalars import go_key, needs_quotes

_ODD_NUMBER: Final = re.compile(rb"[:,\[]\s*-?[0-9]+(?:[.eE]|[0-9]{18})")
"""Texts that may be numbers which the conversion from YAML to JSON changes."""
_KEPT_NAMES_MAX: Final = 64
"""Objects of one kind have the same few names; the order of more is not kept."""


class Parsed(NamedTuple):
    """The contents of a text."""

    value: Json
    repeated: str
    """The error of a strict reader about duplicate keys; empty if there are none."""


def parse(data: bytes) -> Parsed:
    """Return the value of the first document of a YAML text, members sorted.

    Raises YamlError, and TooManyValuesError.
    """
    if data[:1] == b"{":
        check_json(data)
        if (value := _parse_json(data)) is not None:
            return Parsed(value, "")
    value, repeated = _reader()(data)
    lines = "\n  ".join(
        f"line {line}: key {go_key(key)} already set in map" for line, key in repeated
    )
    return Parsed(value, f"yaml: unmarshal errors:\n  {lines}" if lines else "")


@functools.cache
def _reader() -> Callable[[bytes], Read]:
    """Return what reads texts here."""
    from kvstack.component import crate  # loads a library

    return yaml_reader.read if crate.read_yaml is None else yaml_crate.reader(crate.read_yaml)


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
    """Return the number at a position, in 64 bits, and the end of its digits."""
    number = start
    while position < len(name) and name[position].isdecimal():
        number = (number * 10 + ord(name[position]) - ord("0") + 2**63) % 2**64 - 2**63
        position += 1
    return number, position
