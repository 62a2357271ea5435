"""Validation of node selectors of pods and volumes.

{"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}
"""

from collections.abc import Callable, Sequence
from typing import Final

from kvstack.apimachinery.objects.field_errors import (
    child,
    forbidden,
    index,
    invalid,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import (
    check_label_key,
    check_label_value,
    name_is_dns_subdomain,
)
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apiserver.kinds.rules import Errors, add_invalid

_BAD_OPERATOR: Final = "not a valid selector operator"


def check_node_selector(
    selector: Object, path: str, errors: Errors, *, allows_bad_values: bool = False
) -> None:
    """Check a node selector, which needs at least one term."""
    terms = selector.get("nodeSelectorTerms")
    terms_path = child(path, "nodeSelectorTerms")
    if not terms:
        errors.append(required(terms_path, "must have at least one node selector term"))
        return
    for position, term in enumerate(terms):
        term_path = index(terms_path, position)
        check_node_selector_term(term, term_path, errors, allows_bad_values=allows_bad_values)


def check_node_selector_term(
    term: Object, path: str, errors: Errors, *, allows_bad_values: bool = False
) -> None:
    """Check a term: requirements on labels, and on the node's name."""
    expressions_path = child(path, "matchExpressions")
    for position, requirement in enumerate(term.get("matchExpressions") or ()):
        _check_requirement(
            requirement, index(expressions_path, position), errors, allows_bad_values
        )
    fields_path = child(path, "matchFields")
    for position, requirement in enumerate(term.get("matchFields") or ()):
        _check_field_requirement(requirement, index(fields_path, position), errors)


def _check_requirement(
    requirement: Object,
    path: str,
    errors: Errors,
    allows_bad_values: bool,  # noqa: FBT001
) -> None:
    operator, values = requirement.get("operator", ""), requirement.get("values") or ()
    values_path = child(path, "values")
    if operator in {"In", "NotIn"}:
        if not values:
            message = "must be specified when `operator` is 'In' or 'NotIn'"
            errors.append(required(values_path, message))
    elif operator in {"Exists", "DoesNotExist"}:
        if values:
            message = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            errors.append(forbidden(values_path, message))
    elif operator in {"Gt", "Lt"}:
        if len(values) != 1:
            message = "must be specified single value when `operator` is 'Lt' or 'Gt'"
            errors.append(required(values_path, message))
    else:
        errors.append(invalid(child(path, "operator"), JsonText(operator), _BAD_OPERATOR))
    key = requirement.get("key", "")
    add_invalid(errors, child(path, "key"), key, check_label_key(key))
    if not allows_bad_values:
        _check_values(values, values_path, errors, check_label_value)


def _check_field_requirement(requirement: Object, path: str, errors: Errors) -> None:
    operator, values = requirement.get("operator", ""), requirement.get("values") or ()
    if operator not in {"In", "NotIn"}:
        errors.append(invalid(child(path, "operator"), JsonText(operator), _BAD_OPERATOR))
    elif len(values) != 1:
        message = (
            "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        )
        errors.append(required(child(path, "values"), message))
    key = requirement.get("key", "")
    if key != "metadata.name":
        errors.append(invalid(child(path, "key"), key, "not a valid field selector key"))
    else:
        _check_values(values, child(path, "values"), errors, _check_node_name)


def _check_values(
    values: Sequence[str], path: str, errors: Errors, check: Callable[[str], list[str]]
) -> None:
    for position, value in enumerate(values):
        add_invalid(errors, index(path, position), value, check(value))


def _check_node_name(name: str) -> list[str]:
    return name_is_dns_subdomain(name, False)
