"""Rules of webhooks and policies: operations and resources."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    duplicate,
    index,
    invalid,
    not_supported,
    required,
)
from kvstack.apimachinery.objects.names import check_path_segment
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apimachinery.schema.load import enum_values
from kvstack.apiserver.kinds.rules import Errors, Rule, add_invalid, one_of

ALL: Final = "*"
ALL_SUBRESOURCES: Final = "*/*"

_RULE: Final = "io.k8s.api.admissionregistration.v1.RuleWithOperations"
_OPERATIONS: Final = enum_values(_RULE, "operations")
_MUTATED_OPERATIONS: Final = ("*", "CONNECT", "CREATE", "UPDATE")
_SCOPES: Final = enum_values(_RULE, "scope")
EXCLUDED: Final = frozenset(
    ("authentication.k8s.io", each) for each in ("selfsubjectreviews", "tokenreviews")
) | frozenset(
    ("authorization.k8s.io", each)
    for each in (
        "localsubjectaccessreviews",
        "selfsubjectaccessreviews",
        "selfsubjectrulesreviews",
        "subjectaccessreviews",
    )
)
"""Groups and resources exempt from webhooks."""

_check_scope: Final = one_of("scope", _SCOPES)


def default_rules(rules: Iterable[dict[str, Any]] | None) -> None:
    """Set the default scope of rules: all."""
    for rule in rules or ():
        if rule.get("scope") is None:
            rule["scope"] = ALL


def check_rule(rule: dict[str, Any], path: str, errors: Errors) -> None:
    """Check the operations and resources of a rule."""
    _check_operations(rule.get("operations") or [], child(path, "operations"), errors)
    groups = rule.get("apiGroups") or []
    _check_alone(groups, child(path, "apiGroups"), "API groups", errors)
    versions, versions_path = rule.get("apiVersions") or [], child(path, "apiVersions")
    _check_alone(versions, versions_path, "API versions", errors)
    errors.extend(
        required(index(versions_path, position))
        for position, version in enumerate(versions)
        if not version
    )
    _check_resources(rule.get("resources") or [], child(path, "resources"), errors)
    _check_scope(rule, path, errors)


def check_named_rule(rule: dict[str, Any], path: str, errors: Errors) -> None:
    """Check a rule that may have resourceNames."""
    names_path = child(path, "resourceNames")
    seen: set[str] = set()
    for position, name in enumerate(rule.get("resourceNames") or ()):
        name_path = index(names_path, position)
        add_invalid(errors, name_path, name, check_path_segment(name))
        if name in seen:
            errors.append(duplicate(name_path, name))
        seen.add(name)
    check_rule(rule, path, errors)


def check_mutated(field: str) -> Rule:
    """Return the check that the `resourceRules` in a field cover only what can be mutated."""

    def check(obj: dict[str, Any], path: str, errors: Errors) -> None:
        # Upstream's errors have no indexes here.
        operations_path = child(path, field, "resourceRules", "operations")
        for rule in (obj.get(field) or {}).get("resourceRules") or ():
            errors.extend(
                not_supported(operations_path, JsonText(operation), _MUTATED_OPERATIONS)
                for operation in rule.get("operations") or ()
                if operation not in _MUTATED_OPERATIONS
            )

    return check


def excluded_warnings(webhooks: Iterable[dict[str, Any]]) -> Iterable[str]:
    """Yield warnings about rules for resources that are exempt from webhooks."""
    for number, webhook in enumerate(webhooks):
        for position, rule in enumerate(webhook.get("rules") or ()):
            for name in _excluded(rule):
                yield (
                    f"webhooks[{number}].rules[{position}]: {name} is excluded from admission"
                    " webhooks; this rule will have no effect"
                )


def _excluded(rule: dict[str, Any]) -> Iterable[str]:
    groups, resources = rule.get("apiGroups") or (), rule.get("resources") or ()
    if ALL in groups or ALL in resources:
        return ()
    named = ((group, resource) for group in groups for resource in resources)
    found = dict.fromkeys(each for each in named if each in EXCLUDED)
    return (f"{resource}.{group}" for group, resource in found)


def _check_operations(operations: Sequence[str], path: str, errors: Errors) -> None:
    _check_alone(operations, path, "operations", errors)
    errors.extend(
        not_supported(index(path, position), JsonText(operation), _OPERATIONS)
        for position, operation in enumerate(operations)
        if operation not in _OPERATIONS
    )


def _check_alone(values: Sequence[str], path: str, what: str, errors: Errors) -> None:
    """Check that there are values, and that the wildcard is alone."""
    if not values:
        errors.append(required(path))
    if len(values) > 1 and ALL in values:
        errors.append(invalid(path, values, f"if '*' is present, must not specify other {what}"))


def _check_resources(resources: Sequence[str], path: str, errors: Errors) -> None:
    if not resources:
        errors.append(required(path))
    whole: set[str] = set()
    everywhere: set[str] = set()
    last_is_named = False
    for position, name in enumerate(resources):
        if not name:
            errors.append(required(index(path, position)))
            continue
        resource, slash, part = name.partition("/")
        if not slash:
            last_is_named = name != ALL
            continue
        if resource in whole:
            errors.append(_covered(index(path, position), name, f"{resource}/*"))
        if part in everywhere:
            errors.append(_covered(index(path, position), name, f"*/{part}"))
        if part == ALL:
            whole.add(resource)
        if resource == ALL:
            everywhere.add(part)
    if len(resources) > 1 and ALL_SUBRESOURCES in resources:
        detail = "if '*/*' is present, must not specify other resources"
        errors.append(invalid(path, resources, detail))
    # Only the last resource without a subresource counts, as upstream.
    if ALL in resources and last_is_named:
        detail = "if '*' is present, must not specify other resources without subresources"
        errors.append(invalid(path, resources, detail))


def _covered(path: str, name: str, by: str) -> FieldError:
    return invalid(path, name, f"if '{by}' is present, must not specify {name}")
