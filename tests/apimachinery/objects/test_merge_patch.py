"""JSON merge patch: its laws, and how Kubernetes departs from the RFC."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.apimachinery.objects import merge_patch
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.text.json_text import equal

leaves = st.booleans() | st.integers(0, 3) | st.sampled_from(["x", "y"])
names = st.sampled_from("abc")


def values(leaf: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(leaf, lambda inner: st.dictionaries(names, inner, max_size=3), max_leaves=6)


documents = st.dictionaries(names, values(leaves), max_size=3)
patches = st.dictionaries(names, values(leaves | st.none()), max_size=3)


def by_the_rfc(document: Any, patch: Any) -> Any:
    """Merge as the pseudo code of RFC 7386 does."""
    if not isinstance(patch, dict):
        return patch
    result = dict(document) if isinstance(document, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = by_the_rfc(result.get(name), value)
    return result


@given(documents, patches)
def test_without_lists_it_is_what_the_rfc_says(
    document: dict[str, Any], patch: dict[str, Any]
) -> None:
    before = copy.deepcopy((document, patch))
    assert equal(merge_patch.apply(document, patch), by_the_rfc(document, patch))
    assert (document, patch) == before


@given(documents, patches)
def test_a_second_time_changes_nothing(document: dict[str, Any], patch: dict[str, Any]) -> None:
    once = merge_patch.apply(document, patch)
    assert equal(merge_patch.apply(once, patch), once)


@given(documents)
def test_an_empty_patch_changes_nothing(document: dict[str, Any]) -> None:
    assert equal(merge_patch.apply(document, {}), document)
    assert equal(merge_patch.apply({}, document), document)


def test_nulls_within_lists() -> None:
    patch = {"a": [None, {"x": None, "y": 1}]}
    assert merge_patch.apply({}, patch) == {"a": [None, {"y": 1}]}
    assert merge_patch.apply({"a": [1]}, patch) == {"a": [None, {"y": 1}]}
    assert merge_patch.apply({"a": {}}, patch) == {"a": [None, {"x": None, "y": 1}]}


def test_what_is_touched_is_sorted() -> None:
    document = {"b": {"z": 1, "y": 2}, "a": {"d": 1, "c": 2}}
    found = merge_patch.apply(document, {"b": {"x": 1}})
    assert list(found) == ["a", "b"]
    assert list(found["b"]) == ["x", "y", "z"]
    assert list(found["a"]) == ["d", "c"]


@pytest.mark.parametrize(
    ("text", "is_strict", "message"),
    [
        ("null", True, "Invalid JSON Patch"),
        ("5", False, "Invalid JSON Patch"),
        ("{", False, "Invalid JSON Patch"),
        ('"x"', True, "error decoding patch: json: cannot unmarshal string into Go value of type"
         " map[string]interface {}"),
        ("{", True, "error decoding patch: unexpected end of JSON input"),
    ],
)  # fmt: skip
def test_texts_that_are_no_patches(text: str, is_strict: bool, message: str) -> None:  # noqa: FBT001
    with pytest.raises(ApiError) as caught:
        merge_patch.parse(text.encode(), is_strict=is_strict)
    assert (caught.value.code, str(caught.value)) == (400, message)


def test_findings() -> None:
    assert merge_patch.parse(b'{"a":{"b":1,"b":2}}') == (
        {"a": {"b": 2}},
        ['duplicate field "a.b"'],
    )
    assert merge_patch.parse(b'[{"a":null}]', is_strict=False) == ([{"a": None}], [])
    assert merge_patch.apply({"x": 1}, [{"a": None}, None]) == [{}, None]
