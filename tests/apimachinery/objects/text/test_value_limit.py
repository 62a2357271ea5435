"""How many values a body may hold: counted before it is parsed, and not by what is in strings."""

import json

import pytest

from kvstack.apimachinery.objects.text import yaml_text
from kvstack.apimachinery.objects.text.value_limit import (
    VALUES_MAX,
    TooManyValuesError,
    check_count,
    check_json,
)

MANY = VALUES_MAX + 2


@pytest.mark.parametrize(
    "text",
    [
        "[" + ",".join(["1"] * MANY) + "]",
        "[" + ",".join(["[]"] * MANY) + "]",
        "{" + ",".join(f'"{n}":""' for n in range(MANY)) + "}",
        "{" + ",".join(f'"\\\\":"{n}\\""' for n in range(MANY)) + "}",
        "{" + ",".join(['"":""'] * (3 * MANY)) + "}",
        "[" * MANY,
        '{"a":[' + ",".join(['{"b":{}}'] * (MANY // 2)) + "]}",
    ],
    ids=["numbers", "lists", "members", "escapes", "repeated", "depth", "objects"],
)
def test_a_body_of_too_many_values_is_refused(text: str) -> None:
    with pytest.raises(TooManyValuesError, match=rf"at most {VALUES_MAX} values, this one holds"):
        check_json(text.encode())


@pytest.mark.parametrize(
    "value",
    [
        {"csv": "1,2,3,[4],{5}" * MANY},
        {"json": json.dumps([{"a": ["x", "y\\"]}] * 30_000)},
        {'"\\' * 50_000: "," * MANY},
        list(range(VALUES_MAX - 10)),
        {str(n): "," for n in range(VALUES_MAX - 10)},
    ],
    ids=["text", "JSON in JSON", "quotes", "numbers", "members"],
)
def test_what_stands_in_strings_does_not_count(value: object) -> None:
    check_json(json.dumps(value, separators=(",", ":")).encode())


def test_yaml_is_counted_while_it_is_read() -> None:
    for text in (b"- a\n" * (2 * MANY), b"[" + b"a," * (2 * MANY) + b"]"):
        with pytest.raises(TooManyValuesError):
            yaml_text.parse(text)
    members = b"".join(b"k%d: a\n" % n for n in range(MANY))
    with pytest.raises(TooManyValuesError):
        yaml_text.parse(members)
    with pytest.raises(TooManyValuesError):
        yaml_text.parse(b'{"a":[' + b",".join([b"1"] * MANY) + b"]}")
    whole = b"".join(b"k%d: a\n" % n for n in range(VALUES_MAX - 10))
    assert len(yaml_text.parse(whole).value) == VALUES_MAX - 10


def test_the_limit_itself_is_allowed() -> None:
    check_count(VALUES_MAX)
    with pytest.raises(TooManyValuesError):
        check_count(VALUES_MAX + 1)
