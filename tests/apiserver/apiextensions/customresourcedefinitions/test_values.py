"""What schemas say of values, where no recording tells it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.apiserver.apiextensions.customresourcedefinitions.values import ValueSchema, same_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


def errors_of(schema: dict[str, Any], value: Any, path: str = "v") -> list[str]:
    """Return what is wrong with a value."""
    return [str(each) for each in ValueSchema(schema).errors(value, path)]


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({}, {"a": [1, None]}, []),
        ({"type": "integer"}, 1.0, []),
        ({"type": "number"}, 1, []),
        ({"type": "string", "nullable": True}, None, []),
        (
            {"type": "string"},
            None,
            ['v: Invalid value: "null":  in body must be of type string: "null"'],
        ),
        (
            {"type": "boolean"},
            1,
            ['v: Invalid value: "integer":  in body must be of type boolean: "integer"'],
        ),
        ({"multipleOf": 0.1}, 0.3, []),
        ({"multipleOf": 3}, 7, ["v: Invalid value: 7:  in body should be a multiple of 3"]),
        (
            {"maximum": 2, "exclusiveMaximum": True},
            2,
            ["v: Invalid value: 2:  in body should be less than 2"],
        ),
        (
            {"minimum": 1.5},
            1.0,
            ["v: Invalid value: 1:  in body should be greater than or equal to 1.5"],
        ),
        ({"enum": [1, "a"]}, 1.5, []),
        (
            {"enum": [1, {"a": 2}]},
            True,
            ['v: Unsupported value: true: supported values: "1", "{\\"a\\":2}"'],
        ),
        ({"minItems": 1}, [], ["v: Invalid value: 0:  in body should have at least 1 items"]),
        ({"maxItems": 1}, [1, 2], ["v: Too many: 2: must have at most 1 item"]),
        (
            {"maxProperties": 0},
            {"a": 1},
            ["v: Too many: 1: must have at most 0 items"],
        ),
        (
            {"properties": {"a": {"required": ["b"]}}},
            {"a": {}},
            ["v.a.b: Required value"],
        ),
        ({"required": ["b"]}, {}, ["v.b: Required value"]),
        (
            {"items": {"type": "object", "additionalProperties": {"maxLength": 1}}},
            [{"k": "ab"}],
            ["v.[0].k: Too long: may not be more than 1 byte"],
        ),
        (
            {"properties": {"a": {}}, "additionalProperties": False},
            {"b": 1},
            ['v: Invalid value: "b": .b in body is a forbidden property'],
        ),
        (
            {"anyOf": [{"required": ["a"]}, {"minProperties": 9}]},
            {},
            [
                'v: Invalid value: "": "" must validate at least one schema (anyOf)',
                "v.a: Required value",
            ],
        ),
        (
            {"oneOf": [{}, {"maxLength": 3}]},
            "a",
            [
                'v: Invalid value: "": "" must validate one and only one schema (oneOf).'
                " Found 2 valid alternatives"
            ],
        ),
        (
            {"allOf": [{}, {"enum": [1]}]},
            2,
            [
                'v: Unsupported value: 2: supported values: "1"',
                'v: Invalid value: "": "" must validate all the schemas (allOf)',
            ],
        ),
        (
            {"pattern": "[a"},
            "a",
            [
                'v: Invalid value: "a":  in body should match \'[a, but pattern is invalid: error'
                " parsing regexp: missing closing ]: `[a`'"
            ],
        ),
        (
            {"type": "integer", "format": "int32"},
            2**31,
            ['v: Invalid value: "": Checked value must be of type integer with format int32 in '],
        ),
    ],
)
def test_values(schema: dict[str, Any], value: Any, expected: list[str]) -> None:
    """Each keyword has its own words."""
    assert errors_of(schema, value) == expected


def test_int_or_string() -> None:
    """Objects may have nothing else, defaults may."""
    schema = {"x-kubernetes-int-or-string": True}
    assert ValueSchema(schema).errors(True, "v") == []
    assert len(ValueSchema(schema, is_served=True).errors(True, "v")) == 1
    assert ValueSchema(schema, is_served=True).errors("1", "v") == []


def test_unknown_formats() -> None:
    """They are not checked in objects."""
    schema = {"type": "object", "format": "bogus"}
    assert ValueSchema(schema, is_served=True).errors({}, "v") == []


@given(JSON, JSON)
def test_same_json(one: Any, other: Any) -> None:
    """It is equality that knows true from 1, and 1 from 1.0."""
    assert same_json(one, one)
    if same_json(one, other):
        assert one == other
    assert not same_json([True], [1])
    assert not same_json({"a": 1}, {"a": 1.0})


@given(JSON)
def test_any_value_can_be_checked(value: Any) -> None:
    """Whatever it is, something or nothing is wrong with it."""
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer", "minimum": 1, "format": "int32"}},
        "additionalProperties": {"anyOf": [{"type": "string"}, {"type": "array", "items": {}}]},
    }
    assert all(each.field.startswith("v") for each in ValueSchema(schema).errors(value, "v"))
