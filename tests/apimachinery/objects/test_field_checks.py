"""Checks of single fields."""

import pytest

from kvstack.apimachinery.objects import field_checks, names

CONDITION = {
    "type": "Ready",
    "status": "True",
    "lastTransitionTime": "2024-01-01T00:00:00Z",
    "reason": "AsExpected",
    "message": "",
}


def test_numbers() -> None:
    assert field_checks.nonnegative("x", 0) == []
    (error,) = field_checks.nonnegative("x", -1)
    assert str(error) == "x: Invalid value: -1: must be greater than or equal to 0"


def test_immutable_fields_print_what_is_new() -> None:
    assert field_checks.immutable("x", {"a": 1}, {"a": 1}) == []
    (error,) = field_checks.immutable("x", {"a": "<"}, None)
    assert str(error) == r'x: Invalid value: {"a":"\u003c"}: field is immutable'


def test_a_check_of_a_format_becomes_errors() -> None:
    (error,) = field_checks.formatted("x", "a.b", names.check_dns_label)
    assert str(error) == 'x: Invalid value: "a.b": must not contain dots'


def test_a_good_condition() -> None:
    assert field_checks.conditions("c", [CONDITION, {**CONDITION, "type": "Other"}]) == []


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"type": ""}, "c[0].type: Required value: is required"),
        ({"status": "Maybe"}, 'c[0].status: Unsupported value: "Maybe": supported values:'),
        ({"status": None}, "c[0].status: Required value"),
        ({"observedGeneration": -1}, "c[0].observedGeneration: Invalid value: -1: must be"),
        ({"lastTransitionTime": None}, "c[0].lastTransitionTime: Required value"),
        ({"reason": ""}, "c[0].reason: Required value"),
        ({"reason": "1x"}, 'c[0].reason: Invalid value: "1x": a condition reason must start'),
        ({"reason": "a" * 1025}, "c[0].reason: Too long: may not be more than 1024 bytes"),
        ({"message": "m" * 32769}, "c[0].message: Too long: may not be more than 32768 bytes"),
    ],
)
def test_conditions(change: dict[str, object], text: str) -> None:
    (error,) = field_checks.conditions("c", [{**CONDITION, **change}])
    assert str(error).startswith(text)


def test_a_type_of_condition_stands_once() -> None:
    (error,) = field_checks.conditions("c", [CONDITION, CONDITION])
    assert str(error) == 'c[1]: Duplicate value: "Ready"'
    assert error.covered
