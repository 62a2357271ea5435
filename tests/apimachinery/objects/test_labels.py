"""Label selectors: texts, objects, and what they match."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.apimachinery.objects import labels
from kvstack.apimachinery.objects.labels import (
    EVERYTHING,
    NOTHING,
    Requirement,
    SelectorError,
    parse,
)

names = st.sampled_from(["a", "b", "in", "notin", "x.y/z"])
values = st.sampled_from(["", "1", "2", "in", "x-y"])
sets = st.dictionaries(names, values, max_size=3)
requirements = st.one_of(
    st.builds(
        Requirement,
        names,
        st.sampled_from([labels.IN, labels.NOT_IN]),
        st.sets(values, min_size=1, max_size=3).map(lambda each: tuple(sorted(each))),
    ),
    st.builds(
        Requirement,
        names,
        st.sampled_from([labels.EQUALS, labels.DOUBLE_EQUALS, labels.NOT_EQUALS]),
        values.map(lambda each: (each,)),
    ),
    st.builds(
        Requirement, names, st.sampled_from([labels.EXISTS, labels.DOES_NOT_EXIST]), st.just(())
    ),
    st.builds(
        Requirement,
        names,
        st.sampled_from([labels.GREATER_THAN, labels.LESS_THAN]),
        st.sampled_from([("1",), ("3",)]),
    ),
)
selectors = st.lists(requirements, max_size=4).map(labels.Selector)


def holds(requirement: Requirement, given_labels: Mapping[str, str]) -> bool:
    """Tell naively whether a requirement holds."""
    name, operator, wanted = requirement
    value = given_labels.get(name)
    if operator in {labels.IN, labels.EQUALS, labels.DOUBLE_EQUALS}:
        return value is not None and value in wanted
    if operator in {labels.NOT_IN, labels.NOT_EQUALS}:
        return value is None or value not in wanted
    if operator == labels.EXISTS:
        return value is not None
    if operator == labels.DOES_NOT_EXIST:
        return value is None
    if value is None or not value.lstrip("-").isdigit():
        return False
    bound = int(wanted[0])
    return int(value) > bound if operator == labels.GREATER_THAN else int(value) < bound


@given(selectors)
def test_a_selector_comes_back_from_its_text(selector: labels.Selector) -> None:
    assert parse(str(selector)) == selector
    assert hash(parse(str(selector))) == hash(selector)


@given(selectors, sets)
def test_it_matches_what_its_requirements_allow(
    selector: labels.Selector, given_labels: dict[str, str]
) -> None:
    expected = all(holds(each, given_labels) for each in selector.requirements)
    assert selector.matches(given_labels) is expected


@given(st.text(alphabet="ab=!(),<> in\0\té1", max_size=12))
def test_no_query_is_too_odd(text: str) -> None:
    try:
        selector = parse(text)
    except SelectorError:
        return
    assert parse(str(selector)) == selector


@given(sets)
def test_maps(given_labels: dict[str, str]) -> None:
    selector = labels.from_map(given_labels)
    assert selector.matches(given_labels)
    assert str(selector) == ",".join(sorted(f"{n}={v}" for n, v in given_labels.items()))


def test_everything_and_nothing() -> None:
    assert parse("") is EVERYTHING
    assert EVERYTHING.is_everything
    assert EVERYTHING.matches({})
    assert not NOTHING.matches({})
    assert not NOTHING.is_everything
    assert NOTHING != EVERYTHING
    assert labels.from_object(None) is NOTHING
    assert labels.from_object({}) is EVERYTHING
    assert labels.format_object(None) == "<none>"


@pytest.mark.parametrize(
    ("text", "value"),
    [("a=1", "1"), ("a in (1)", "1"), ("a in (1,2)", None), ("a!=1", None), ("b=1", None)],
)
def test_the_value_a_label_must_have(text: str, value: str | None) -> None:
    assert parse(text).exact_value("a") == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (",", "found ',', expected: !, identifier, or 'end of string'"),
        ("a=1,", "found '', expected: identifier after ','"),
        ("a=1=2", "found '=', expected: ',' or 'end of string'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        (
            "a>x",
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt'"
            " operators, the value must be an integer",
        ),
    ],
)
def test_what_is_said_of_bad_queries(text: str, message: str) -> None:
    with pytest.raises(SelectorError) as caught:
        parse(text)
    assert str(caught.value) == message


OBJECT = {
    "matchLabels": {"app": "web"},
    "matchExpressions": [
        {"key": "tier", "operator": "In", "values": ["b", "a"]},
        {"key": "old", "operator": "DoesNotExist"},
    ],
}


def test_objects() -> None:
    selector = labels.from_object(OBJECT)
    assert str(selector) == "app=web,!old,tier in (a,b)"
    assert labels.format_object(OBJECT) == "app=web,!old,tier in (a,b)"
    assert labels.validate_object("s", OBJECT) == []


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ({"key": "a", "operator": "In"}, "s.matchExpressions[0].values: Required value: must be"),
        (
            {"key": "a", "operator": "Exists", "values": ["x"]},
            "s.matchExpressions[0].values: Forbidden: may not be specified when `operator`",
        ),
        (
            {"key": "a", "operator": "Gt", "values": ["1"]},
            's.matchExpressions[0].operator: Invalid value: "Gt": not a valid selector operator',
        ),
        (
            {"key": "a", "operator": "In", "values": ["-"]},
            's.matchExpressions[0].values[0]: Invalid value: "-": a valid label must be',
        ),
        (
            {"key": "", "operator": "Exists"},
            's.matchExpressions[0].key: Invalid value: "": name part must be non-empty',
        ),
    ],
)
def test_what_is_wrong_with_objects(expression: dict[str, Any], message: str) -> None:
    found = labels.validate_object("s", {"matchExpressions": [expression]})
    assert str(found[0]).startswith(message)
    assert labels.format_object({"matchExpressions": [expression]}) == "<error>"


def test_values_that_were_stored_before_may_stay() -> None:
    selector = {"matchExpressions": [{"key": "a", "operator": "In", "values": ["-"]}]}
    assert labels.has_invalid_value(selector)
    assert not labels.has_invalid_value(OBJECT)
    assert labels.validate_object("s", selector, allow_invalid_values=True) == []
    unknown = {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}
    assert labels.validate_object("s", unknown, allow_unknown_operators=True) == []
