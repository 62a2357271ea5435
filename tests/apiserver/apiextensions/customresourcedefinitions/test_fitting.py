"""What is surely right has no fault, and what is plain and right is told at once."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.apiserver.apiextensions.customresourcedefinitions.fitting import Fits, fits_of
from kvstack.apiserver.apiextensions.customresourcedefinitions.schemas import Schema
from kvstack.apiserver.apiextensions.customresourcedefinitions.values import ValueSchema

SMALL = st.integers(-2, 3)
TEXTS = st.text("ab1", max_size=3)
VALUES = st.recursive(
    st.none() | st.booleans() | SMALL | st.sampled_from([1.0, 1.5, 2**63, -(2**63)]) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=8,
)


def _with(type_name: str, **members: st.SearchStrategy[Any]) -> st.SearchStrategy[Schema]:
    common = {"nullable": st.booleans(), "enum": st.lists(VALUES, max_size=2)}
    return st.fixed_dictionaries({"type": st.just(type_name)}, optional={**members, **common})


LIMITS = SMALL | st.sampled_from([1.5, 2.0, 2**63 - 1])
SCHEMAS = st.recursive(
    st.just({})
    | st.sampled_from([{"type": "number"}, {"x-kubernetes-int-or-string": True}])
    | _with("boolean")
    | _with("integer", minimum=LIMITS, maximum=LIMITS, exclusiveMinimum=st.booleans())
    | _with(
        "string",
        minLength=SMALL,
        maxLength=SMALL,
        pattern=st.sampled_from(["^a", "b$", "(", ""]),
        format=st.sampled_from(["date", "x"]),
    ),
    lambda inner: (
        _with("array", items=inner, minItems=SMALL, maxItems=SMALL, uniqueItems=st.booleans())
        | _with(
            "object",
            properties=st.dictionaries(st.sampled_from("ab"), inner),
            additionalProperties=inner | st.booleans(),
            required=st.lists(st.sampled_from("ab"), max_size=2),
            anyOf=st.lists(inner, max_size=2),
        )
    ),
    max_leaves=6,
)


def slow(schema: Schema) -> Fits:
    return lambda value: not ValueSchema(schema, is_served=True).check(value, "").faults


@given(SCHEMAS, VALUES)
def test_what_fits_has_no_fault(schema: Schema, value: Any) -> None:
    if fits_of(schema, slow)(value):
        assert slow(schema)(value)


@given(SCHEMAS, VALUES, VALUES)
def test_errors_are_those_of_the_whole_check(schema: Schema, value: Any, old: Any) -> None:
    checked = ValueSchema(schema, is_served=True)
    assert bool(checked.errors(value, "")) == bool(checked.check(value, "").faults)
    assert bool(checked.errors(value, "", old)) <= bool(checked.check(value, "", old).faults)


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "boolean"}, True, 1),
        ({"type": "integer", "minimum": 1, "maximum": 2}, 2, 3),
        ({"type": "integer", "nullable": True}, None, "x"),
        ({"type": "string", "maxLength": 2, "pattern": "^ä"}, "äb", "äbc"),
        ({"type": "string", "enum": ["a", 1]}, "a", "b"),
        ({"type": "array", "items": {"type": "boolean"}, "maxItems": 1}, [True], [1]),
        ({"type": "object", "required": ["a"]}, {"a": 1}, {}),
        ({"type": "object", "additionalProperties": {"type": "string"}}, {"a": ""}, {"a": 1}),
        (
            {"type": "object", "properties": {"a": {"type": "boolean"}}},
            {"a": False, "b": 1},
            {"a": None},
        ),
    ],
)
def test_plain_schemas_are_not_left_to_the_whole_check(schema: Schema, good: Any, bad: Any) -> None:
    def never(left: Schema) -> Fits:
        raise AssertionError(left)

    fits = fits_of(schema, never)
    assert fits(good)
    assert not fits(bad)
    assert slow(schema)(good)
    assert not slow(schema)(bad)
