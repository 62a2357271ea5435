"""Counts that may be percentages, such as `maxUnavailable: 25%`."""

from kvstack.apimachinery.objects.field_errors import invalid
from kvstack.apimachinery.objects.int_or_string import IntOrString, int_value
from kvstack.apimachinery.objects.names import check_percent
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apiserver.kinds.rules import Errors, add_invalid, check_not_negative


def check_count(errors: Errors, path: str, value: IntOrString) -> None:
    """Check that a value is a non-negative number, or a percentage."""
    if isinstance(value, int):
        check_not_negative(errors, path, value)
    else:
        add_invalid(errors, path, as_printed(value), check_percent(value))


def check_share(errors: Errors, path: str, value: IntOrString) -> None:
    """Check that a percentage is at most 100."""
    if not isinstance(value, str) or check_percent(value):
        return
    digits = value[:-1].lstrip("0")
    if len(digits) > 3 or int(digits or "0") > 100:
        errors.append(invalid(path, as_printed(value), "must not be greater than 100%"))


def is_zero(value: IntOrString) -> bool:
    """Return whether a number or percentage is zero; an invalid value counts as zero."""
    if isinstance(value, str) and not check_percent(value):
        return not value[:-1].strip("0")
    return int_value(value) == 0


def as_printed(value: IntOrString) -> IntOrString:
    """Return a value as errors print it."""
    return JsonText(value) if isinstance(value, str) else value
