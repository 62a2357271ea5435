"""What is found of new objects is what a comparison with an empty one finds."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.apply.comparison import compare, is_same
from kvstack.apiserver.apply.everything import created_of, element_of, everything_of
from kvstack.apiserver.apply.field_set import union
from kvstack.apiserver.apply.structure import ItemError
from tests.apiserver.apply.types import ANY, APP, STRING, field, list_of, map_of, struct
from tests.apiserver.apply.values import APPS

ZEROS: list[Object] = [
    {},
    {"spec": {}, "metadata": None, "data": None},
    {"spec": {"containers": None, "selector": None, "strategy": {}}, "metadata": {"labels": None}},
    {"spec": {"replicas": 0, "paused": False, "strategy": {"type": ""}}, "kind": ""},
]
EMPTY: list[Any] = [None, {}, [], "", 0, False]


def as_compared(zero: Object, obj: Object) -> Object:
    found = compare(zero, obj, APP)
    return union(found.modified, found.added)


@given(APPS, st.sampled_from(ZEROS))
def test_a_create_sets_what_is_not_there_without_it(obj: Object, zero: Object) -> None:
    found = created_of(APP, zero, is_same)(obj)
    assert str(found) == str(as_compared(zero, obj))  # in the same order, too


@pytest.mark.parametrize("zero", ZEROS)
@pytest.mark.parametrize("value", EMPTY)
@given(obj=APPS)
def test_whatever_is_empty(zero: Object, value: Any, obj: Object) -> None:
    find = created_of(APP, zero, is_same)
    places: list[tuple[Object, str]] = [(obj, name) for name in obj]
    places += [(obj[at], name) for at in ("spec", "metadata") for name in obj[at]]
    for holder, name in places:
        kept, holder[name] = holder[name], value
        assert str(find(obj)) == str(as_compared(zero, obj)), (name, obj)
        holder[name] = kept


def test_items_are_distinguished_by_keys_of_every_kind() -> None:
    items = struct(a=STRING, b=ANY)
    one, two = list_of(items), list_of(items)
    one.list_type, one.list_keys = "map", ("a",)
    two.list_type, two.list_keys = "map", ("b", "a")
    assert element_of(one)({"a": "x"}) == 'k:{"a":"x"}'
    assert element_of(one)({"a": 1}) == 'k:{"a":1}'
    assert element_of(two)({"a": "x", "b": 1}) == 'k:{"a":"x","b":1}'
    assert element_of(two)({"a": "x", "b": True}) == 'k:{"a":"x","b":true}'
    assert element_of(two)({"a": "x", "b": 1.0}) == 'k:{"a":"x","b":1}'
    assert element_of(two)({"b": 1}) == 'k:{"b":1}'
    wrong: tuple[object, ...] = (None, [], {})
    for value in wrong:
        with pytest.raises(ItemError):
            element_of(two)(value)


def test_what_has_no_schema_and_what_is_whole() -> None:
    value = {"b": {"c": []}, "a": [{"d": 1}]}
    assert str(everything_of(ANY)(value)) == "{'.': {}, 'f:a': {}, 'f:b': {'.': {}, 'f:c': {}}}"
    assert everything_of(map_of(STRING, atomic=True))({"a": "b"}) == {}
    below = struct(field("known", map_of(ANY)), open_=True)
    given_value = copy.deepcopy({"known": value, "other": value})
    assert everything_of(below)(given_value)["f:other"] == everything_of(ANY)(value)
