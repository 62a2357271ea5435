"""YAML: the crate's reader and its twin in Python give the same values, or the same refusals."""

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kvstack.apimachinery.objects.text import yaml_crate, yaml_reader
from kvstack.apimachinery.objects.text.value_limit import TooManyValuesError
from kvstack.apimachinery.objects.text.yaml_scalars import YamlError
from kvstack.component import crate
from tests.apimachinery.schema.recordings import lines

pytestmark = pytest.mark.skipif(crate.read_yaml is None, reason="the crate was not built")

# The same examples in every run, and no deadline on a busy machine.
QUICK = settings(derandomize=True, deadline=None, max_examples=600)

TOKENS = (
    *"abxyz0189-+.:?,[]{}&*!|>'\"%@`#~= \n\t\r\\_TZeE<", "\n ", "\n  ", "\n- ", ": ", "- ", "? ",
    "&a ", "*a", "&b ", "*b", "<<: ", "<<: *a", "!!int ", "!!str ", "!!float ", "!!bool ",
    "!!null ", "! ", "!!binary ", "!!timestamp ", "!!merge ", "!x ", "!<y> ", "---\n", "...\n",
    "%YAML 1.1\n", "%TAG !x! tag:yaml.org,2002:\n", "!x!int ", "|\n", ">-\n ", "|2+\n", "\\n",
    "\\x41", "\\u00e9", "\\N", "yes", "Off", "null", ".inf", "-.Inf", ".nan", "0x1F", "0b1", "0o7",
    "1_0", "12:30", "1e3", "1e39", "2024-01-01", "18446744073709551615", "9223372036854775808",
    "1.5", "\x85", "\u2028", "\ufeff", "é", "😀", "\x01", "\xa0", "k: v\n", "k: v\nk: w\n", "aGk=",
    "{a: b}", "[a, b]", "# c\n", "'a''b'", '"a\\\n b"',
)  # fmt: skip
TEXTS = st.lists(st.sampled_from(TOKENS), max_size=24).map("".join)
SCALARS = st.sampled_from(
    ["a", "a b", "1", "010", "yes", "~", "1.0", "1.25", "'q'", '"d"', "!!str 1", "!!float 2", "*x",
     "*y", "2.5e10", "18446744073709551615", "[]", "{}", "!!binary aGk=", "0x10", "<<", "-0.0",
     "1e20"]
)  # fmt: skip
KEYS = st.sampled_from(
    ["a", "b", "c", "1", "1.5", "yes", "'1'", "<<", "~", "0x10", "16", "*x", "[a]"]
)
ANCHORS = st.sampled_from(["", "", "", "&x ", "&y "])
TREES = st.recursive(
    st.tuples(ANCHORS, SCALARS).map(lambda pair: pair[1] if pair[1][0] == "*" else "".join(pair)),
    lambda children: (
        st.tuples(ANCHORS, st.lists(children, max_size=4)).map(
            lambda pair: f"{pair[0]}[{', '.join(pair[1])}]"
        )
        | st.tuples(ANCHORS, st.lists(st.tuples(KEYS, children), max_size=4)).map(
            lambda pair: f"{pair[0]}{{{', '.join(f'{key} : {value}' for key, value in pair[1])}}}"
        )
    ),
    max_leaves=20,
)


def outcome(read: Any, data: bytes) -> str:
    """Return what comes of a text, types and order of members included."""
    try:
        return repr(tuple(read(data)))
    except (YamlError, TooManyValuesError) as error:
        return f"{type(error).__name__}: {error}"


def check(data: bytes) -> None:
    assert crate.read_yaml is not None
    assert outcome(yaml_crate.reader(crate.read_yaml), data) == outcome(yaml_reader.read, data)


@QUICK
@given(TEXTS)
@example('"a\\ud800"')
@example("a: !!binary \u00e9")
@example("a: b\r\nc: d\r\n\r\ne: |\r\n  x\r\n  y\r\n")
@example("%YAML 1.3\n--- a")
@example("\ufeff\ufeffa: 1\nb: 2")
@example("? a\n: b\n? c\n")
@example("a: |\n  x\n  y")
@example("a: |+\n  x\n    ")
@example("a: >-\n  x\n")
@example("[!!str, a]")
@example("a: 'b\n  c > d")
@example("k: v\n0x1F!!int |\n b\n c")
@example("a: b\nc: d |\n  e\nf")
def test_texts(text: str) -> None:
    check(text.encode())


@QUICK
@given(TREES)
def test_trees(text: str) -> None:
    check(text.encode())


@QUICK
@given(st.binary(max_size=40))
def test_bytes(data: bytes) -> None:
    check(data)


@QUICK
@given(TEXTS, st.sampled_from(["utf-16", "utf-16-be", "utf-8-sig"]), st.integers(0, 3))
def test_encodings(text: str, encoding: str, cut: int) -> None:
    data = text.encode(encoding)
    if encoding == "utf-16-be":
        data = b"\xfe\xff" + data
    check(data[: len(data) - cut])


@QUICK
@given(st.data())
def test_recorded_bodies_with_bytes_changed(data: st.DataObject) -> None:
    body = data.draw(st.sampled_from(BODIES))
    position = data.draw(st.integers(0, len(body)))
    removed = data.draw(st.integers(0, 3))
    check(body[:position] + data.draw(TEXTS).encode() + body[position + removed :])


BODIES = [
    body["text"].encode() for name in ("bodies", "yaml-answers") for body in lines(name)
]  # fmt: skip


def test_recorded_bodies() -> None:
    for body in BODIES:
        check(body)


@pytest.mark.parametrize(
    "data",
    [
        b"a" * 40_000 + b"\x01",
        b"[" * 10 + b"a, " * 8000 + b"\xff",
        b"{: " + b"a" * 20_000 + b"\x01",
        "a: 'é".encode() * 8_000,
        ("aé€😀" * 5000 + "'").encode(),
        ("- aé€😀\n" * 5000).encode("utf-16"),
        b"a: [\n" + b"x,\n" * 210_000,
        b"a: &a [" + b"x, " * 2000 + b"]\nb: [" + b"*a, " * 60 + b"]",
        b"a: &a " + b"x" * 50_000 + b"\nb: [" + b"*a, " * 70 + b"]",
        b"".join(b"%%TAG !%d! a\n" % number for number in range(101)) + b"--- a",
        b"".join(b"%%TAG !%d! a\n" % number for number in range(100)) + b"--- !7!b a",
        b"# a\n" * 200 + b"a: 1\n" + b"%\n" * 200,
        b"a: " + b"1" * 100_000,
        b"- " * 300,
        b"a: |\n" + b"  %x\n" * 20_000,
    ],
    ids=lambda data: repr(data[:12]),
)
def test_large_and_hostile_texts(data: bytes) -> None:
    check(data)
