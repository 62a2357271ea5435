from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.apiserver.apply.merging import merge
from tests.apiserver.apply.types import (
    ANY,
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
    whole=map_of(STRING, atomic=True),
    s=struct(a=INT, t=struct(b=INT)),
    list=list_of(STRING),
    set=set_of(STRING),
    items=list_by("name", items=ITEM),
    any=ANY,
    raw=RAW_EXTENSION,
)


@pytest.mark.parametrize(
    ("live", "config", "merged"),
    [
        ({}, {}, {}),
        ({"n": 1}, {}, {"n": 1}),
        ({"n": 1}, {"n": 2}, {"n": 2}),
        ({"n": 1}, {"n": None}, {"n": None}),
        ({"m": {"a": "1"}}, {"m": {"b": "2"}}, {"m": {"a": "1", "b": "2"}}),
        ({"m": {"a": "1"}}, {"m": {}}, {"m": {"a": "1"}}),
        ({"m": {"a": "1"}}, {"m": None}, {"m": {"a": "1"}}),
        ({"m": {}}, {"m": None}, {"m": None}),
        ({"m": None}, {"m": {}}, {"m": {}}),
        ({"s": {"a": 1}}, {"s": {"t": {"b": 1}}}, {"s": {"a": 1, "t": {"b": 1}}}),
        ({"whole": {"a": "1"}}, {"whole": {"b": "1"}}, {"whole": {"b": "1"}}),
        ({"whole": {"a": "1"}}, {"whole": None}, {"whole": None}),
        ({"list": ["a"]}, {"list": ["b"]}, {"list": ["b"]}),
        ({"list": ["a"]}, {"list": []}, {"list": []}),
        ({"set": ["a"]}, {"set": []}, {"set": ["a"]}),
        ({"set": []}, {"set": None}, {"set": None}),
        (
            {"items": [{"name": "a", "value": "1"}]},
            {"items": [{"name": "a", "value": "2"}, {"name": "b"}]},
            {"items": [{"name": "a", "value": "2"}, {"name": "b"}]},
        ),
        (
            {"items": [{"name": "a", "value": "1"}]},
            {"items": [{"name": "a"}]},
            {"items": [{"name": "a", "value": "1"}]},
        ),
        ({"any": {"a": {"b": 1}}}, {"any": {"a": {"c": 2}}}, {"any": {"a": {"b": 1, "c": 2}}}),
        ({"any": {"a": 1}}, {"any": [1]}, {"any": [1]}),
        ({"any": {"a": 1}}, {"any": None}, {"any": {"a": 1}}),
        ({"any": [1]}, {"any": None}, {"any": None}),
        ({"any": "x"}, {"any": {}}, {"any": {}}),
        ({"raw": {"a": 1}}, {"raw": {"b": 1}}, {"raw": {"b": 1}}),
    ],
)
def test_a_configuration_is_laid_over_a_live_object(live: Any, config: Any, merged: Any) -> None:
    before = str(live), str(config)
    assert merge(live, config, TYPE) == merged
    assert (str(live), str(config)) == before


@pytest.mark.parametrize(
    ("live", "config", "merged"),
    [
        ("a", "b", "a b"),
        ("a b c", "c a", "b c a"),
        ("b d", "z d y b", "z d y b"),
        ("x a y b", "b n a", "x y b n a"),
        ("a b", "n a b", "n a b"),
        ("a b", "a b n", "a b n"),
        ("a b", "a n b", "a n b"),
        ("x y", "n m", "x y n m"),
        ("a x b y", "a b", "a x b y"),
        ("a x b y", "b a", "x b y a"),
        ("d a c e b", "d b", "d a c e b"),
        # What stands more than once in the live list stays, unless it is applied.
        ("x x a", "a", "x x a"),
        ("a a y", "a c", "a c y"),
        ("a a y b", "a c b", "a y c b"),
    ],
)
def test_the_order_of_merged_items(live: str, config: str, merged: str) -> None:
    found = merge({"set": live.split()}, {"set": config.split()}, TYPE)
    assert found == {"set": merged.split()}


def test_an_item_that_stands_twice_is_replaced_by_the_one_applied() -> None:
    live = [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}]
    assert merge({"items": live}, {"items": [{"name": "a"}]}, TYPE) == {"items": [{"name": "a"}]}


NAMES = st.lists(st.sampled_from("abcdefg"), unique=True)


@given(NAMES, NAMES)
def test_merged_items_are_those_of_both_in_the_order_of_the_configuration(
    live: list[str], config: list[str]
) -> None:
    merged = merge({"set": live}, {"set": config}, TYPE)["set"]
    assert sorted(merged) == sorted({*live, *config})
    assert [each for each in merged if each in config] == config
    alone = [each for each in live if each not in config]
    assert [each for each in merged if each in alone] == alone
    assert merge({"set": merged}, {"set": config}, TYPE)["set"] == merged
