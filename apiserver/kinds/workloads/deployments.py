"""Deployments.

Changed annotations increment the generation too, since ReplicaSets get copies of them. The
annotation ROLLBACK_TO was once a field, and still must be a number.
"""

from typing import Final

from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    forbidden,
    invalid,
    not_supported,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.go_numbers import NumberError, parse_int
from kvstack.apimachinery.schema.decode import DecodeError
from kvstack.apimachinery.schema.load import enum_values
from kvstack.apiserver.kinds.equality import same
from kvstack.apiserver.kinds.internal_values import internal_value
from kvstack.apiserver.kinds.pods.defaults import default_template
from kvstack.apiserver.kinds.pods.disabled_fields import drop_disabled_template_fields
from kvstack.apiserver.kinds.pods.templates import check_with_tolerances
from kvstack.apiserver.kinds.pods.tolerances import Tolerances
from kvstack.apiserver.kinds.pods.warnings import name_warnings, template_warnings
from kvstack.apiserver.kinds.rules import Errors, check_not_negative
from kvstack.apiserver.kinds.strategy import Context, Strategy, with_status
from kvstack.apiserver.kinds.workloads.cells import deployment_cells
from kvstack.apiserver.kinds.workloads.counts import as_printed, check_count, check_share, is_zero
from kvstack.apiserver.kinds.workloads.pod_owners import (
    TEMPLATE_PATH,
    changed_template_warnings,
    check_same_selector,
    keep_status,
    prepare_create,
    raise_generation,
    template_of,
)
from kvstack.apiserver.kinds.workloads.replica_sets import check_replicated_template
from kvstack.apiserver.kinds.workloads.status_counts import StatusCounts, check_collisions

ROLLBACK_TO: Final = "deprecated.deployment.rollback.to"

_SPEC: Final = "io.k8s.api.apps.v1.DeploymentSpec"
_STRATEGY: Final = "io.k8s.api.apps.v1.DeploymentStrategy"
_STRATEGIES: Final = enum_values(_STRATEGY, "type")
_TOO_MANY: Final = "cannot be greater than status.replicas"
_STATUS: Final = StatusCounts(
    not_negative=(
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
        "collisionCount",
    ),
    limits=(
        ("updatedReplicas", "replicas", _TOO_MANY),
        ("readyReplicas", "replicas", _TOO_MANY),
        ("availableReplicas", "replicas", _TOO_MANY),
        ("availableReplicas", "readyReplicas", "cannot be greater than readyReplicas"),
    ),
)


def _default(obj: Object) -> None:
    _read_rollback(obj)
    spec = obj.setdefault("spec", {})
    default_template(spec.setdefault("template", {}))
    spec.setdefault("replicas", 1)
    strategy = spec.setdefault("strategy", {})
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)


def _read_rollback(obj: Object) -> None:
    """Normalize the annotation to a number, drop it if it is empty."""
    annotations: dict[str, str] = (obj.get("metadata") or {}).get("annotations") or {}
    text = annotations.get(ROLLBACK_TO)
    if text is None:
        return
    if not text:
        del annotations[ROLLBACK_TO]
        return
    try:
        annotations[ROLLBACK_TO] = str(parse_int(text, 64))
    except NumberError as error:
        message = f"failed to parse annotation[{ROLLBACK_TO}]={text} as int64: {error}"
        raise DecodeError(message) from None


def _prepare_update(new: Object, old: Object, _context: Context) -> None:
    keep_status(new, old)
    drop_disabled_template_fields(template_of(new), template_of(old))
    annotations, before = (each["metadata"].get("annotations") or {} for each in (new, old))
    if annotations != before or not same(new["spec"], old["spec"], _SPEC):
        raise_generation(new, old)


def _prepare_status(new: Object, old: Object, _context: Context) -> None:
    new["spec"] = old["spec"]
    metadata, stored = new["metadata"], old["metadata"]
    _keep(metadata, stored, "labels")
    annotations = dict(metadata.get("annotations") or {})
    _keep(annotations, stored.get("annotations") or {}, ROLLBACK_TO)
    _keep(metadata, {"annotations": annotations} if annotations else {}, "annotations")


def _keep(new: Object, old: Object, name: str) -> None:
    if name in old:
        new[name] = old[name]
    else:
        new.pop(name, None)


def _validate(obj: Object, context: Context) -> list[FieldError]:
    return _spec_errors(obj, context, Tolerances())


def _validate_update(new: Object, old: Object, context: Context) -> list[FieldError]:
    errors = check_with_tolerances(
        lambda tolerances: _spec_errors(new, context, tolerances), template_of(old)
    )
    check_same_selector(errors, new, old)
    return errors


def _spec_errors(obj: Object, context: Context, tolerances: Tolerances) -> list[FieldError]:
    errors: list[FieldError] = []
    spec = obj["spec"]
    check_not_negative(errors, "spec.replicas", spec.get("replicas", 0))
    check_replicated_template(errors, spec, context, tolerances)
    _check_strategy(errors, spec.get("strategy") or {}, "spec.strategy")
    ready = spec.get("minReadySeconds", 0)
    check_not_negative(errors, "spec.minReadySeconds", ready)
    check_not_negative(errors, "spec.revisionHistoryLimit", spec.get("revisionHistoryLimit"))
    rollback = (obj["metadata"].get("annotations") or {}).get(ROLLBACK_TO)
    if rollback is not None:
        check_not_negative(errors, "spec.rollback.version", parse_int(rollback, 64))
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None:
        check_not_negative(errors, "spec.progressDeadlineSeconds", deadline)
        if deadline <= ready:
            message = "must be greater than minReadySeconds"
            errors.append(invalid("spec.progressDeadlineSeconds", deadline, message))
    return errors


def _check_strategy(errors: Errors, strategy: Object, path: str) -> None:
    type_, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    rolling_path = child(path, "rollingUpdate")
    if type_ == "Recreate":
        if rolling is not None:
            message = "may not be specified when strategy `type` is 'Recreate'"
            errors.append(forbidden(rolling_path, message))
    elif type_ != "RollingUpdate":
        errors.append(not_supported(path, internal_value(strategy, _STRATEGY), _STRATEGIES))
    elif rolling is None:
        errors.append(required(rolling_path, "this should be defaulted and never be nil"))
    else:
        _check_rolling(errors, rolling, rolling_path)


def _check_rolling(errors: Errors, rolling: Object, path: str) -> None:
    unavailable, surge = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
    unavailable_path = child(path, "maxUnavailable")
    check_count(errors, unavailable_path, unavailable)
    check_count(errors, child(path, "maxSurge"), surge)
    if is_zero(unavailable) and is_zero(surge):
        message = "may not be 0 when `maxSurge` is 0"
        errors.append(invalid(unavailable_path, as_printed(unavailable), message))
    check_share(errors, unavailable_path, unavailable)


def _validate_status(new: Object, old: Object, _context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    _STATUS.check(errors, new.get("status") or {})
    check_collisions(errors, new, old)
    return errors


def _warnings(obj: Object, _context: Context) -> list[str]:
    return name_warnings(obj) + template_warnings(template_of(obj), TEMPLATE_PATH)


DEPLOYMENTS: Final = with_status(
    Strategy(
        default=_default,
        prepare_create=prepare_create,
        prepare_update=_prepare_update,
        validate=_validate,
        validate_update=_validate_update,
        warnings=_warnings,
        update_warnings=changed_template_warnings,
        has_generation=True,
        cells=deployment_cells,
    ),
    prepare_update=_prepare_status,
    validate_update=_validate_status,
    reset_fields=(("spec",), ("metadata", "labels")),
)
