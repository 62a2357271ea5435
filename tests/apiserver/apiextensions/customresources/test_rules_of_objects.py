"""Rules in CEL that custom objects must keep."""

from typing import Any

import pytest

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.apiextensions.customresources.rules import RuleChecks, has_rules


def schema(rules: list[Object], properties: Object, **more: Any) -> Object:
    """Return a schema of objects with a `spec`."""
    spec = {"type": "object", "properties": properties, "x-kubernetes-validations": rules, **more}
    return {"type": "object", "properties": {"spec": spec}}


def refused_and_warned(checked: Object, spec: Any, old: Any = None) -> tuple[list[str], list[str]]:
    """Return what is refused and what is warned of."""
    warnings: list[str] = []
    before = None if old is None else {"metadata": {"name": "n"}, "spec": old}
    errors = RuleChecks(checked).errors({"metadata": {"name": "n"}, "spec": spec}, before, warnings)
    return [str(each) for each in errors], warnings


NUMBERS = {"a": {"type": "integer"}, "b": {"type": "integer"}}


@pytest.mark.parametrize(
    ("rule", "spec", "expected"),
    [
        ({"rule": "self.a <= self.b"}, {"a": 1, "b": 2}, []),
        (
            {"rule": "self.a <= self.b"},
            {"a": 3, "b": 2},
            ["spec: Invalid value: failed rule: self.a <= self.b"],
        ),
        (
            {"rule": "self.a <= self.b", "message": "too much"},
            {"a": 3, "b": 2},
            ["spec: Invalid value: too much"],
        ),
        (
            {"rule": "self.a <= self.b", "messageExpression": "'a is ' + string(self.a)"},
            {"a": 3, "b": 2},
            ["spec: Invalid value: a is 3"],
        ),
        (
            {
                "rule": "self.a <= self.b",
                "message": "m",
                "messageExpression": "string(1 / (self.a - 3))",
            },
            {"a": 3, "b": 2},
            ["spec: Invalid value: m"],
        ),
        (
            {"rule": "self.a <= self.b", "reason": "FieldValueForbidden", "fieldPath": ".a"},
            {"a": 3, "b": 2},
            ["spec.a: Forbidden: failed rule: self.a <= self.b"],
        ),
        (
            {"rule": "self.a <= self.b"},
            {"a": 3},
            ["spec: Invalid value: no such key: b evaluating rule: self.a <= self.b"],
        ),
        ({"rule": "!has(self.b) || self.b == 1"}, {"a": 3}, []),
        ({"rule": "self.a == oldSelf.a"}, {"a": 3}, []),
    ],
)
def test_a_rule_of_a_new_object(rule: Object, spec: Object, expected: list[str]) -> None:
    found, warnings = refused_and_warned(schema([rule], NUMBERS), spec)
    assert [each.replace('"object": ', "") for each in found] == expected
    assert not warnings


def test_a_rule_of_a_change_compares_with_what_was_there() -> None:
    checked = schema([{"rule": "self.a == oldSelf.a"}], NUMBERS)
    assert refused_and_warned(checked, {"a": 1}, {"a": 1}) == ([], [])
    found, _ = refused_and_warned(checked, {"a": 2}, {"a": 1})
    assert len(found) == 1
    assert found[0].endswith("failed rule: self.a == oldSelf.a")


def test_a_rule_may_be_asked_although_nothing_was_there() -> None:
    rule = {"rule": "oldSelf.hasValue() || self.a == 1", "optionalOldSelf": True}
    checked = schema([rule], NUMBERS)
    assert refused_and_warned(checked, {"a": 1}) == ([], [])
    assert len(refused_and_warned(checked, {"a": 2})[0]) == 1
    assert refused_and_warned(checked, {"a": 2}, {"a": 7}) == ([], [])


def test_what_was_broken_before_may_stay_so() -> None:
    checked = schema([{"rule": "self.a < 2"}], NUMBERS)
    found, warnings = refused_and_warned(checked, {"a": 5}, {"a": 5})
    assert not found
    assert len(warnings) == 1
    assert warnings[0].endswith("failed rule: self.a < 2")
    assert len(refused_and_warned(checked, {"a": 6}, {"a": 5})[0]) == 1


def test_items_of_keyed_lists_are_compared_by_their_keys() -> None:
    item = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "n": {"type": "integer"}},
        "x-kubernetes-validations": [{"rule": "self.n >= oldSelf.n"}],
    }
    parts = {
        "type": "array",
        "items": item,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    }
    checked = schema([], {"parts": parts})
    old = {"parts": [{"name": "a", "n": 1}, {"name": "b", "n": 2}]}
    new = {"parts": [{"name": "b", "n": 1}, {"name": "a", "n": 1}, {"name": "c", "n": 0}]}
    found, _ = refused_and_warned(checked, new, old)
    assert len(found) == 1
    assert found[0].startswith("spec.parts[0]: ")


def test_rules_of_one_object_share_a_budget() -> None:
    inner = {
        "type": "array",
        "items": {"type": "integer"},
        "x-kubernetes-validations": [
            {"rule": "self.all(x, self.all(y, x + y >= 0))"},
        ],
    }
    checked = schema([], {"rows": {"type": "array", "items": inner}})
    found, _ = refused_and_warned(checked, {"rows": [list(range(250)) for _ in range(30)]})
    assert len(found) == 1
    assert "out of cost budget" in found[0]


def test_a_rule_that_costs_too_much_is_stopped() -> None:
    rule = {"rule": "self.all(x, self.all(y, self.all(z, x + y + z >= 0)))"}
    rows = {
        "type": "array",
        "items": {"type": "integer"},
        "x-kubernetes-validations": [rule],
    }
    found, _ = refused_and_warned(schema([], {"rows": rows}), {"rows": list(range(300))})
    assert len(found) == 1
    assert "call cost exceeds limit" in found[0]


def test_values_are_of_the_types_of_the_schema() -> None:
    rules = [
        {"rule": "self.at < timestamp('2024-01-02T00:00:00Z')"},
        {"rule": "self.span == duration('90m')"},
        {"rule": "self.raw.size() == 2"},
        {"rule": "type(self.either) == int || self.either.startsWith('1')"},
        {"rule": "self.__namespace__ == 'x' && self.with__dash__dash == 1"},
        {"rule": "self.tags == ['b', 'a'] && 'k' in self.free"},
    ]
    properties = {
        "at": {"type": "string", "format": "date-time"},
        "span": {"type": "string", "format": "duration"},
        "raw": {"type": "string", "format": "byte"},
        "either": {"x-kubernetes-int-or-string": True},
        "namespace": {"type": "string"},
        "with-dash": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "free": {"type": "object", "additionalProperties": {"type": "string"}},
    }
    spec = {
        "at": "2024-01-01T00:00:00Z",
        "span": "1h30m",
        "raw": "YWI=",
        "either": "10%",
        "namespace": "x",
        "with-dash": 1,
        "tags": ["a", "b"],
        "free": {"k": "v"},
    }
    assert refused_and_warned(schema(rules, properties), spec) == ([], [])


def test_null_where_a_value_may_be_null_breaks_no_server() -> None:
    properties = {"s": {"type": "string", "nullable": True}}
    rules = [{"rule": "self.s.startsWith('a')"}, {"rule": "self.s + 'x' == 'x'"}]
    found, _ = refused_and_warned(schema(rules, properties), {"s": None})
    assert len(found) == 2


def test_schemas_without_rules_are_known() -> None:
    assert not has_rules(schema([], NUMBERS))
    assert has_rules(
        {"properties": {"a": {"items": {"x-kubernetes-validations": [{"rule": "1"}]}}}}
    )
    assert not has_rules(None)
