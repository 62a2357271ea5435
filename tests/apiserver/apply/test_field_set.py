from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.apiserver.apply.field_set import (
    FieldsError,
    FieldSet,
    contains,
    difference,
    intersection,
    is_subset,
    of_path,
    of_paths,
    paths,
    read,
    recursive_difference,
    union,
)
from kvstack.apiserver.apply.path import Path, in_order

ELEMENTS = ["f:a", "f:b", "f:c", 'k:{"n":1}', 'k:{"n":12}', 'k:{"n":2}', 'v:"x"', "i:0"]
PATHS = st.lists(st.sampled_from(ELEMENTS), min_size=1, max_size=4).map(tuple)
SETS_OF_PATHS = st.frozensets(PATHS, max_size=12)


@pytest.mark.parametrize(
    ("written", "fields"),
    [
        ({}, {}),
        (None, {}),
        ({"f:a": {}}, {"f:a": {}}),
        ({"f:a": None}, {"f:a": {}}),
        ({"f:a": {".": {}}}, {"f:a": {}}),
        ({"f:a": {".": {"what": "ever"}, "f:b": {}}}, {"f:a": {".": {}, "f:b": {}}}),
        ({"f:a": {"f:b": {}}}, {"f:a": {"f:b": {}}}),
        ({"f:b": {}, "f:a": {}}, {"f:a": {}, "f:b": {}}),
        ({"x:a": {}, "f:a": {"y:b": {}}}, {"f:a": {}}),
        ({"f:a": {'k:{"n": 1.0}': {}}}, {"f:a": {'k:{"n":1}': {}}}),
        ({"v:1": {"f:a": {}}, "v:1.0": {"f:b": {}}}, {"v:1": {"f:a": {}, "f:b": {}}}),
        ({"v:1": {"f:a": {}}, "v:1.0": {}}, {"v:1": {".": {}, "f:a": {}}}),
        ({".": {}, "f:a": {}}, {"f:a": {}}),
    ],
)
def test_reading(written: Any, fields: FieldSet) -> None:
    found = read(written)
    assert found == fields
    assert _levels_are_ordered(found)


@pytest.mark.parametrize(
    "written", [{"a": {}}, {"f:a": []}, {"f:a": 1}, {"f:a": {"k:x": {}}}, [], "f:a", {"v:": {}}]
)
def test_what_is_no_set(written: Any) -> None:
    with pytest.raises(FieldsError):
        read(written)


def test_a_set_too_deep_to_read_is_refused() -> None:
    written: dict[str, Any] = {}
    for _ in range(5000):
        written = {"f:a": written}
    with pytest.raises(FieldsError, match="exceeded max depth"):
        read(written)


def test_members_of_a_level_come_before_those_below() -> None:
    fields = of_paths(("f:b", "f:x"), ("f:b",), ("f:a", "f:y"), ("f:c",))
    assert list(paths(fields)) == [("f:b",), ("f:c",), ("f:a", "f:y"), ("f:b", "f:x")]


@pytest.mark.parametrize(
    ("fields", "others", "left"),
    [
        ({"f:a": {}}, {"f:a": {}}, {}),
        ({"f:a": {"f:b": {}}}, {"f:a": {}}, {"f:a": {"f:b": {}}}),
        ({"f:a": {".": {}, "f:b": {}}}, {"f:a": {}}, {"f:a": {"f:b": {}}}),
        ({"f:a": {".": {}, "f:b": {}}}, {"f:a": {"f:b": {}}}, {"f:a": {}}),
        ({"f:a": {}}, {"f:a": {".": {}, "f:b": {}}}, {}),
        ({"f:a": {}}, {"f:a": {"f:b": {}}}, {"f:a": {}}),
    ],
)
def test_difference_leaves_what_is_below(
    fields: FieldSet, others: FieldSet, left: FieldSet
) -> None:
    assert difference(fields, others) == left


@pytest.mark.parametrize(
    ("fields", "others", "left"),
    [
        ({"f:a": {".": {}, "f:b": {}}, "f:c": {}}, {"f:a": {}}, {"f:c": {}}),
        ({"f:a": {"f:b": {}}}, {"f:a": {".": {}, "f:c": {}}}, {}),
        ({"f:a": {"f:b": {"f:d": {}}, "f:c": {}}}, {"f:a": {"f:b": {}}}, {"f:a": {"f:c": {}}}),
    ],
)
def test_recursive_difference_takes_what_is_below(
    fields: FieldSet, others: FieldSet, left: FieldSet
) -> None:
    assert recursive_difference(fields, others) == left


@given(SETS_OF_PATHS)
def test_a_set_has_the_paths_it_was_made_of(members: frozenset[Path]) -> None:
    fields = of_paths(*members)
    assert set(paths(fields)) == members
    assert len(list(paths(fields))) == len(members)
    assert all(contains(fields, path) for path in members)
    assert read(fields) == fields
    assert _levels_are_ordered(fields)


@given(SETS_OF_PATHS, SETS_OF_PATHS, PATHS)
def test_the_algebra_is_that_of_sets_of_paths(
    ours: frozenset[Path], theirs: frozenset[Path], path: Path
) -> None:
    left, right = of_paths(*ours), of_paths(*theirs)
    before = str(left), str(right)
    results = {
        "union": (union(left, right), ours | theirs),
        "intersection": (intersection(left, right), ours & theirs),
        "difference": (difference(left, right), ours - theirs),
        "recursive": (recursive_difference(left, right), _not_below(ours, theirs)),
    }
    for found, expected in results.values():
        assert set(paths(found)) == expected
        assert found == of_paths(*expected)
        assert _levels_are_ordered(found)
        assert contains(found, path) == (path in expected)
    assert is_subset(left, right) == (ours <= theirs)
    assert (str(left), str(right)) == before


@given(SETS_OF_PATHS, SETS_OF_PATHS)
def test_what_does_not_change_is_the_same_object(
    ours: frozenset[Path], theirs: frozenset[Path]
) -> None:
    left = of_paths(*ours)
    assert union(left, of_paths(*(ours & theirs))) is left
    assert intersection(left, of_paths(*(ours | theirs))) is left
    apart = of_paths(*(theirs - ours))
    assert difference(left, apart) is left


def test_the_empty_path_is_no_member() -> None:
    assert of_path(()) == {}
    assert not contains({"f:a": {}}, ())
    assert not contains({"f:a": {}}, ("f:a", "f:b"))


def _not_below(ours: frozenset[Path], theirs: frozenset[Path]) -> frozenset[Path]:
    return frozenset(
        path
        for path in ours
        if not any(path[:length] in theirs for length in range(1, len(path) + 1))
    )


def _levels_are_ordered(level: FieldSet) -> bool:
    return list(level) == in_order(level) and all(map(_levels_are_ordered, level.values()))
