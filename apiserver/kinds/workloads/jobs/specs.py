"""Validation of the spec of a Job, also in a CronJob."""

from typing import Final

from kvstack.apimachinery.objects.field_checks import domain_prefixed_path
from kvstack.apimachinery.objects.field_errors import (
    child,
    invalid,
    not_supported,
    required,
    too_long,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apimachinery.schema.load import enum_in_order, enum_values
from kvstack.apiserver.kinds.internal_values import internal_value
from kvstack.apiserver.kinds.pods.templates import check_template
from kvstack.apiserver.kinds.pods.tolerances import Tolerances
from kvstack.apiserver.kinds.rules import Errors, not_negative
from kvstack.apiserver.kinds.strategy import Context
from kvstack.apiserver.kinds.workloads.jobs.policies import (
    check_failure_policy,
    check_success_policy,
)

INDEXED: Final = "Indexed"
NON_INDEXED: Final = "NonIndexed"

INDEXED_PARALLELISM_MAX: Final = 100_000
FAILED_INDEXES_MAX: Final = 100_000
MANY_COMPLETIONS: Final = 100_000
"""Above this number of completions lower limits apply, if indexes can fail individually."""
MANY_COMPLETIONS_LIMIT: Final = 10_000
MANAGED_BY_BYTES_MAX: Final = 63

_SUCCESS_POLICY: Final = "io.k8s.api.batch.v1.SuccessPolicy"
_MODES: Final = enum_in_order("io.k8s.api.batch.v1.JobSpec", "completionMode", NON_INDEXED, INDEXED)
_REPLACEMENT: Final = enum_values("io.k8s.api.batch.v1.JobSpec", "podReplacementPolicy")
_COUNTS: Final = not_negative(
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)


def check_job_spec(
    errors: Errors, spec: Object, path: str, context: Context, tolerances: Tolerances
) -> None:
    """Check the spec of a Job, except its selector."""
    _COUNTS(spec, path, errors)
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        message = "when maxFailedIndexes is specified"
        errors.append(required(child(path, "backoffLimitPerIndex"), message))
    _check_manager(errors, spec.get("managedBy"), child(path, "managedBy"))
    mode = spec.get("completionMode", NON_INDEXED)
    if mode not in _MODES:
        mode_path = child(path, "completionMode")
        errors.append(not_supported(mode_path, JsonText(mode), _MODES))
    if mode == INDEXED:
        _check_indexed(errors, spec, path)
    elif mode == NON_INDEXED:
        for name in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if spec.get(name) is not None:
                message = "requires indexed completion mode"
                errors.append(invalid(child(path, name), spec[name], message))
    if spec.get("podFailurePolicy") is not None:
        check_failure_policy(errors, spec, child(path, "podFailurePolicy"))
    if spec.get("successPolicy") is not None:
        policy_path = child(path, "successPolicy")
        if mode == INDEXED:
            check_success_policy(errors, spec, policy_path)
        else:
            shown = internal_value(spec["successPolicy"], _SUCCESS_POLICY)
            errors.append(invalid(policy_path, shown, "requires indexed completion mode"))
    _check_replacement(errors, spec, child(path, "podReplacementPolicy"))
    template_path = child(path, "template")
    check_template(errors, spec.get("template") or {}, template_path, context, tolerances)
    _check_restart_policy(errors, spec, template_path)


def _check_manager(errors: Errors, manager: str | None, path: str) -> None:
    if manager is not None:
        errors += domain_prefixed_path(path, manager)
        if len(manager.encode()) > MANAGED_BY_BYTES_MAX:
            errors.append(too_long(path, MANAGED_BY_BYTES_MAX))


def _check_indexed(errors: Errors, spec: Object, path: str) -> None:
    completions, parallelism = spec.get("completions"), spec.get("parallelism", 0)
    failed = spec.get("maxFailedIndexes")
    failed_path, parallelism_path = child(path, "maxFailedIndexes"), child(path, "parallelism")
    if completions is None:
        errors.append(required(child(path, "completions"), "when completion mode is Indexed"))
    if parallelism > INDEXED_PARALLELISM_MAX:
        message = (
            f"must be less than or equal to {INDEXED_PARALLELISM_MAX}"
            " when completion mode is Indexed"
        )
        errors.append(invalid(parallelism_path, parallelism, message))
    if failed is not None and completions is not None and failed > completions:
        errors.append(invalid(failed_path, failed, "must be less than or equal to completions"))
    if failed is not None and failed > FAILED_INDEXES_MAX:
        message = f"must be less than or equal to {FAILED_INDEXES_MAX}"
        errors.append(invalid(failed_path, failed, message))
    if (completions or 0) > MANY_COMPLETIONS and spec.get("backoffLimitPerIndex") is not None:
        if failed is None:
            message = f"must be specified when completions is above {MANY_COMPLETIONS}"
            errors.append(required(failed_path, message))
        _check_limit(errors, parallelism_path, parallelism)
        _check_limit(errors, failed_path, failed or 0)


def _check_limit(errors: Errors, path: str, value: int) -> None:
    if value > MANY_COMPLETIONS_LIMIT:
        message = (
            f"must be less than or equal to {MANY_COMPLETIONS_LIMIT} when completions are above"
            f" {MANY_COMPLETIONS} and used with backoff limit per index"
        )
        errors.append(invalid(path, value, message))


def _check_replacement(errors: Errors, spec: Object, path: str) -> None:
    policy = spec.get("podReplacementPolicy")
    values = ("Failed",) if spec.get("podFailurePolicy") is not None else _REPLACEMENT
    if policy is not None and policy not in values:
        errors.append(not_supported(path, JsonText(policy), values))


def _check_restart_policy(errors: Errors, spec: Object, template_path: str) -> None:
    pod_spec = (spec.get("template") or {}).get("spec") or {}
    policy, path = pod_spec.get("restartPolicy", ""), child(template_path, "spec", "restartPolicy")
    if policy in {"", "Always"}:
        errors.append(required(path, 'valid values: "OnFailure", "Never"'))
    elif policy not in {"OnFailure", "Never"}:
        errors.append(not_supported(path, JsonText(policy), ("OnFailure", "Never")))
    elif policy != "Never" and spec.get("podFailurePolicy") is not None:
        message = 'only "Never" is supported when podFailurePolicy is specified'
        errors.append(invalid(path, JsonText(policy), message))
