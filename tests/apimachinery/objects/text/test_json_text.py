"""JSON as text: what is read, what is said of the rest, what is written."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.apimachinery.objects.text import json_text
from kvstack.apimachinery.objects.text.json_syntax import DEPTH_MAX, JsonError
from kvstack.apimachinery.objects.text.json_text import HugeNumberError, RepeatedMembers

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=5),
    lambda children: (
        st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=3), children, max_size=4)
    ),
    max_leaves=12,
)


@given(values)
def test_values_come_back(value: Any) -> None:
    written = json_text.write(value)
    assert json_text.equal(json_text.parse(written), value)
    assert json.loads(written) == value
    assert not json_text.has_repeated(written, value)
    spaced = json.dumps(value, indent=1).encode()
    assert not json_text.has_repeated(spaced, json_text.parse(spaced))
    assert json.loads(json_text.write_indented(value)) == value


@given(st.binary(max_size=40) | st.text(alphabet='{}[]",:0e.-+\\utrfn ', max_size=20))
def test_no_bytes_are_too_odd(data: bytes | str) -> None:
    raw = data.encode() if isinstance(data, str) else data
    try:
        value = json_text.parse(raw)
    except JsonError:
        return
    json_text.has_repeated(raw, value)
    json_text.repeated_fields(json_text.parse_repeated(raw))
    json_text.write(value)


@given(values, st.data())
def test_a_broken_text_is_refused_by_both(value: Any, data: st.DataObject) -> None:
    text = json_text.write(value)
    cut = data.draw(st.integers(0, len(text)))
    try:
        found = json_text.parse(text[:cut])
    except JsonError:
        with pytest.raises(ValueError):  # noqa: PT011  # whatever Python says of it
            json.loads(text[:cut].decode(errors="replace"))
    else:
        assert json.loads(text[:cut]) == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "unexpected end of JSON input"),
        ("{", "unexpected end of JSON input"),
        ('{"a":1} x', "invalid character 'x' after top-level value"),
        ("{'a':1}", "invalid character '\\'' looking for beginning of object key string"),
        ('{"a":1,}', "invalid character '}' looking for beginning of object key string"),
        ("[1,]", "invalid character ']' looking for beginning of value"),
        ('{"a" 1}', "invalid character '1' after object key"),
        ('{"a":1 "b"}', "invalid character '\"' after object key:value pair"),
        ("[1 2]", "invalid character '2' after array element"),
        ("tru}", "invalid character '}' in literal true (expecting 'e')"),
        ("nul", "invalid character ' ' in literal null (expecting 'l')"),
        ("-x", "invalid character 'x' in numeric literal"),
        ("1.x", "invalid character 'x' after decimal point in numeric literal"),
        ("1ex", "invalid character 'x' in exponent of numeric literal"),
        ('"a\nb"', "invalid character '\\n' in string literal"),
        ('"\\q"', "invalid character 'q' in string escape code"),
        ('"\\u12x"', "invalid character 'x' in \\u hexadecimal character escape"),
        ("\ufeff{}", "invalid character '\u00ef' looking for beginning of value"),
        ("1e999", "json: cannot unmarshal number 1e999 into Go value of type float64"),
    ],
)
def test_what_is_said_of_bad_texts(text: str, message: str) -> None:
    with pytest.raises(JsonError) as caught:
        json_text.parse(text.encode())
    assert str(caught.value) == message


def test_what_go_takes_and_others_refuse() -> None:
    assert json_text.parse(b'"a\xff\xe2\x82b"') == "a\ufffd\ufffd\ufffdb"
    assert json_text.parse(b'["\\ud800", {"\\udc00x": 1}]') == ["\ufffd", {"\ufffdx": 1}]
    assert json_text.parse(b'{"a":{"b":1,"b":"\xff"}}') == {"a": {"b": "\ufffd"}}


def test_depth_is_limited() -> None:
    deepest = b"[" * DEPTH_MAX + b"]" * DEPTH_MAX
    assert not json_text.is_too_deep(json_text.parse(deepest))
    assert json_text.is_too_deep([json_text.parse(deepest)])
    for count in (DEPTH_MAX + 1, 100_000):
        with pytest.raises(JsonError, match=r"invalid character '\[' exceeded max depth"):
            json_text.parse(b"[" * count + b"]" * count)
    assert json_text.parse(b"[" + b"[]," * 1000 + b"0]")[-1] == 0


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1e-6, "0.000001"),
        (1.5e-6, "0.0000015"),
        (1.5e-7, "1.5e-7"),
        (2.0**63, "9223372036854776000"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
    ],
)
def test_floats_are_written_as_go_does(number: float, text: str) -> None:
    assert json_text.write(number).decode() == text
    assert json_text.write({"a": [number], "b": "1e+20,"}).decode() == (
        f'{{"a":[{text}],"b":"1e+20,"}}'
    )


def test_a_number_that_no_float_holds() -> None:
    told = "json: cannot unmarshal number -1e400 into Go value of type float64"
    with pytest.raises(HugeNumberError, match=re.escape(told)):
        json_text.parse(b'{"a":[-1e400]}')
    assert json_text.has_huge(json_text.parse_with_huge(b'{"a":[-1e400]}'))
    assert not json_text.has_huge({"a": [1e300, "x", None]})


def test_members_that_stand_twice() -> None:
    text = b'{"a":{"b":1,"b":[{"c":1,"c":2}]},"a":3}'
    assert json_text.parse(text) == {"a": 3}
    assert json_text.has_repeated(text, {"a": 3})
    repeated = json_text.parse_repeated(text)
    assert isinstance(repeated, RepeatedMembers)
    assert [name for name, _ in repeated.members] == ["a", "a"]
    assert json_text.repeated_fields(repeated) == [
        'duplicate field "a.b"',
        'duplicate field "a.b[0].c"',
        'duplicate field "a"',
    ]


def test_findings_are_limited() -> None:
    members = ",".join(f'"{name}":1,"{name}":2' for name in range(500))
    found = json_text.repeated_fields(json_text.parse_repeated(f"{{{members}}}".encode()))
    assert len(found) == json_text.FINDINGS_MAX


def test_what_is_written_cannot_be_taken_for_html() -> None:
    assert json_text.write({"b": "<&>\u2028", "a": 1}) == (
        b'{"b":"\\u003c\\u0026\\u003e\\u2028","a":1}'
    )
    assert json_text.write_sorted({"b": 1, "a": 2}) == b'{"a":2,"b":1}'
    assert json_text.write_indented({"a": [1], "b": {}}) == (
        b'{\n  "a": [\n    1\n  ],\n  "b": {}\n}'
    )


def test_equality_knows_types() -> None:
    assert json_text.equal({"a": [1], "b": None}, {"b": None, "a": [1]})
    for one, other in ((1, 1.0), (1, True), ([1], [1.0]), ({"a": 0}, {"a": False})):
        assert not json_text.equal(one, other)


def test_numbers_of_untyped_content() -> None:
    assert json_text.canonical_number(2.0) == 2
    assert isinstance(json_text.canonical_number(2.0), int)
    assert isinstance(json_text.canonical_number(2**63), float)
    assert json_text.canonical_number(1e300) == 1e300
    assert json_text.canonical_number(0.5) == 0.5


@pytest.mark.parametrize(
    ("text", "is_repeated"),
    [
        ('{"a" : 1, "a": 2}', True),
        ('{"a": 1, "b": 2}', False),
        ('{"a": "x\\":", "b": 2}', False),
        ('{"a": "x\\u0022:", "b": 1, "b": 2}', True),
        ('{"a": "\\u0022:", "b" :1}', False),
        ('{"a": "x\\" :", "b": 1, "b": 2}', True),
        ('{"\\u0061": 1, "a": 2}', True),
    ],
)
def test_repeated_members_in_any_spelling(text: str, is_repeated: bool) -> None:  # noqa: FBT001
    data = text.encode()
    assert json_text.has_repeated(data, json_text.parse(data)) is is_repeated


def test_a_text_that_is_kept_is_a_copy_in_a_block_of_its_own() -> None:
    text = json_text.write({"a": "b"})
    kept = json_text.exact(text)
    assert kept == text
    assert kept is not text
