"""StatefulSets: pods with stable names and volumes.

The controller names the pods and gives each a volume of every claim template, so hostname and
subdomain of the pod template are not checked, and the claims count as volumes of it. Immutable
fields are only checked on creation, and if a stored spec has errors, the template may have some
too.
"""

from collections.abc import Iterable
from typing import Any, Final

from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    index,
    invalid,
    not_supported,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.metadata import validate_annotations, validate_labels
from kvstack.apimachinery.objects.names import IMMUTABLE, check_dns_label, name_is_dns_label
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apimachinery.schema.load import enum_values
from kvstack.apiserver.kinds.amounts import round_up_amounts
from kvstack.apiserver.kinds.claim_specs import check_claim_spec, default_claim_spec
from kvstack.apiserver.kinds.deprecations import claim_warnings
from kvstack.apiserver.kinds.equality import same
from kvstack.apiserver.kinds.internal_values import internal_value
from kvstack.apiserver.kinds.pods.annotations import check_annotations
from kvstack.apiserver.kinds.pods.defaults import default_template
from kvstack.apiserver.kinds.pods.scope import SpecScope
from kvstack.apiserver.kinds.pods.templates import check_template, check_with_tolerances
from kvstack.apiserver.kinds.pods.tolerances import NO_TOLERANCES, Tolerances
from kvstack.apiserver.kinds.pods.warnings import template_warnings
from kvstack.apiserver.kinds.rules import Errors, add_invalid, check_not_negative
from kvstack.apiserver.kinds.strategy import Context, Strategy, with_status
from kvstack.apiserver.kinds.workloads.cells import stateful_set_cells
from kvstack.apiserver.kinds.workloads.counts import as_printed, check_count, check_share, is_zero
from kvstack.apiserver.kinds.workloads.pod_owners import (
    TEMPLATE_PATH,
    changed_template_warnings,
    check_labels,
    check_runs_forever,
    check_same_selector,
    check_selector,
    prepare_create,
    prepare_status,
    prepare_update_of,
    selector_of,
    selector_shown,
    template_of,
)
from kvstack.apiserver.kinds.workloads.status_counts import StatusCounts, check_collisions

_SPEC: Final = "io.k8s.api.apps.v1.StatefulSetSpec"
_UPDATE_STRATEGY: Final = "io.k8s.api.apps.v1.StatefulSetUpdateStrategy"
_ROLLING_UPDATE: Final = "io.k8s.api.apps.v1.RollingUpdateStatefulSetStrategy"
_CLAIM: Final = "io.k8s.api.core.v1.PersistentVolumeClaim"
_CLAIMS_PATH: Final = "spec.volumeClaimTemplates"
_POD_MANAGEMENT: Final = frozenset(enum_values(_SPEC, "podManagementPolicy"))
_RETENTION: Final = ("Retain", "Delete")
_TOO_MANY: Final = "cannot be greater than status.replicas"
_STATUS: Final = StatusCounts(
    not_negative=(
        "replicas",
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
        "observedGeneration",
        "collisionCount",
    ),
    limits=(
        ("readyReplicas", "replicas", _TOO_MANY),
        ("currentReplicas", "replicas", _TOO_MANY),
        ("updatedReplicas", "replicas", _TOO_MANY),
        ("availableReplicas", "replicas", _TOO_MANY),
        ("availableReplicas", "readyReplicas", "cannot be greater than status.readyReplicas"),
    ),
)
_ENDLESS_HISTORY: Final = (
    "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is"
    " recommended"
)


def _default(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    default_template(spec.setdefault("template", {}))
    if not spec.get("podManagementPolicy"):
        spec["podManagementPolicy"] = "OrderedReady"
    strategy = spec.setdefault("updateStrategy", {})
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
        strategy.setdefault("rollingUpdate", {})
    rolling = strategy.get("rollingUpdate")
    if strategy["type"] == "RollingUpdate" and rolling is not None:
        rolling.setdefault("partition", 0)
        rolling.setdefault("maxUnavailable", 1)
    retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
    for name in ("whenDeleted", "whenScaled"):
        if not retention.get(name):
            retention[name] = "Retain"
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    for claim in spec.get("volumeClaimTemplates") or ():
        _default_claim(claim)


def _default_claim(claim: Object) -> None:
    claim["apiVersion"], claim["kind"] = "v1", "PersistentVolumeClaim"
    default_claim_spec(claim.setdefault("spec", {}))
    status = claim.setdefault("status", {})
    if not status.get("phase"):
        status["phase"] = "Pending"
    round_up_amounts(status.get("capacity"))
    round_up_amounts(status.get("allocatedResources"))


def _validate(obj: Object, context: Context) -> list[FieldError]:
    return _spec_errors(obj["spec"], context, NO_TOLERANCES, is_new=True)


def _validate_update(new: Object, old: Object, context: Context) -> list[FieldError]:
    def check(tolerances: Tolerances) -> list[FieldError]:
        errors = _spec_errors(new["spec"], context, tolerances)
        if errors and _spec_errors(old["spec"], context, tolerances):
            return _spec_errors(new["spec"], context, tolerances, checks_template=False)
        return errors

    errors = check_with_tolerances(check, template_of(old))
    check_same_selector(errors, new, old)
    spec, before = new["spec"], old["spec"]
    claims, stored = (each.get("volumeClaimTemplates") or [] for each in (spec, before))
    if not _same_claims(claims, stored):
        errors.append(invalid(_CLAIMS_PATH, _printed_claims(claims), IMMUTABLE))
    for name, text in (("serviceName", str), ("podManagementPolicy", JsonText)):
        value = spec.get(name, "")
        if value != before.get(name, ""):
            errors.append(invalid(child("spec", name), text(value), IMMUTABLE))
    return errors


def _printed_claims(claims: list[Object]) -> Any:  # noqa: ANN401 — of the type
    """Return claims as errors print them: without kind and version, which the server sets."""
    bare = [
        {name: value for name, value in each.items() if name not in {"apiVersion", "kind"}}
        for each in claims
    ]
    return internal_value(bare, _CLAIM) if bare else None


def _same_claims(claims: list[Object], stored: list[Object]) -> bool:
    return len(claims) == len(stored) and all(
        same(each, other, _CLAIM) for each, other in zip(claims, stored, strict=True)
    )


def _spec_errors(
    spec: Object,
    context: Context,
    tolerances: Tolerances,
    *,
    is_new: bool = False,
    checks_template: bool = True,
) -> list[FieldError]:
    errors: list[FieldError] = []
    policy = spec.get("podManagementPolicy", "")
    if not policy:
        errors.append(required("spec.podManagementPolicy"))
    elif policy not in _POD_MANAGEMENT:
        message = "must be 'OrderedReady' or 'Parallel'"
        errors.append(invalid("spec.podManagementPolicy", JsonText(policy), message))
    _check_strategy(errors, spec.get("updateStrategy") or {}, "spec.updateStrategy")
    _check_retention(errors, spec.get("persistentVolumeClaimRetentionPolicy"))
    if is_new:
        for position, claim in enumerate(spec.get("volumeClaimTemplates") or ()):
            claim_path = child(index(_CLAIMS_PATH, position), "spec")
            check_claim_spec(claim.get("spec") or {}, claim_path, errors)
    check_not_negative(errors, "spec.replicas", spec.get("replicas", 0))
    check_not_negative(errors, "spec.minReadySeconds", spec.get("minReadySeconds", 0))
    ordinals = spec.get("ordinals") or {}
    check_not_negative(errors, "spec.ordinals.start", ordinals.get("start", 0))
    service = spec.get("serviceName")
    if is_new and service:
        add_invalid(errors, "spec.serviceName", service, check_dns_label(service))
    _check_pods(errors, spec, context, tolerances, checks_template=checks_template)
    return errors


def _check_pods(
    errors: Errors, spec: Object, context: Context, tolerances: Tolerances, *, checks_template: bool
) -> None:
    selector, template = spec.get("selector"), spec.get("template") or {}
    check_selector(errors, selector, "spec.selector", "statefulset")
    parsed = selector_of(selector)
    if parsed is None:
        errors.append(invalid("spec.selector", selector_shown(selector), ""))
    else:
        if not parsed.is_everything:
            check_labels(errors, parsed, template, TEMPLATE_PATH)
        checked = _with_claims(spec, template)
        if checks_template:
            check_template(errors, checked, TEMPLATE_PATH, context, tolerances)
        _check_metadata(errors, checked, tolerances)
    check_runs_forever(errors, template, TEMPLATE_PATH, "StatefulSet")


def _with_claims(spec: Object, template: Object) -> Object:
    """Return the template with the volumes that the controller adds."""
    pod_spec = template.get("spec") or {}
    claims = spec.get("volumeClaimTemplates") or ()
    completed_spec: Object = {
        name: value for name, value in pod_spec.items() if name not in {"hostname", "subdomain"}
    }
    if claims:
        volumes: dict[str, Object] = {}
        for each in claims:
            name = (each.get("metadata") or {}).get("name", "")
            volumes[name] = {"name": name, "persistentVolumeClaim": {"claimName": name}}
        own = [
            each
            for each in completed_spec.get("volumes") or ()
            if each.get("name", "") not in volumes
        ]
        completed_spec["volumes"] = [*volumes.values(), *own]
    return {**template, "spec": completed_spec}


def _check_metadata(errors: Errors, template: Object, tolerances: Tolerances) -> None:
    """Check labels and annotations, also of a template that is not checked otherwise."""
    metadata = template.get("metadata") or {}
    labels, annotations = metadata.get("labels"), metadata.get("annotations")
    if labels:
        errors += validate_labels(child(TEMPLATE_PATH, "labels"), labels)
    if annotations:
        path = child(TEMPLATE_PATH, "annotations")
        errors += validate_annotations(path, annotations)
        spec_path = child(TEMPLATE_PATH, "spec")
        scope = SpecScope(template["spec"], spec_path, errors, tolerances, is_pod=False)
        check_annotations(scope, annotations, path)


def _check_strategy(errors: Errors, strategy: Object, path: str) -> None:
    type_, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    rolling_path = child(path, "rollingUpdate")
    if not type_:
        errors.append(required(path))
    elif type_ == "OnDelete":
        if rolling is not None:
            message = "only allowed for updateStrategy 'RollingUpdate'"
            printed = internal_value(rolling, _ROLLING_UPDATE)
            errors.append(invalid(rolling_path, printed, message))
    elif type_ != "RollingUpdate":
        message = "must be 'RollingUpdate' or 'OnDelete'"
        errors.append(invalid(path, internal_value(strategy, _UPDATE_STRATEGY), message))
    elif rolling is not None:
        check_not_negative(errors, child(rolling_path, "partition"), rolling.get("partition", 0))
        _check_unavailable(errors, rolling.get("maxUnavailable"), rolling_path)


def _check_unavailable(errors: Errors, value: int | str | None, path: str) -> None:
    if value is not None:
        value_path = child(path, "maxUnavailable")
        check_count(errors, value_path, value)
        if is_zero(value):
            errors.append(invalid(value_path, as_printed(value), "cannot be 0"))
        check_share(errors, value_path, value)


def _check_retention(errors: Errors, policy: Object | None) -> None:
    if policy is None:
        return
    for name in ("whenDeleted", "whenScaled"):
        value = policy.get(name, "")
        if value not in _RETENTION:
            path = f"spec.persistentVolumeClaimRetentionPolicy.{name}"
            errors.append(not_supported(path, JsonText(value), _RETENTION))


def _validate_status(new: Object, old: Object, _context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    _STATUS.check(errors, new.get("status") or {})
    check_collisions(errors, new, old)
    return errors


def _warnings(obj: Object, _context: Context) -> list[str]:
    found = template_warnings(template_of(obj), TEMPLATE_PATH)
    return [*found, *_spec_warnings(obj["spec"], "")]


def _update_warnings(new: Object, old: Object, context: Context) -> list[str]:
    # Upstream says `Spec` here, after the claim's index.
    return [*changed_template_warnings(new, old, context), *_spec_warnings(new["spec"], "Spec")]


def _spec_warnings(spec: Object, member: str) -> Iterable[str]:
    for position, claim in enumerate(spec.get("volumeClaimTemplates") or ()):
        path = index(_CLAIMS_PATH, position)
        yield from claim_warnings(claim.get("spec") or {}, child(path, member) if member else path)
    if spec.get("revisionHistoryLimit", 0) < 0:
        yield _ENDLESS_HISTORY


STATEFUL_SETS: Final = with_status(
    Strategy(
        default=_default,
        prepare_create=prepare_create,
        prepare_update=prepare_update_of(_SPEC),
        validate=_validate,
        validate_update=_validate_update,
        warnings=_warnings,
        update_warnings=_update_warnings,
        check_name=name_is_dns_label,
        has_generation=True,
        cells=stateful_set_cells,
    ),
    prepare_update=prepare_status,
    validate_update=_validate_status,
)
