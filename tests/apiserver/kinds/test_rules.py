"""Rules that are made of smaller ones."""

from typing import TYPE_CHECKING

import pytest

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import check_dns_label
from kvstack.apiserver.kinds import rules
from kvstack.apiserver.kinds.file_paths import absolute_path, descending_path, local_path
from kvstack.apiserver.kinds.rules import Rule

if TYPE_CHECKING:
    from kvstack.apimachinery.objects.field_errors import FieldError

LABEL = rules.formatted("a", check_dns_label)


def broken(rule: Rule, obj: Object) -> list[str]:
    """Return what a rule says of an object at the path `o`."""
    errors: list[FieldError] = []
    rule(obj, "o", errors)
    return [str(each) for each in errors]


@pytest.mark.parametrize(
    ("rule", "obj", "expected"),
    [
        (rules.needs("a", "b"), {"a": "x"}, ["o.b: Required value"]),
        (rules.inside("a", rules.needs("b")), {}, []),
        (rules.inside("a", rules.needs("b")), {"a": {}}, ["o.a.b: Required value"]),
        (rules.each("a", rules.needs("b")), {"a": [{"b": 1}, {}]}, ["o.a[1].b: Required value"]),
        (rules.each("a", rules.needs("b")), {}, []),
        (LABEL, {"a": ""}, []),
        (LABEL, {"a": "x"}, []),
        (rules.needs_formatted("a", check_dns_label), {}, ["o.a: Required value"]),
        (rules.one_of("a", ("x", "y")), {}, []),
        (
            rules.one_of("a", ("x", "y")),
            {"a": ""},
            ['o.a: Unsupported value: "": supported values: "x", "y"'],
        ),
        (rules.needs_one_of("a", ("x",)), {"a": ""}, ["o.a: Required value"]),
        (rules.needs_one_of("a", ("x",)), {"a": "x"}, []),
        (
            rules.not_negative("a", "b"),
            {"a": 0, "b": -1},
            ["o.b: Invalid value: -1: must be greater than or equal to 0"],
        ),
        (rules.in_range("a", 1, 3), {"a": 3}, []),
        (rules.in_range("a", 1, 3, "is odd"), {"a": 4}, ["o.a: Invalid value: 4: is odd"]),
        (
            rules.numeric_id("a"),
            {"a": -1},
            ["o.a: Invalid value: -1: must be between 0 and 2147483647, inclusive"],
        ),
        (rules.file_mode("a"), {"a": 0o1000}, None),
        (absolute_path("a"), {"a": "x"}, ['o.a: Invalid value: "x": must be an absolute path']),
        (descending_path("a"), {"a": "x/y"}, []),
        (
            descending_path("a"),
            {"a": "/x/../y"},
            [
                'o.a: Invalid value: "/x/../y": must be a relative path',
                "o.a: Invalid value: \"/x/../y\": must not contain '..'",
            ],
        ),
        (local_path("a"), {"a": "..x"}, ["o.a: Invalid value: \"..x\": must not start with '..'"]),
        (local_path("a"), {"a": "../x"}, ["o.a: Invalid value: \"../x\": must not contain '..'"]),
    ],
)
def test_rules(rule: Rule, obj: Object, expected: list[str] | None) -> None:
    """What a rule says, and that it says nothing of what is good."""
    if expected is None:
        assert broken(rule, obj) == [f"o.a: Invalid value: 512: {rules.FILE_MODE_ERROR}"]
    else:
        assert broken(rule, obj) == expected


def test_rules_are_joined_in_order() -> None:
    rule = rules.all_of(rules.needs("b"), rules.needs("a"))
    assert broken(rule, {}) == ["o.b: Required value", "o.a: Required value"]
