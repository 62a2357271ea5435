from typing import Any

import pytest

from kvstack.apiserver.apply.field_set import FieldSet
from kvstack.apiserver.apply.removal import extract, remove
from tests.apiserver.apply.types import (
    ANY,
    INT,
    STRING,
    list_by,
    list_of,
    map_of,
    set_of,
    struct,
)

ITEM = struct(name=STRING, value=STRING)
TYPE = struct(
    n=INT,
    m=map_of(STRING),
    whole=map_of(STRING, atomic=True),
    s=struct(a=INT, b=INT),
    list=list_of(STRING),
    set=set_of(STRING),
    items=list_by("name", items=ITEM),
    any=ANY,
)
A = 'k:{"name":"a"}'
VALUE: dict[str, Any] = {
    "n": 1,
    "m": {"a": "1", "b": "2"},
    "whole": {"a": "1"},
    "s": {"a": 1},
    "list": ["a"],
    "set": ["a", "b"],
    "items": [{"name": "a", "value": "x"}, {"name": "b", "value": "y"}],
    "any": {"a": {"b": 1, "c": 2}},
}


@pytest.mark.parametrize(
    ("fields", "changed"),
    [
        ({}, {}),
        ({"f:n": {}, "f:gone": {}}, {"n": ...}),
        ({"f:m": {}}, {"m": ...}),
        ({"f:m": {"f:a": {}, "f:z": {}}}, {"m": {"b": "2"}}),
        ({"f:m": {"f:a": {}, "f:b": {}}}, {"m": None}),
        ({"f:m": {".": {}, "f:z": {}}}, {"m": ...}),
        ({"f:whole": {"f:z": {}}}, {"whole": None}),
        ({"f:list": {"i:0": {}}}, {"list": None}),
        ({"f:s": {"f:a": {}}}, {"s": None}),
        ({"f:n": {"f:a": {}}}, {}),
        ({"f:set": {'v:"a"': {}}}, {"set": ["b"]}),
        ({"f:set": {'v:"a"': {}, 'v:"b"': {}}}, {"set": None}),
        ({"f:items": {A: {}}}, {"items": VALUE["items"][1:]}),
        ({"f:items": {A: {"f:value": {}}}}, {"items": [{"name": "a"}, VALUE["items"][1]]}),
        ({"f:any": {"f:a": {"f:b": {}}}}, {"any": {"a": {"c": 2}}}),
    ],
)
def test_fields_are_removed(fields: FieldSet, changed: dict[str, Any]) -> None:
    before = str(VALUE)
    expected = {name: value for name, value in (VALUE | changed).items() if value is not ...}
    assert remove(VALUE, fields, TYPE) == expected
    assert str(VALUE) == before


def test_nothing_is_left_of_a_value_without_its_last_member() -> None:
    assert remove({"n": 1}, {"f:n": {}}, TYPE) is None
    assert remove({"m": {}}, {"f:m": {"f:a": {}}}, TYPE) == {"m": None}
    assert remove({}, {"f:n": {}}, TYPE) is None


def test_an_item_that_lost_its_keys_stays() -> None:
    assert remove({"items": [None]}, {"f:items": {A: {}}}, TYPE) == {"items": [None]}


@pytest.mark.parametrize(
    ("fields", "extracted"),
    [
        ({}, {}),
        ({"f:n": {}, "f:gone": {}}, {"n": 1}),
        ({"f:m": {"f:a": {}}}, {"m": {"a": "1"}}),
        ({"f:m": {}}, {"m": {}}),
        ({"f:whole": {}, "f:list": {}}, {"whole": {"a": "1"}, "list": ["a"]}),
        ({"f:set": {'v:"b"': {}}}, {"set": ["b"]}),
        (
            {"f:items": {A: {".": {}, "f:name": {}}}},
            {"items": [{"name": "a"}]},
        ),
        ({"f:any": {"f:a": {"f:c": {}}}}, {"any": {"a": {"c": 2}}}),
    ],
)
def test_fields_are_extracted(fields: FieldSet, extracted: dict[str, Any]) -> None:
    assert extract(VALUE, fields, TYPE) == extracted
