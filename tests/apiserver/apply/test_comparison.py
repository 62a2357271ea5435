from typing import Any

import pytest

from kvstack.apimachinery.schema.load import load
from kvstack.apiserver.apply.comparison import Comparison, compare, is_same, reaches_untyped
from kvstack.apiserver.apply.field_set import FieldSet
from kvstack.apiserver.apply.structure import ItemError
from tests.apiserver.apply.types import (
    ANY,
    APP,
    INT,
    RAW_EXTENSION,
    STRING,
    list_by,
    list_of,
    map_of,
    set_of,
    struct,
)

ITEM = struct(name=STRING, value=STRING, more=map_of(STRING))
TYPE = struct(
    n=INT,
    m=map_of(STRING),
    whole_map=map_of(STRING, atomic=True),
    s=struct(a=INT, b=INT),
    whole=struct(a=INT, atomic=True),
    list=list_of(STRING),
    set=set_of(STRING),
    items=list_by("name", items=ITEM),
    any=ANY,
    raw=RAW_EXTENSION,
)
A, B = 'k:{"name":"a"}', 'k:{"name":"b"}'


@pytest.mark.parametrize(
    ("live", "new", "added", "modified", "removed"),
    [
        ({}, {}, {}, {}, {}),
        ({"n": 1}, {"n": 1}, {}, {}, {}),
        ({"n": 1}, {"n": 2}, {}, {"f:n": {}}, {}),
        ({"n": 1}, {"n": None}, {}, {"f:n": {}}, {}),
        ({"n": 1}, {}, {}, {}, {"f:n": {}}),
        ({}, {"n": 1}, {"f:n": {}}, {}, {}),
        # Maps and structs
        ({}, {"m": {"a": "1"}}, {"f:m": {".": {}, "f:a": {}}}, {}, {}),
        ({"m": {"a": "1"}}, {}, {}, {}, {"f:m": {".": {}, "f:a": {}}}),
        ({"m": {"a": "1"}}, {"m": {"b": "1"}}, {"f:m": {"f:b": {}}}, {}, {"f:m": {"f:a": {}}}),
        ({"m": None}, {"m": {"b": "1"}}, {"f:m": {"f:b": {}}}, {}, {}),
        ({"m": {"b": "1"}}, {"m": {}}, {}, {}, {"f:m": {"f:b": {}}}),
        ({"m": {}}, {"m": None}, {}, {"f:m": {}}, {}),
        ({}, {"m": {}}, {"f:m": {}}, {}, {}),
        ({}, {"m": None}, {"f:m": {}}, {}, {}),
        ({"s": {"a": 1}}, {"s": {"a": 2, "b": 1}}, {"f:s": {"f:b": {}}}, {"f:s": {"f:a": {}}}, {}),
        ({}, {"s": {"a": 1}}, {"f:s": {".": {}, "f:a": {}}}, {}, {}),
        # Atomic ones
        ({"whole_map": {"a": "1"}}, {"whole_map": {}}, {}, {"f:whole_map": {}}, {}),
        ({}, {"whole": {"a": 1}}, {"f:whole": {}}, {}, {}),
        ({"whole": {"a": 1}}, {"whole": {"a": 2}}, {}, {"f:whole": {}}, {}),
        ({"list": ["a"]}, {"list": ["b", "a"]}, {}, {"f:list": {}}, {}),
        # Lists
        ({}, {"set": ["a"]}, {"f:set": {".": {}, 'v:"a"': {}}}, {}, {}),
        ({}, {"set": []}, {"f:set": {}}, {}, {}),
        ({"set": []}, {"set": None}, {}, {"f:set": {}}, {}),
        ({"set": ["a"]}, {"set": ["b"]}, {"f:set": {'v:"b"': {}}}, {}, {"f:set": {'v:"a"': {}}}),
        ({"set": ["a", "b"]}, {"set": ["b", "a"]}, {}, {}, {}),
        (
            {"items": [{"name": "a", "value": "1"}]},
            {"items": [{"name": "b"}, {"name": "a", "value": "2"}]},
            {"f:items": {B: {".": {}, "f:name": {}}}},
            {"f:items": {A: {"f:value": {}}}},
            {},
        ),
        (
            {"items": [{"name": "a", "more": {"x": "1"}}]},
            {"items": []},
            {},
            {},
            {"f:items": {A: {".": {}, "f:more": {".": {}, "f:x": {}}, "f:name": {}}}},
        ),
        # Items that stand more than once
        ({"set": ["a", "a"]}, {"set": ["a", "a"]}, {}, {}, {}),
        ({"set": ["a", "a"]}, {"set": ["a", "a", "a"]}, {}, {"f:set": {'v:"a"': {}}}, {}),
        (
            {"items": [{"name": "a", "value": "1"}]},
            {"items": [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}]},
            {"f:items": {A: {}}},
            {},
            {"f:items": {A: {".": {}, "f:name": {}, "f:value": {}}}},
        ),
        (
            {"items": [{"name": "a"}, {"name": "a"}]},
            {"items": [{"name": "a"}]},
            {"f:items": {A: {".": {}, "f:name": {}}}},
            {},
            {"f:items": {A: {}}},
        ),
        (
            {},
            {"items": [{"name": "a"}, {"name": "a"}]},
            {"f:items": {".": {}, A: {}}},
            {},
            {},
        ),
        # Content without a schema
        ({}, {"any": {"a": [1]}}, {"f:any": {".": {}, "f:a": {}}}, {}, {}),
        ({"any": {"a": [1]}}, {"any": {"a": [2]}}, {}, {"f:any": {"f:a": {}}}, {}),
        ({"any": {"a": 1}}, {"any": {"a": True}}, {}, {"f:any": {"f:a": {}}}, {}),
        ({"any": {"a": 1}}, {"any": {"a": 1.0}}, {}, {}, {}),
        ({"any": {"a": 1}}, {"any": "x"}, {}, {"f:any": {}}, {"f:any": {"f:a": {}}}),
        ({"any": "x"}, {"any": {"a": 1}}, {"f:any": {"f:a": {}}}, {"f:any": {}}, {}),
        ({"any": "x"}, {"any": {}}, {}, {"f:any": {}}, {}),
        ({"any": {"a": 1}}, {"any": None}, {}, {}, {"f:any": {"f:a": {}}}),
        ({"any": ["x"]}, {"any": None}, {}, {"f:any": {}}, {}),
        ({"any": None}, {"any": {"a": 1}}, {"f:any": {"f:a": {}}}, {}, {}),
        ({"raw": {"a": 1}}, {"raw": {"a": 2}}, {}, {"f:raw": {}}, {}),
        ({"raw": {"a": 1}}, {"raw": "x"}, {}, {"f:raw": {}}, {}),
        ({"gone": 1}, {"gone": 2}, {}, {"f:gone": {}}, {}),
    ],
)
def test_what_differs(
    live: Any, new: Any, added: FieldSet, modified: FieldSet, removed: FieldSet
) -> None:
    assert compare(live, new, TYPE) == Comparison(added, modified, removed)


def test_sets_are_in_order() -> None:
    new = {"n": 1, "m": {"b": "", "a": ""}, "set": ["b", "a"]}
    assert str(compare({}, new, TYPE).added) == str(
        {
            "f:m": {".": {}, "f:a": {}, "f:b": {}},
            "f:n": {},
            "f:set": {".": {}, 'v:"a"': {}, 'v:"b"': {}},
        }
    )


def test_an_item_without_its_keys_cannot_be_compared() -> None:
    with pytest.raises(ItemError, match="may not have a null element"):
        compare({"items": [None]}, {"items": [{"name": "a"}]}, TYPE)


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (1, 1.0, True),
        (1, True, False),
        ({"a": [0]}, {"a": [False]}, False),
        ({"a": [0], "b": 1}, {"b": 1.0, "a": [0]}, True),
        ({"a": None}, {}, False),
        ("1", 1, False),
    ],
)
def test_values_are_the_same(left: object, right: object, *, same: bool) -> None:
    assert is_same(left, right) is same
    assert is_same(right, left) is same


def test_only_some_types_hold_content_without_a_schema() -> None:
    assert not reaches_untyped(APP)
    assert reaches_untyped(TYPE)
    assert reaches_untyped(struct(s=list_of(struct(open_=True, a=INT))))
    table = load()
    open_kinds = {each.kind.kind for each in table if reaches_untyped(each.type)}
    assert {"ControllerRevision", "CustomResourceDefinition"} <= open_kinds
    assert open_kinds.isdisjoint({"ConfigMap", "CronJob", "Deployment", "Job", "Node", "Pod"})
