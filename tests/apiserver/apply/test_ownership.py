from typing import Any

import pytest

from kvstack.apiserver.apply.field_set import FieldSet
from kvstack.apiserver.apply.ownership import fields_of, fit_set, with_named_fields
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

ITEM = struct(name=STRING, value=STRING)
TYPE = struct(
    n=INT,
    m=map_of(STRING),
    structs=map_of(struct(a=INT, b=list_by("name", items=ITEM))),
    s=struct(a=INT, t=struct(b=INT)),
    whole=struct(a=INT, atomic=True),
    list=list_of(STRING),
    set=set_of(STRING),
    items=list_by("name", items=ITEM),
    any=ANY,
    raw=RAW_EXTENSION,
)
A = 'k:{"name":"a"}'


@pytest.mark.parametrize(
    ("value", "fields"),
    [
        ({}, {}),
        ({"n": 1, "m": {"b": "", "a": ""}}, {"f:m": {"f:a": {}, "f:b": {}}, "f:n": {}}),
        ({"n": None}, {"f:n": {}}),
        ({"m": {}}, {"f:m": {}}),
        ({"m": None}, {"f:m": {}}),
        ({"m": {"a": None}}, {"f:m": {"f:a": {}}}),
        ({"s": {"t": {"b": 1}}}, {"f:s": {"f:t": {"f:b": {}}}}),
        ({"s": {"t": {}}}, {"f:s": {"f:t": {}}}),
        ({"structs": {"x": {"a": 1}}}, {"f:structs": {"f:x": {".": {}, "f:a": {}}}}),
        ({"structs": {"x": {}}}, {"f:structs": {"f:x": {}}}),
        ({"structs": {"x": {"b": []}}}, {"f:structs": {"f:x": {}}}),
        ({"whole": {"a": 1}}, {"f:whole": {}}),
        ({"list": ["a"]}, {"f:list": {}}),
        ({"list": []}, {"f:list": {}}),
        ({"set": ["a"]}, {"f:set": {'v:"a"': {}}}),
        ({"set": []}, {}),
        ({"set": None}, {"f:set": {}}),
        ({"s": {"t": None}, "set": []}, {"f:s": {"f:t": {}}}),
        ({"items": [{"name": "a", "value": "x"}]},
         {"f:items": {A: {".": {}, "f:name": {}, "f:value": {}}}}),
        ({"items": [{"name": "a"}, {"name": "a", "value": "x"}]}, {"f:items": {A: {}}}),
        ({"any": {"a": {"b": [1]}}}, {"f:any": {"f:a": {".": {}, "f:b": {}}}}),
        ({"any": [1]}, {"f:any": {}}),
        ({"any": None}, {"f:any": {}}),
        ({"raw": {"a": 1}}, {"f:raw": {}}),
        ({"what": {"a": 1}}, {"f:what": {".": {}, "f:a": {}}}),
    ],
)  # fmt: skip
def test_what_a_configuration_names(value: Any, fields: FieldSet) -> None:
    found = fields_of(value, TYPE)
    assert found == fields
    assert str(found) == str(fields)


def test_an_item_that_lost_its_keys_keeps_its_list_from_being_empty() -> None:
    assert fields_of({"items": [None]}, TYPE) == {"f:items": {"?": {}}}


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"f:s": {"f:t": {"f:b": {}}}}, {"f:s": {".": {}, "f:t": {".": {}, "f:b": {}}}}),
        ({"f:structs": {"f:x": {"f:a": {}}}}, {"f:structs": {".": {}, "f:x": {"f:a": {}}}}),
        (
            {"f:structs": {"f:x": {"f:b": {A: {"f:value": {}}}}}},
            {"f:structs": {".": {}, "f:x": {"f:b": {".": {}, A: {"f:value": {}}}}}},
        ),
        ({"f:any": {"f:a": {"f:b": {}}}}, {"f:any": {".": {}, "f:a": {"f:b": {}}}}),
        ({"f:gone": {"f:s": {"f:t": {}}}}, {"f:gone": {"f:s": {"f:t": {}}}}),
        (
            {"f:items": {"i:0": {"f:x": {"f:y": {}}}}},
            {"f:items": {".": {}, "i:0": {"f:x": {"f:y": {}}}}},
        ),
    ],
)  # fmt: skip
def test_fields_with_members_below_become_members(fields: FieldSet, named: FieldSet) -> None:
    assert with_named_fields(fields, TYPE) == named


@pytest.mark.parametrize(
    ("fields", "fit"),
    [
        ({"f:whole": {"f:a": {}}}, {"f:whole": {}}),
        ({"f:whole": {".": {}, "f:a": {}}, "f:n": {}}, {"f:n": {}, "f:whole": {}}),
        ({"f:list": {'v:"a"': {}}}, {"f:list": {}}),
        ({"f:raw": {"f:a": {}}}, {"f:raw": {}}),
        ({"f:any": {"f:a": {"f:b": {}}}}, {"f:any": {"f:a": {"f:b": {}}}}),
        ({"f:gone": {"f:a": {}}}, {"f:gone": {"f:a": {}}}),
        ({"f:n": {"f:a": {}}}, {"f:n": {"f:a": {}}}),
    ],
)
def test_sets_fit_the_types_of_now(fields: FieldSet, fit: FieldSet) -> None:
    assert fit_set(fields, TYPE) == fit


def test_a_set_that_fits_is_the_same_object() -> None:
    value = {"metadata": {"labels": {"a": ""}}, "spec": {"containers": [{"name": "a"}]}}
    fields = fields_of(value, APP)
    assert fit_set(fields, APP) is fields


def test_what_became_atomic_below_an_item_is_owned_as_a_whole() -> None:
    was = fields_of({"items": [{"name": "a", "m": {"x": "1"}}]}, _items(map_of(STRING)))
    now = _items(map_of(STRING, atomic=True))
    assert fit_set(was, now) == {"f:items": {A: {".": {}, "f:m": {}, "f:name": {}}}}


def _items(more: Any) -> Any:
    return struct(items=list_by("name", items=struct(name=STRING, m=more)))
