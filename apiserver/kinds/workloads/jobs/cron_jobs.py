"""CronJobs: Jobs on a schedule."""

from typing import Any, Final

from kvstack.apimachinery.objects import cron_schedules
from kvstack.apimachinery.objects.cron_schedules import ScheduleError
from kvstack.apimachinery.objects.field_errors import FieldError, invalid, not_supported, required
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apimachinery.objects.time_zones import is_known
from kvstack.apimachinery.schema.load import enum_values
from kvstack.apiserver.kinds.equality import same
from kvstack.apiserver.kinds.pods.defaults import default_template
from kvstack.apiserver.kinds.pods.disabled_fields import drop_disabled_template_fields
from kvstack.apiserver.kinds.pods.templates import check_with_tolerances
from kvstack.apiserver.kinds.pods.tolerances import NO_TOLERANCES, Tolerances
from kvstack.apiserver.kinds.pods.warnings import name_warnings
from kvstack.apiserver.kinds.rules import Errors, check_not_negative, wrong_choice
from kvstack.apiserver.kinds.strategy import Context, Strategy, with_status
from kvstack.apiserver.kinds.workloads.cells import cron_job_cells
from kvstack.apiserver.kinds.workloads.jobs.specs import check_job_spec
from kvstack.apiserver.kinds.workloads.jobs.strategy import (
    default_conditions,
    drop_scheduling,
    job_spec_warnings,
)
from kvstack.apiserver.kinds.workloads.pod_owners import (
    keep_status,
    prepare_status,
    raise_generation,
    selector_shown,
)

NAME_BYTES_MAX: Final = 52
"""A Job's name is that of the CronJob and eleven characters, and must be a DNS label."""

_SPEC: Final = "io.k8s.api.batch.v1.CronJobSpec"
_JOB_PATH: Final = "spec.jobTemplate.spec"
_CONCURRENCY: Final = enum_values(_SPEC, "concurrencyPolicy")
_ZONE_CHARACTERS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-_0123456789+"
_ZONE_PART_MAX: Final = 14


def job_spec_of(obj: Object) -> Object:
    """Return the spec of the Jobs of a CronJob."""
    spec: Object = (obj["spec"].get("jobTemplate") or {}).get("spec") or {}
    return spec


def _default(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    job_spec = spec.setdefault("jobTemplate", {}).setdefault("spec", {})
    default_template(job_spec.setdefault("template", {}))
    default_conditions(job_spec)
    if not spec.get("concurrencyPolicy"):
        spec["concurrencyPolicy"] = "Allow"
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)


def _prepare_create(obj: Object, _context: Context) -> None:
    obj["status"] = {}
    obj["metadata"]["generation"] = 1
    job_spec = job_spec_of(obj)
    drop_scheduling(job_spec, None)
    drop_disabled_template_fields(job_spec.get("template"), None)


def _prepare_update(new: Object, old: Object, _context: Context) -> None:
    keep_status(new, old)
    job_spec, before = job_spec_of(new), job_spec_of(old)
    drop_scheduling(job_spec, before)
    drop_disabled_template_fields(job_spec.get("template"), before.get("template"))
    if not same(new["spec"], old["spec"], _SPEC):
        raise_generation(new, old)


def _validate(obj: Object, context: Context) -> list[FieldError]:
    errors = _spec_errors(obj["spec"], None, context, NO_TOLERANCES)
    name = obj["metadata"].get("name", "")
    if len(name.encode()) > NAME_BYTES_MAX:
        errors.append(invalid("metadata.name", name, "must be no more than 52 characters"))
    _check_has_schedule(errors, obj["spec"])
    return errors


def _validate_update(new: Object, old: Object, context: Context) -> list[FieldError]:
    errors = check_with_tolerances(
        lambda tolerances: _spec_errors(new["spec"], old["spec"], context, tolerances),
        job_spec_of(old).get("template"),
    )
    _check_has_schedule(errors, new["spec"])
    return errors


def _check_has_schedule(errors: Errors, spec: Object) -> None:
    # Upstream's declarative validation: these errors come last.
    if not spec.get("schedule"):
        errors.append(required("spec.schedule"))


def _spec_errors(
    spec: Object, before: Object | None, context: Context, tolerances: Tolerances
) -> list[FieldError]:
    errors: list[FieldError] = []
    stored: Object = before or {}
    schedule, zone = spec.get("schedule", ""), spec.get("timeZone")
    if schedule:
        _check_schedule(errors, schedule, zone, allows_zone="TZ" in stored.get("schedule", ""))
    deadline = spec.get("startingDeadlineSeconds")
    check_not_negative(errors, "spec.startingDeadlineSeconds", deadline)
    if zone is not None and (before is None or zone != stored.get("timeZone")):
        _check_zone(errors, zone)
    policy = spec.get("concurrencyPolicy", "")
    if policy not in _CONCURRENCY:
        errors.append(wrong_choice("spec.concurrencyPolicy", policy, _CONCURRENCY))
    _check_job(errors, (spec.get("jobTemplate") or {}).get("spec") or {}, context, tolerances)
    for name in ("successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        check_not_negative(errors, f"spec.{name}", spec.get(name))
    return errors


def _check_schedule(errors: Errors, schedule: str, zone: str | None, *, allows_zone: bool) -> None:
    try:
        cron_schedules.parse(schedule)
    except ScheduleError as error:
        errors.append(invalid("spec.schedule", schedule, str(error)))
    if "TZ" not in schedule:
        return
    if not allows_zone:
        message = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        errors.append(invalid("spec.schedule", schedule, message))
    elif zone is not None:
        message = "cannot use both timeZone field and TZ or CRON_TZ in schedule"
        errors.append(invalid("spec.schedule", schedule, message))


def _check_zone(errors: Errors, zone: str) -> None:
    zone_value = JsonText(zone)
    if not zone:
        message = "timeZone must be nil or non-empty string"
        errors.append(invalid("spec.timeZone", zone_value, message))
        return
    unknown = invalid("spec.timeZone", zone_value, f"unknown time zone {zone}")
    if not all(_is_zone_part(each) for each in zone.split("/")):
        errors.append(unknown)
        return
    if zone.lower() == "local":
        message = (
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        )
        errors.append(invalid("spec.timeZone", zone_value, message))
    if ".." in zone:
        errors.append(invalid("spec.timeZone", zone_value, "time: invalid location name"))
    elif zone not in {"UTC", "Local"} and not is_known(zone):
        errors.append(unknown)


def _is_zone_part(part: str) -> bool:
    return (
        part not in {"", ".", ".."}
        and len(part) <= _ZONE_PART_MAX
        and not part.startswith("-")
        and not part.strip(_ZONE_CHARACTERS)
    )


def _check_job(errors: Errors, spec: Object, context: Context, tolerances: Tolerances) -> None:
    check_job_spec(errors, spec, _JOB_PATH, context, tolerances)
    selector = spec.get("selector")
    if selector is not None:
        shown: Any = selector_shown(selector)
        message = "`selector` will be auto-generated"
        errors.append(invalid(f"{_JOB_PATH}.selector", shown, message))
    if spec.get("manualSelector"):
        errors.append(not_supported(f"{_JOB_PATH}.manualSelector", True, ("nil", "false")))


def _warnings(obj: Object, _context: Context) -> list[str]:
    return name_warnings(obj) + job_spec_warnings(job_spec_of(obj), _JOB_PATH)


def _update_warnings(new: Object, old: Object, _context: Context) -> list[str]:
    messages: list[str] = []
    if new["metadata"].get("generation") != old["metadata"].get("generation"):
        messages = job_spec_warnings(job_spec_of(new), _JOB_PATH)
    if "TZ" in new["spec"].get("schedule", ""):
        messages.append(
            "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see"
            " https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
        )
    return messages


CRON_JOBS: Final = with_status(
    Strategy(
        default=_default,
        prepare_create=_prepare_create,
        prepare_update=_prepare_update,
        validate=_validate,
        validate_update=_validate_update,
        warnings=_warnings,
        update_warnings=_update_warnings,
        has_generation=True,
        cells=cron_job_cells,
    ),
    prepare_update=prepare_status,
)
