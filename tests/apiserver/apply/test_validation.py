from typing import Any

import pytest

from kvstack.apimachinery.schema.types import Shape, Type
from kvstack.apiserver.apply.validation import mismatches, summary
from tests.apiserver.apply.types import (
    ANY,
    APP,
    BOOL,
    FLOAT,
    INT,
    INT_OR_STRING,
    QUANTITY,
    RAW_EXTENSION,
    STRING,
    list_by,
    list_of,
    map_of,
    set_of,
    struct,
)

KEYED = list_by("a", "b", items=struct(a=STRING, b=STRING))
ONE_OF_EACH = struct(
    s=STRING,
    i=INT,
    f=FLOAT,
    b=BOOL,
    q=QUANTITY,
    x=INT_OR_STRING,
    t=Type(Shape.TIME),
    d=Type(Shape.DURATION),
    bytes=Type(Shape.BYTES),
    any=ANY,
    raw=RAW_EXTENSION,
    map=map_of(INT),
    list=list_of(INT),
    set=set_of(STRING),
    keyed=KEYED,
    open=struct(open_=True, known=INT),
    empty=struct(),
)


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"s": "x", "i": 1, "f": 1.5, "b": False, "q": "1", "x": "25%", "t": "2026", "d": "1s"},
        {"i": 1.5, "f": 1, "q": 1, "x": 1, "bytes": "eA=="},
        {"any": {"a": [1, {"b": None}]}, "raw": [1]},
        {"any": "x", "raw": True},
        dict.fromkeys(ONE_OF_EACH.fields),
        {"map": {"any/name": 1, "b": None}, "list": [1, None]},
        {"set": ["a", "b"], "keyed": [{"a": "x"}, {"b": "x"}, {"a": "x", "b": "x"}]},
        {"open": {"known": 1, "other": {"a": 1}}, "empty": {"a": 1}},
    ],
)
def test_what_fits(value: Any) -> None:
    assert mismatches(value, ONE_OF_EACH) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"s": 1}, ".s: expected string, got &value.valueUnstructured{Value:1}"),
        (
            {"s": {"a": ["x"]}},
            ".s: expected string, got &value.valueUnstructured{Value:"
            'map[string]interface {}{"a":[]interface {}{"x"}}}',
        ),
        ({"bytes": True}, ".bytes: expected string, got &value.valueUnstructured{Value:true}"),
        ({"i": "1"}, ".i: expected numeric (int or float), got string"),
        ({"i": True}, ".i: expected numeric (int or float), got bool"),
        ({"f": [1]}, ".f: expected numeric (int or float), got []interface {}"),
        ({"b": "true"}, ".b: expected boolean, got &{true}"),
        ({"b": 1}, ".b: expected boolean, got &{1}"),
        ({"q": {"a": None}}, ".q: expected any scalar, got &{map[a:<nil>]}"),
        ({"map": "x"}, ".map: expected map, got &{x}"),
        ({"open": [1, 2]}, ".open: expected map, got &{[1 2]}"),
        ({"list": {"a": 1}}, ".list: expected list, got &{map[a:1]}"),
        ({"map": {"a": "x"}}, ".map.a: expected numeric (int or float), got string"),
        ({"list": [1, "x"]}, ".list[1]: expected numeric (int or float), got string"),
        ({"nope": 1}, ".nope: field not declared in schema"),
        ({"open": {"known": "x"}}, ".open.known: expected numeric (int or float), got string"),
        ({"set": ["a", "a"]}, '.set: duplicate entries for key [="a"]'),
        (
            {"set": [None]},
            ".set: element 0: associative list without keys has an element that's an explicit null",
        ),
        (
            {"set": [{}]},
            ".set: element 0: associative list without keys has an element that's a map type",
        ),
        (
            {"set": [[]]},
            ".set: element 0: not supported: associative list with lists as elements",
        ),
        (
            {"keyed": ["x"]},
            ".keyed: element 0: associative list with keys may not have non-map elements",
        ),
        (
            {"keyed": [None]},
            ".keyed: element 0: associative list with keys may not have a null element",
        ),
        (
            {"keyed": [{}]},
            ".keyed: element 0: associative list with keys has an element that omits all key fields"
            ' ["a" "b"] (and doesn\'t have default values for any key fields)',
        ),
        (
            {"keyed": [{"b": "x", "a": "y"}, {"a": "y", "b": "x"}]},
            '.keyed: duplicate entries for key [a="y",b="x"]',
        ),
        ({"keyed": [{"a": "y", "c": 1}]}, '.keyed[a="y"].c: field not declared in schema'),
        (
            {"s": 1, "keyed": [{"a": 1}]},
            "errors:\n"
            "  .s: expected string, got &value.valueUnstructured{Value:1}\n"
            "  .keyed[a=1].a: expected string, got &value.valueUnstructured{Value:1}",
        ),
    ],
)
def test_what_does_not_fit(value: Any, text: str) -> None:
    assert summary(mismatches(value, ONE_OF_EACH)) == text


def test_of_undeclared_fields_the_first_is_reported_and_nothing_else_of_its_struct() -> None:
    value = {"spec": {"replicas": "x", "bogus": 1, "other": 2}, "data": {"a": 1}}
    assert summary(mismatches(value, APP)) == (
        "errors:\n"
        "  .spec.bogus: field not declared in schema\n"
        "  .data.a: expected string, got &value.valueUnstructured{Value:1}"
    )


def test_a_key_that_is_absent_has_its_default() -> None:
    spec = {"containers": [{"name": "a", "ports": [{"port": 80}, {"port": 80, "protocol": "TCP"}]}]}
    assert summary(mismatches({"spec": spec}, APP)) == (
        '.spec.containers[name="a"].ports: duplicate entries for key [port=80,protocol="TCP"]'
    )


def test_a_number_in_a_path_is_printed_as_it_was_given() -> None:
    ports = list_by("id", items=struct(id=INT, on=BOOL))
    assert summary(mismatches([{"id": 1234567, "on": 1}], ports)) == (
        "[id=1234567].on: expected boolean, got &{1}"
    )


def test_a_value_that_is_no_object() -> None:
    assert summary(mismatches(["x"], APP)) == "expected map, got &{[x]}"
