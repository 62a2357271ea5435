"""Composable checks of objects.

    check_nfs = all_of(needs("server"), needs("path"), absolute_path("path"))

    errors: list[FieldError] = []
    check_nfs({"server": "s", "path": "p"}, "spec.volumes[0].nfs", errors)
    → spec.volumes[0].nfs.path: Invalid value: "p": must be an absolute path

A check gets an object, the path of that object and the list that it adds errors to. Field paths are
only built on errors. Objects were decoded by their type: an absent member is Go's zero value or a
nil pointer, so a check of a nullable field compares with `None` and one of any other field tests
for truth.

Values print in errors as in Go: a plain string as `%q`, and a string of a named type, or behind a
pointer, as JSON (`JsonText`). The two differ for few characters, which clients do send.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    index,
    invalid,
    not_supported,
    required,
)
from kvstack.apimachinery.objects.names import (
    NEGATIVE,
    NOT_POSITIVE,
    check_range,
    check_user_id,
)
from kvstack.apimachinery.objects.text.go_text import JsonText

Errors = list[FieldError]
Rule = Callable[[dict[str, Any], str, Errors], None]
"""(object, its path, errors): adds the object's errors."""
CheckText = Callable[[str], list[str]]
"""Returns the errors of a text, like the checks of `objects.names`."""

FILE_MODE_ERROR: Final = "must be a number between 0 and 0777 (octal), both inclusive"


def all_of(*rules: Rule) -> Rule:
    """Return the conjunction of checks."""

    def check(obj: dict[str, Any], path: str, errors: Errors) -> None:
        for rule in rules:
            rule(obj, path, errors)

    return check


def needs(*names: str) -> Rule:
    """Return the check that each of the fields is not empty."""

    def check(obj: dict[str, Any], path: str, errors: Errors) -> None:
        for name in names:
            if not obj.get(name):
                errors.append(required(child(path, name)))

    return check


def not_nil(*names: str) -> Rule:
    """Return the check that each of the fields is not nil, though it may be empty."""

    def check(obj: dict[str, Any], path: str, errors: Errors) -> None:
        for name in names:
            if obj.get(name) is None:
                errors.append(required(child(path, name)))

    return check


def inside(name: str, rule: Rule) -> Rule:
    """Return a check of the struct in a field, if present."""

    def check(obj: dict[str, Any], path: str, errors: Errors) -> None:
        value = obj.get(name)
        if value is not None:
            rule(value, child(path, name), errors)

    return check


def each(name: str, rule: Rule) -> Rule:
    """Return a check of every struct of the list in a field."""

    def check(obj: dict[str, Any], path: str, errors: Errors) -> None:
        items = obj.get(name)
        if items:
            list_path = child(path, name)
            for position, item in enumerate(items):
                rule(item, index(list_path, position), errors)

    return check


def formatted(name: str, check_text: CheckText) -> Rule:
    """Return the check of the form of a text that may be empty."""

    def check(obj: dict[str, Any], path: str, errors: Errors) -> None:
        value = obj.get(name)
        if value and (wrong := check_text(value)):
            add_invalid(errors, child(path, name), value, wrong)

    return check


def needs_formatted(name: str, check_text: CheckText) -> Rule:
    """Return the check that a text is present and has a form."""

    def check(obj: dict[str, Any], path: str, errors: Errors) -> None:
        value = obj.get(name)
        if not value:
            errors.append(required(child(path, name)))
        elif wrong := check_text(value):
            add_invalid(errors, child(path, name), value, wrong)

    return check


def one_of(name: str, values: Sequence[str]) -> Rule:
    """Return the check that a field is nil or has one of the values, in the order of errors."""
    allowed = frozenset(values)

    def check(obj: dict[str, Any], path: str, errors: Errors) -> None:
        value = obj.get(name)
        if value is not None and value not in allowed:
            errors.append(not_supported(child(path, name), JsonText(value), values))

    return check


def needs_one_of(name: str, values: Sequence[str]) -> Rule:
    """Return the check that a field is present and has one of the values."""
    allowed = frozenset(values)

    def check(obj: dict[str, Any], path: str, errors: Errors) -> None:
        value = obj.get(name)
        if value not in allowed:
            errors.append(wrong_choice(child(path, name), value, values))

    return check


def not_negative(*names: str) -> Rule:
    """Return the check that the numbers, if present, are not negative."""

    def check(obj: dict[str, Any], path: str, errors: Errors) -> None:
        for name in names:
            value = obj.get(name)
            if value is not None and value < 0:
                errors.append(invalid(child(path, name), value, NEGATIVE))

    return check


def in_range(name: str, low: int, high: int, text: str = "") -> Rule:
    """Return the check that a number, if present, is in an inclusive range."""
    message = text or "".join(check_range(low - 1, low, high))

    def check(obj: dict[str, Any], path: str, errors: Errors) -> None:
        value = obj.get(name)
        if value is not None and not low <= value <= high:
            errors.append(invalid(child(path, name), value, message))

    return check


def numeric_id(name: str) -> Rule:
    """Return the check of a Unix user or group id."""

    def check(obj: dict[str, Any], path: str, errors: Errors) -> None:
        value = obj.get(name)
        if value is not None and (wrong := check_user_id(value)):
            add_invalid(errors, child(path, name), value, wrong)

    return check


def file_mode(name: str) -> Rule:
    """Return the check of a file mode."""
    return in_range(name, 0, 0o777, FILE_MODE_ERROR)


def add_invalid(errors: Errors, path: str, value: object, messages: Iterable[str]) -> None:
    """Add one error about the value for each message."""
    errors.extend(invalid(path, value, message) for message in messages)


def wrong_choice(path: str, value: str | None, values: Sequence[str]) -> FieldError:
    """Return the error about an empty or unsupported value."""
    return not_supported(path, JsonText(value), values) if value else required(path)


def check_not_negative(errors: Errors, path: str, value: int | None) -> None:
    """Add an error if the number is present and negative."""
    if value is not None and value < 0:
        errors.append(invalid(path, value, NEGATIVE))


def check_positive(errors: Errors, path: str, value: int) -> None:
    """Add an error if the number is not positive."""
    if value <= 0:
        errors.append(invalid(path, value, NOT_POSITIVE))
