"""Checks of single fields that many kinds share; each returns the errors about its field.

    nonnegative("spec.replicas", -1)   → [spec.replicas: Invalid value: -1: must be …]
    immutable("spec.type", new, old)   → [] if they are equal

`names` knows the formats of texts, `addresses` those of IP addresses.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from kvstack.apimachinery.objects import names
from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    duplicate,
    index,
    invalid,
    not_supported,
    required,
    too_long,
)
from kvstack.apimachinery.objects.times import ZERO_SECONDS, parse_time

CONDITION_STATUSES: Final = ("False", "True", "Unknown")
CONDITION_REASON_MAX: Final = 1024
CONDITION_MESSAGE_MAX: Final = 32 * 1024

_PATH_CHARACTERS: Final = (
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/-._~%!$&'()*+,;=:"
)
_BAD_PATH: Final = names.regex_error("Invalid path", r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")


def formatted(path: str, value: str, check: Callable[[str], Sequence[str]]) -> list[FieldError]:
    """Return an error for each thing that a check of `names` finds wrong."""
    return [invalid(path, value, each) for each in check(value)]


def nonnegative(path: str, value: int) -> list[FieldError]:
    """Check that a number is not below zero."""
    return [] if value >= 0 else [invalid(path, value, names.NEGATIVE)]


def immutable(path: str, new: object, old: object) -> list[FieldError]:
    """Check that a field was not changed; both values as JSON has them."""
    return [] if new == old else [invalid(path, new, names.IMMUTABLE)]


def fully_qualified_name(path: str, name: str) -> list[FieldError]:
    """Check a domain of three segments or more."""
    if not name:
        return [required(path)]
    if errors := names.check_dns_subdomain(name):
        return [invalid(path, name, ",".join(errors))]
    if name.count(".") < 2:
        detail = "should be a domain with at least three segments separated by dots"
        return [invalid(path, name, detail)]
    return []


def fully_qualified_domain_name(path: str, name: str) -> list[FieldError]:
    """Check a domain of two segments or more, with or without a dot at the end."""
    if not name:
        return [required(path)]
    domain = name.removesuffix(".")
    if errors := names.check_dns_subdomain(domain):
        return [invalid(path, domain, ",".join(errors))]
    if "." not in domain:
        detail = "should be a domain with at least two segments separated by dots"
        return [invalid(path, domain, detail)]
    for label in domain.split("."):
        if errors := names.check_dns_label(label):
            return [invalid(path, label, ",".join(errors))]
    return []


def domain_prefixed_path(path: str, value: str) -> list[FieldError]:
    """Check `domain/path`, such as the name of a controller."""
    if not value:
        return [required(path)]
    domain, _, rest = value.partition("/")
    if not domain or not rest:
        return [invalid(path, value, 'must be a domain-prefixed path (such as "acme.io/foo")')]
    errors = [invalid(path, domain, each) for each in names.check_dns_subdomain(domain)]
    if rest.strip(_PATH_CHARACTERS):
        errors.append(invalid(path, rest, _BAD_PATH))
    return errors


def domain_prefixed_key(path: str, value: str) -> list[FieldError]:
    """Check a key of labels that has a prefix."""
    if not value:
        return [required(path)]
    errors = formatted(path, value, names.check_label_key)
    if not errors and "/" not in value:
        detail = 'must be a domain-prefixed key (such as "acme.io/foo")'
        return [invalid(path, value, detail)]
    return errors


def conditions(path: str, values: Sequence[dict[str, Any]]) -> list[FieldError]:
    """Check a list of metav1.Condition, of which each type occurs once."""
    errors: list[FieldError] = []
    seen: set[str] = set()
    for position, condition in enumerate(values):
        type_: str = condition.get("type") or ""
        if type_ in seen:
            errors.append(_covered(duplicate(index(path, position), type_)))
        seen.add(type_)
        errors += _condition(index(path, position), condition)
    return errors


def _condition(path: str, condition: dict[str, Any]) -> list[FieldError]:
    errors: list[FieldError] = []
    if type_ := condition.get("type"):
        errors += formatted(child(path, "type"), type_, names.check_label_key)
    else:
        errors.append(_covered(required(child(path, "type"), "is required")))
    status = condition.get("status")
    if not status:
        errors.append(_covered(required(child(path, "status"))))
    elif status not in CONDITION_STATUSES:
        errors.append(_covered(not_supported(child(path, "status"), status, CONDITION_STATUSES)))
    generation = condition.get("observedGeneration") or 0
    if generation < 0:
        detail = "must be greater than or equal to zero"
        errors.append(_covered(invalid(child(path, "observedGeneration"), generation, detail)))
    if _is_zero_time(condition.get("lastTransitionTime")):
        errors.append(_covered(required(child(path, "lastTransitionTime"))))
    return errors + _condition_texts(path, condition)


def _condition_texts(path: str, condition: dict[str, Any]) -> list[FieldError]:
    errors: list[FieldError] = []
    reason = condition.get("reason")
    if not reason:
        errors.append(_covered(required(child(path, "reason"))))
    else:
        errors += formatted(child(path, "reason"), reason, names.check_condition_reason)
        if names.length(reason) > CONDITION_REASON_MAX:
            errors.append(_covered(too_long(child(path, "reason"), CONDITION_REASON_MAX)))
    if names.length(condition.get("message") or "") > CONDITION_MESSAGE_MAX:
        errors.append(too_long(child(path, "message"), CONDITION_MESSAGE_MAX))
    return errors


def _is_zero_time(text: str | None) -> bool:
    return not text or parse_time(text) == (ZERO_SECONDS, 0)


def _covered(error: FieldError) -> FieldError:
    return error._replace(covered=True)
