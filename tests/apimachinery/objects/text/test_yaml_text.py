"""YAML as text: what is read, what is said of the rest, what is written."""

import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.apimachinery.objects.text import json_text, yaml_text
from kvstack.apimachinery.objects.text.yaml_scalars import YamlError

texts = st.text(
    alphabet=st.characters(blacklist_categories=("Cs", "Cc", "Cn", "Co", "Zl", "Zp"),
                           blacklist_characters="\ufeff") | st.sampled_from("\n\t -:#'\"{}"),
    max_size=12,
)  # fmt: skip
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | texts,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(texts, children, max_size=3),
    max_leaves=10,
)


@given(values)
def test_values_come_back(value: Any) -> None:
    assert json_text.equal(yaml_text.parse(yaml_text.write(value)).value, value)


@given(values)
def test_json_is_yaml(value: Any) -> None:
    parsed = yaml_text.parse(json_text.write(value))
    assert parsed.repeated == ""
    assert json_text.equal(parsed.value, value)


@given(st.binary(max_size=30) | st.text(alphabet="{}[]&*a:- \n'\"|>!%1<", max_size=20))
def test_no_bytes_are_too_odd(data: bytes | str) -> None:
    with suppress(YamlError):
        yaml_text.write(yaml_text.parse(data.encode() if isinstance(data, str) else data).value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", True), ("Off", False), ("n", False), ("~", None), ("", None), ("010", 8),
        ("0o17", 15), ("0x1F", 31), ("0b11", 3), ("1_000", 1000), ("08", 8), ("1e3", 1000),
        ("1.0", 1), (".5", 0.5), ("12:30", "12:30"), ("2024-01-01", "2024-01-01"),
        ("18446744073709551615", 1.8446744073709552e19), ('"yes"', "yes"), ("!!str 1", "1"),
        ("!!int '3'", 3), ("!!float 3", 3), ("!!binary aGk=", "hi"), ("!foo x", "x"), ("=", "="),
    ],
)  # fmt: skip
def test_scalars(text: str, value: Any) -> None:
    assert json_text.equal(yaml_text.parse(text.encode()).value, value)


def test_mappings_become_objects() -> None:
    parsed = yaml_text.parse(b"yes: 1\n1: 2\n1.5: 3\nb: {p: &a {k: 1}, q: *a}\n")
    assert parsed.value == {
        "1": 2,
        "1.5": 3,
        "b": {"p": {"k": 1}, "q": {"k": 1}},
        "true": 1,
    }
    assert list(parsed.value) == ["1", "1.5", "b", "true"]
    assert parsed.value["b"]["p"] is not parsed.value["b"]["q"]


def test_merge_keys() -> None:
    text = b"a: &a {x: 1, w: 2}\nb: &b {x: 3}\nc: {<<: [*a, *b], z: 4}\nd: {x: 9, <<: *a}\n"
    parsed = yaml_text.parse(text)
    assert parsed.value["c"] == {"w": 2, "x": 1, "z": 4}
    # What stands later wins, even if it comes from elsewhere; strictly, it stands twice.
    assert parsed.value["d"] == {"w": 2, "x": 1}
    assert parsed.repeated.splitlines() == [
        "yaml: unmarshal errors:",
        '  line 1: key "x" already set in map',
        '  line 1: key "x" already set in map',
    ]


def test_keys_that_stand_twice() -> None:
    parsed = yaml_text.parse(b"a: 1\nb:\n  n: 1\n  n: 2\na: 3\n")
    assert parsed.value == {"a": 3, "b": {"false": 2}}
    assert parsed.repeated == (
        "yaml: unmarshal errors:\n  line 4: key false already set in map\n"
        '  line 5: key "a" already set in map'
    )
    assert yaml_text.parse(b'{"a":1,"a":2}').repeated == (
        'yaml: unmarshal errors:\n  line 1: key "a" already set in map'
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: b: c", "yaml: mapping values are not allowed in this context"),
        ("{", "yaml: line 1: did not find expected node content"),
        ("a:\n\tb: c", "yaml: line 2: found character that cannot start any token"),
        ("a: [b\n", "yaml: line 1: did not find expected ',' or ']'"),
        ("a: *x", "yaml: unknown anchor 'x' referenced"),
        ("a: &x [*x]", "yaml: anchor 'x' value contains itself"),
        ("<<: 1", "yaml: map merge requires map or sequence of maps as the value"),
        ("[a]: b", 'yaml: invalid map key: []interface {}{"a"}'),
        ("~: b", 'unsupported map key of type: %!s(<nil>), key: <nil>, value: "b"'),
        ("a: .nan", "json: unsupported value: NaN"),
        ("!!int x", "yaml: cannot decode !!str `x` as a !!int"),
        ("!!binary x", "yaml: !!binary value contains invalid base64 data"),
        ("!!binary é", "yaml: !!binary value contains invalid base64 data"),
        ("\x01", "yaml: control characters are not allowed"),
        ("[" * 241, "yaml: line 1: exceeded max depth of 240"),
    ],
)
def test_what_is_said_of_bad_texts(text: str, message: str) -> None:
    with pytest.raises(YamlError) as caught:
        yaml_text.parse(text.encode())
    assert str(caught.value) == message


def test_aliases_cannot_make_a_small_text_large() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    started = time.process_time()
    with pytest.raises(YamlError, match="yaml: document contains excessive aliasing"):
        yaml_text.parse("\n".join(lines).encode())
    assert time.process_time() - started < 20


def test_aliases_cannot_repeat_a_long_text() -> None:
    text = b"a: &a " + b"x" * 1_000_000 + b"\nb: [" + b"*a, " * 90_000 + b"]"
    with pytest.raises(YamlError, match="yaml: document contains excessive aliasing"):
        yaml_text.parse(text)


def test_directives_have_a_limit() -> None:
    directives = b"".join(b"%%TAG !%d! a\n" % number for number in range(50_000))
    started = time.process_time()
    with pytest.raises(YamlError, match="a document may have at most 100 directives"):
        yaml_text.parse(directives + b"--- a")
    assert time.process_time() - started < 20


def test_aliases_cannot_nest_without_end() -> None:
    lines = [f"a0: &a0 {'[' * 150}{']' * 150}", f"a1: {'[' * 150}*a0{']' * 150}"]
    with pytest.raises(YamlError, match="exceeded max depth"):
        yaml_text.parse("\n".join(lines).encode())


def test_encodings_and_documents() -> None:
    for encoding in ("utf-8-sig", "utf-16"):
        assert yaml_text.parse("a: é".encode(encoding)).value == {"a": "é"}
    assert yaml_text.parse(b"---\na: 1\n---\nb: 2\n").value == {"a": 1}
    assert yaml_text.parse(b"# nothing\n").value is None


def test_writing() -> None:
    value = {
        "b10": "yes", "b2": "x y", "a": ["1", 1, None, True, 1.5], "n": {}, "l": [], "t": "a\nb\n",
        "d": "2024-01-01", "e": "", "s": " x", "c": "a: b", "m": "12:30", "long": "w " * 45 + "w",
    }  # fmt: skip
    assert yaml_text.write(value).decode().splitlines() == [
        "a:", '- "1"', "- 1", "- null", "- true", "- 1.5", "b2: x y", 'b10: "yes"', "c: 'a: b'",
        'd: "2024-01-01"', 'e: ""', "l: []", f"long: {'w ' * 37}w", f"  {'w ' * 7}w",
        'm: "12:30"', '"n": {}', "s: ' x'", "t: |", "  a", "  b",
    ]  # fmt: skip
