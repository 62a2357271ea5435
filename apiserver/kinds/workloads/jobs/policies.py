"""Validation of the failure policy and the success policy of a Job.

podFailurePolicy:  rules: [{action: FailJob, onExitCodes: {operator: In, values: [42]}}]
successPolicy:     rules: [{succeededIndexes: 0-2, succeededCount: 1}]
"""

from collections.abc import Sequence
from typing import Final

from kvstack.apimachinery.objects.field_errors import (
    OMITTED,
    child,
    duplicate,
    index,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import check_label_key
from kvstack.apimachinery.objects.text.go_text import JsonText, quote
from kvstack.apimachinery.schema.load import enum_values
from kvstack.apiserver.kinds.rules import Errors, add_invalid, check_not_negative
from kvstack.apiserver.kinds.workloads.jobs.indexes import IndexesError, count

RULES_MAX: Final = 20
EXIT_CODES_MAX: Final = 255
PATTERNS_MAX: Final = 20
INDEXES_BYTES_MAX: Final = 64 * 1024

_ACTIONS: Final = enum_values("io.k8s.api.batch.v1.PodFailurePolicyRule", "action")
_OPERATORS: Final = enum_values(
    "io.k8s.api.batch.v1.PodFailurePolicyOnExitCodesRequirement", "operator"
)
_STATUSES: Final = ("False", "True", "Unknown")


def check_failure_policy(errors: Errors, spec: Object, path: str) -> None:
    """Check the failure policy in a Job's spec; `path`: of the policy."""
    rules: list[Object] = spec["podFailurePolicy"].get("rules") or []
    rules_path = child(path, "rules")
    if len(rules) > RULES_MAX:
        errors.append(too_many(rules_path, len(rules), RULES_MAX))
    pod_spec = (spec.get("template") or {}).get("spec") or {}
    containers = {
        each.get("name", "")
        for name in ("containers", "initContainers")
        for each in pod_spec.get(name) or ()
    }
    has_index_limit = spec.get("backoffLimitPerIndex") is not None
    for position, rule in enumerate(rules):
        rule_path = index(rules_path, position)
        _check_action(errors, rule.get("action", ""), child(rule_path, "action"), has_index_limit)
        _check_reasons(errors, rule, rule_path, containers)


def _check_action(errors: Errors, action: str, path: str, has_index_limit: bool) -> None:  # noqa: FBT001
    if action == "FailIndex":
        if not has_index_limit:
            message = "requires the backoffLimitPerIndex to be set"
            errors.append(invalid(path, JsonText(action), message))
    else:
        _check_choice(errors, action, path, _ACTIONS)


def _check_choice(errors: Errors, value: str, path: str, values: Sequence[str]) -> None:
    if not value:
        listed = " ".join(quote(each) for each in values)
        errors.append(required(path, f"valid values: [{listed}]"))
    elif value not in values:
        errors.append(not_supported(path, JsonText(value), values))


def _check_reasons(errors: Errors, rule: Object, path: str, containers: set[str]) -> None:
    exit_codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions")
    if exit_codes is not None:
        _check_exit_codes(errors, exit_codes, child(path, "onExitCodes"), containers)
    if conditions:
        _check_conditions(errors, conditions, child(path, "onPodConditions"))
    if exit_codes is not None and conditions:
        message = "specifying both OnExitCodes and OnPodConditions is not supported"
        errors.append(invalid(path, OMITTED, message))
    elif exit_codes is None and not conditions:
        message = "specifying one of OnExitCodes and OnPodConditions is required"
        errors.append(invalid(path, OMITTED, message))


def _check_exit_codes(errors: Errors, requirement: Object, path: str, containers: set[str]) -> None:
    operator, container = requirement.get("operator", ""), requirement.get("containerName")
    _check_choice(errors, operator, child(path, "operator"), _OPERATORS)
    if container is not None and container not in containers:
        message = "must be one of the container or initContainer names in the pod template"
        errors.append(invalid(child(path, "containerName"), container, message))
    values: list[int] | None = requirement.get("values")
    values_path = child(path, "values")
    if not values:
        errors.append(invalid(values_path, values, "at least one value is required"))
        return
    if len(values) > EXIT_CODES_MAX:
        errors.append(too_many(values_path, len(values), EXIT_CODES_MAX))
    seen: set[int] = set()
    for position, value in enumerate(values):
        value_path = index(values_path, position)
        if operator == "In" and value == 0:
            errors.append(invalid(value_path, value, "must not be 0 for the In operator"))
        if value in seen:
            errors.append(duplicate(value_path, value))
        seen.add(value)
    if any(values[position] > values[position + 1] for position in range(len(values) - 1)):
        errors.append(invalid(values_path, values, "must be ordered"))


def _check_conditions(errors: Errors, patterns: Sequence[Object], path: str) -> None:
    if len(patterns) > PATTERNS_MAX:
        errors.append(too_many(path, len(patterns), PATTERNS_MAX))
    for position, pattern in enumerate(patterns):
        pattern_path = index(path, position)
        type_ = pattern.get("type", "")
        add_invalid(errors, child(pattern_path, "type"), type_, check_label_key(type_))
        _check_choice(errors, pattern.get("status", ""), child(pattern_path, "status"), _STATUSES)


def check_success_policy(errors: Errors, spec: Object, path: str) -> None:
    """Check the success policy in the spec of an Indexed Job; `path`: of the policy."""
    rules: list[Object] = spec["successPolicy"].get("rules") or []
    rules_path = child(path, "rules")
    if not rules:
        message = "at least one rules must be specified when the successPolicy is specified"
        errors.append(required(rules_path, message))
    if len(rules) > RULES_MAX:
        errors.append(too_many(rules_path, len(rules), RULES_MAX))
    completions: int | None = spec.get("completions")
    if completions is None:
        # That is an error already, and the numbers cannot be checked.
        return
    for position, rule in enumerate(rules):
        _check_success_rule(errors, rule, index(rules_path, position), completions)


def _check_success_rule(errors: Errors, rule: Object, path: str, completions: int) -> None:
    needed_count, indexes = rule.get("succeededCount"), rule.get("succeededIndexes")
    if needed_count is None and indexes is None:
        message = "at least one of succeededCount or succeededIndexes must be specified"
        errors.append(required(path, message))
    total = 0
    if indexes is not None:
        indexes_path = child(path, "succeededIndexes")
        if len(indexes.encode()) > INDEXES_BYTES_MAX:
            errors.append(too_long(indexes_path, INDEXES_BYTES_MAX))
        try:
            total = count(indexes, completions)
        except IndexesError as error:
            message = f"error parsing succeededIndexes: {error}"
            errors.append(invalid(indexes_path, indexes, message))
    if needed_count is not None:
        count_path = child(path, "succeededCount")
        check_not_negative(errors, count_path, needed_count)
        limits = [(completions, "the number of specified completions")]
        if indexes is not None:
            what = "the number of indexes in the specified succeededIndexes field"
            limits.append((total, what))
        errors.extend(
            invalid(count_path, needed_count, f"must be less than or equal to {limit} ({what})")
            for limit, what in limits
            if needed_count > limit
        )
