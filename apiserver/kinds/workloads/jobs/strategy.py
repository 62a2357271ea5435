"""The hooks of Jobs.

The server derives the selector of a Job and the labels of its pods from its UID, so that Jobs do
not overlap; a Job with `manualSelector` has its own.
"""

from typing import Final

from kvstack.apimachinery.objects import labels
from kvstack.apimachinery.objects.field_errors import FieldError, invalid, key, required
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import check_dns_label
from kvstack.apiserver.kinds.pods.defaults import default_template
from kvstack.apiserver.kinds.pods.templates import check_with_tolerances
from kvstack.apiserver.kinds.pods.tolerances import NO_TOLERANCES, Tolerances
from kvstack.apiserver.kinds.pods.warnings import name_warnings, template_warnings
from kvstack.apiserver.kinds.rules import Errors
from kvstack.apiserver.kinds.strategy import Context, Deletion, Strategy, with_status
from kvstack.apiserver.kinds.workloads import pod_owners
from kvstack.apiserver.kinds.workloads.cells import job_cells
from kvstack.apiserver.kinds.workloads.jobs.specs import INDEXED, check_job_spec
from kvstack.apiserver.kinds.workloads.jobs.statuses import validate_status
from kvstack.apiserver.kinds.workloads.jobs.updates import check_changes
from kvstack.apiserver.kinds.workloads.pod_owners import (
    check_labels,
    prepare_status,
    selector_of,
    selector_shown,
    template_of,
)

JOB_NAME_LABEL: Final = "batch.kubernetes.io/job-name"
CONTROLLER_UID_LABEL: Final = "batch.kubernetes.io/controller-uid"

_OLD_JOB_NAME: Final = "job-name"
_OLD_CONTROLLER_UID: Final = "controller-uid"
_INT32_MAX: Final = (1 << 31) - 1
_DEFAULT_BACKOFF_LIMIT: Final = 6
_TEMPLATE_PATH: Final = "spec.template"
_MANY_COMPLETIONS: Final = 100_000
_MANY_PODS: Final = 10_000
_MANY_WARNING: Final = (
    "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than"
    " 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes"
    " fail"
)


def default_conditions(spec: Object) -> None:
    """Set the defaults of the failure policy in a Job's spec."""
    for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ():
        for pattern in rule.get("onPodConditions") or ():
            if not pattern.get("status"):
                pattern["status"] = "True"


def _default(job: Object) -> None:
    spec = job.setdefault("spec", {})
    default_template(spec.setdefault("template", {}))
    default_conditions(spec)
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    has_index_limit = spec.get("backoffLimitPerIndex") is not None
    spec.setdefault("backoffLimit", _INT32_MAX if has_index_limit else _DEFAULT_BACKOFF_LIMIT)
    own = (spec["template"].get("metadata") or {}).get("labels")
    metadata = job.setdefault("metadata", {})
    if own and not metadata.get("labels"):
        # One map for both: labels that are added below must be on the Job too.
        metadata["labels"] = own
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    replaces_failed = spec.get("podFailurePolicy") is not None
    spec.setdefault("podReplacementPolicy", "Failed" if replaces_failed else "TerminatingOrFailed")
    spec.setdefault("manualSelector", False)


def _prepare_create(job: Object, context: Context) -> None:
    spec = job["spec"]
    if not spec["manualSelector"]:
        _make_selector(spec, job["metadata"])
    spec.pop("scheduling", None)
    pod_owners.prepare_create(job, context)


def _make_selector(spec: Object, metadata: Object) -> None:
    own = spec["template"].setdefault("metadata", {}).setdefault("labels", {})
    uid = metadata.get("uid", "")
    for name in (_OLD_JOB_NAME, JOB_NAME_LABEL):
        own.setdefault(name, metadata.get("name", ""))
    for name in (_OLD_CONTROLLER_UID, CONTROLLER_UID_LABEL):
        own.setdefault(name, uid)
    selector = spec.setdefault("selector", {})
    selector.setdefault("matchLabels", {}).setdefault(CONTROLLER_UID_LABEL, uid)


_raise_generation = pod_owners.prepare_update_of("io.k8s.api.batch.v1.JobSpec")


def _prepare_update(new: Object, old: Object, context: Context) -> None:
    drop_scheduling(new["spec"], old["spec"])
    _raise_generation(new, old, context)


def drop_scheduling(spec: Object, before: Object | None) -> None:
    """Drop a field of a disabled feature, unless the stored spec has it."""
    if before is None or before.get("scheduling") is None:
        spec.pop("scheduling", None)


def _validate(job: Object, context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    _check_generated_labels(errors, job)
    errors += _spec_errors(job["spec"], context, NO_TOLERANCES)
    _check_last_hostname(errors, job)
    return errors


def _validate_update(new: Object, old: Object, context: Context) -> list[FieldError]:
    allows_bad_selector = labels.has_invalid_value(old["spec"].get("selector"))
    errors = check_with_tolerances(
        lambda tolerances: _spec_errors(
            new["spec"], context, tolerances, allows_bad_selector=allows_bad_selector
        ),
        template_of(old),
    )
    check_changes(errors, new, old)
    _check_last_hostname(errors, new)
    return errors


def _check_generated_labels(errors: Errors, job: Object) -> None:
    spec, metadata = job["spec"], job["metadata"]
    if spec.get("manualSelector") or spec.get("selector") is None:
        return
    uid, name = metadata.get("uid", ""), metadata.get("name", "")
    if not uid:
        errors.append(required("metadata.uid"))
    expected = {
        _OLD_CONTROLLER_UID: uid,
        _OLD_JOB_NAME: name,
        CONTROLLER_UID_LABEL: uid,
        JOB_NAME_LABEL: name,
    }
    own = (template_of(job).get("metadata") or {}).get("labels") or {}
    for label, value in expected.items():
        path, message = key("spec.template.metadata.labels", label), f"must be '{value}'"
        if label not in own:
            errors.append(required(path, message))
        elif own[label] != value:
            errors.append(invalid(path, dict(sorted(own.items())), message))
    selector = selector_of(spec["selector"])
    if selector is not None and not selector.matches(expected):
        shown = selector_shown(spec["selector"])
        errors.append(invalid("spec.selector", shown, "`selector` not auto-generated"))


def _spec_errors(
    spec: Object, context: Context, tolerances: Tolerances, *, allows_bad_selector: bool = False
) -> list[FieldError]:
    errors: list[FieldError] = []
    check_job_spec(errors, spec, "spec", context, tolerances)
    selector = spec.get("selector")
    if selector is None:
        errors.append(required("spec.selector"))
    else:
        allows_bad_selector = allows_bad_selector or tolerances.selector_values
        errors += labels.validate_object(
            "spec.selector", selector, allow_invalid_values=allows_bad_selector
        )
    parsed = selector_of(selector)
    if parsed is not None:
        check_labels(errors, parsed, spec.get("template") or {}, _TEMPLATE_PATH)
    return errors


def _check_last_hostname(errors: Errors, job: Object) -> None:
    """Check that the pod with the highest index has a valid hostname."""
    spec, name = job["spec"], job["metadata"].get("name", "")
    completions = spec.get("completions") or 0
    if spec.get("completionMode") == INDEXED and completions > 0:
        hostname = f"{name}-{completions - 1}"
        if check_dns_label(hostname):
            message = f"will not able to create pod with invalid DNS label: {hostname}"
            errors.append(invalid("metadata.name", name, message))


def job_spec_warnings(spec: Object, path: str) -> list[str]:
    """Return the warnings about a spec of a Job."""
    all_warnings = template_warnings(spec.get("template"), f"{path}.template")
    is_large = (
        spec.get("completions", 0) > _MANY_COMPLETIONS and spec.get("parallelism", 0) > _MANY_PODS
    )
    if spec.get("completionMode") == INDEXED and is_large:
        return [f"{path}: {_MANY_WARNING}", *all_warnings]
    return all_warnings


def _warnings(job: Object, _context: Context) -> list[str]:
    return name_warnings(job) + job_spec_warnings(job["spec"], "spec")


def _update_warnings(new: Object, old: Object, _context: Context) -> list[str]:
    if new["metadata"].get("generation") == old["metadata"].get("generation"):
        return []
    return job_spec_warnings(new["spec"], "spec")


def _selectable(job: Object) -> dict[str, str]:
    return {"status.successful": str((job.get("status") or {}).get("succeeded", 0))}


JOBS: Final = with_status(
    Strategy(
        default=_default,
        prepare_create=_prepare_create,
        prepare_update=_prepare_update,
        validate=_validate,
        validate_update=_validate_update,
        warnings=_warnings,
        update_warnings=_update_warnings,
        has_generation=True,
        deletion=Deletion(
            orphans_by_default=True,
            orphans_warning=(
                "child pods are preserved by default when jobs are deleted; set"
                " propagationPolicy=Background to remove them or set propagationPolicy=Orphan to"
                " suppress this warning"
            ),
        ),
        selectable=_selectable,
        cells=job_cells,
    ),
    prepare_update=prepare_status,
    validate_update=validate_status,
)
