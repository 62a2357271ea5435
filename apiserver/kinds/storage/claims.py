"""PersistentVolumeClaims.

A claim is immutable with few exceptions: the name of its volume may be set once; a class may be set
where there was none; and, once it is bound, the requested size and the attributes class may change.
`dataSource` and `dataSourceRef` are the old and the new form of one field.
"""

from typing import Any, Final

from kvstack.apimachinery.objects.core.pod_resources import is_native
from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    forbidden,
    index,
    invalid,
    key,
    not_supported,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.labels import validate_object
from kvstack.apimachinery.objects.names import IMMUTABLE, check_condition_reason, check_label_key
from kvstack.apimachinery.objects.quantity import ZERO, Quantity, parse
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apimachinery.objects.times import age
from kvstack.apimachinery.schema.load import enum_values
from kvstack.apimachinery.well_known import STORAGE_CLASS_ANNOTATION
from kvstack.apiserver.kinds.amounts import round_up_amounts
from kvstack.apiserver.kinds.claim_specs import check_claim_spec
from kvstack.apiserver.kinds.deprecations import claim_warnings
from kvstack.apiserver.kinds.equality import same
from kvstack.apiserver.kinds.internal_values import internal_diff
from kvstack.apiserver.kinds.resource_names import check_amount
from kvstack.apiserver.kinds.rules import Errors
from kvstack.apiserver.kinds.storage.access_modes import modes_text
from kvstack.apiserver.kinds.storage.volume_specs import FILESYSTEM
from kvstack.apiserver.kinds.storage.volumes import PENDING
from kvstack.apiserver.kinds.strategy import Context, Peculiarities, Strategy, with_status

BOUND: Final = "Bound"

_SPEC: Final = "io.k8s.api.core.v1.PersistentVolumeClaimSpec"
_SNAPSHOT: Final = ("VolumeSnapshot", "snapshot.storage.k8s.io")
_CLAIM: Final = ("PersistentVolumeClaim", "")
_RESIZE_STATES: Final = enum_values(
    "io.k8s.api.core.v1.PersistentVolumeClaimStatus", "allocatedResourceStatuses"
)
_ATTRIBUTES: Final = "volumeAttributesClassName"
_STORAGE_PATH: Final = "spec.resources.requests.storage"
_DEPRECATED_CLASS: Final = 'deprecated since v1.8; use "storageClassName" attribute instead'


def _default(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("volumeMode", FILESYSTEM)
    resources = spec.get("resources") or {}
    round_up_amounts(resources.get("limits"))
    round_up_amounts(resources.get("requests"))
    status = obj.setdefault("status", {})
    if not status.get("phase"):
        status["phase"] = PENDING
    round_up_amounts(status.get("capacity"))
    round_up_amounts(status.get("allocatedResources"))


def _prepare_create(obj: Object, _context: Context) -> None:
    obj["status"] = {"phase": PENDING}
    _join_sources(obj["spec"], None)


def _prepare_update(new: Object, old: Object, _context: Context) -> None:
    new["status"] = old["status"]
    _join_sources(new["spec"], old["spec"])


def _prepare_status(new: Object, old: Object, _context: Context) -> None:
    new["spec"] = old["spec"]
    if "healthStatus" not in old["status"]:
        new["status"].pop("healthStatus", None)


def _join_sources(spec: Object, old: Object | None) -> None:
    """Drop unsupported sources, and fill the old and the new field from each other."""
    old = old or {}
    reference = spec.get("dataSourceRef")
    if reference is not None and reference.get("namespace") and old.get("dataSourceRef") is None:
        del spec["dataSourceRef"]
    source = spec.get("dataSource")
    is_new = old.get("dataSource") is None and old.get("dataSourceRef") is None
    if source is not None and is_new and spec.get("dataSourceRef") is None:
        # Others were once ignored, and clients may still send them.
        kind = (source.get("kind", ""), source.get("apiGroup") or "")
        if kind not in {_CLAIM, _SNAPSHOT}:
            del spec["dataSource"]
    _fill_sources(spec)


def _fill_sources(spec: Object) -> None:
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is not None and reference is None:
        spec["dataSourceRef"] = _plain_reference(source)
    elif reference is not None and source is None and not reference.get("namespace"):
        spec["dataSource"] = _plain_reference(reference)


def _plain_reference(source: Object) -> Object:
    return {each: source.get(each) for each in ("apiGroup", "kind", "name")}


def _validate(obj: Object, _context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    check_claim_spec(obj["spec"], "spec", errors)
    return errors


def _validate_update(new: Object, old: Object, _context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    spec, before = new["spec"], dict(old["spec"])
    _fill_sources(before)
    check_claim_spec(
        spec,
        "spec",
        errors,
        allows_bad_group=any(
            (before.get(each) or {}).get("apiGroup") is not None
            for each in ("dataSource", "dataSourceRef")
        ),
        allows_bad_selector=bool(validate_object("", before.get("selector"))),
    )
    _check_fixed(errors, new, old, before)
    _check_size(errors, spec, before, old["status"])
    mode = spec.get("volumeMode")
    if mode != before.get("volumeMode"):
        shown = None if mode is None else JsonText(mode)
        errors.append(invalid("volumeMode", shown, IMMUTABLE))
    _check_attributes_class(errors, spec, before, old["status"])
    return errors


def _check_fixed(errors: Errors, new: Object, old: Object, before: Object) -> None:
    """Check that all else is unchanged."""
    spec, before = dict(new["spec"]), dict(before)
    annotation, old_annotation = (
        (each["metadata"].get("annotations") or {}).get(STORAGE_CLASS_ANNOTATION)
        for each in (new, old)
    )
    class_name = spec.get("storageClassName")
    if not before.get("volumeName"):
        before["volumeName"] = spec.get("volumeName", "")
        spec.setdefault("volumeName", "")
    is_given_now = class_name is not None and before.get("storageClassName") is None
    if (
        is_given_now
        and old_annotation is not None
        and class_name == old_annotation
        and annotation in {None, old_annotation}
    ):
        del spec["storageClassName"]
    else:
        if (annotation or "") != (old_annotation or ""):
            path = f"metadata.annotations.{STORAGE_CLASS_ANNOTATION}"
            errors.append(invalid(path, annotation or "", IMMUTABLE))
        if is_given_now and old_annotation in {None, class_name}:
            del spec["storageClassName"]
    if new["status"].get("phase") == BOUND:
        _level(spec, before)
    if not same(spec, before, _SPEC):
        text = (
            "spec is immutable after creation except resources.requests and"
            " volumeAttributesClassName for bound claims"
        )
        errors.append(forbidden("spec", f"{text}\n{internal_diff(before, spec, _SPEC)}"))


def _level(spec: Object, before: Object) -> None:
    """Equalize what may differ in a bound claim: the size and the attributes class."""
    requests = (spec.get("resources") or {}).get("requests")
    if requests:
        old_requests = (before.get("resources") or {}).get("requests") or {}
        size = old_requests.get("storage", "0")
        spec["resources"] = spec["resources"] | {"requests": requests | {"storage": size}}
    if _ATTRIBUTES in before:
        spec[_ATTRIBUTES] = before[_ATTRIBUTES]
    else:
        spec.pop(_ATTRIBUTES, None)


def _check_size(errors: Errors, spec: Object, before: Object, status: Object) -> None:
    size = _storage((spec.get("resources") or {}).get("requests"))
    old_size = _storage((before.get("resources") or {}).get("requests"))
    if size < old_size and size <= _storage(status.get("capacity")):
        errors.append(forbidden(_STORAGE_PATH, "field can not be less than status.capacity"))


def _storage(amounts: dict[str, str] | None) -> Quantity:
    text = (amounts or {}).get("storage")
    return ZERO if text is None else parse(text)


def _check_attributes_class(errors: Errors, spec: Object, before: Object, status: Object) -> None:
    name = spec.get(_ATTRIBUTES)
    if name == before.get(_ATTRIBUTES) or status.get("currentVolumeAttributesClassName") is None:
        return
    if not name:
        what = "nil" if name is None else "empty string"
        detail = (
            f"update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil"
        )
        errors.append(forbidden(f"spec.{_ATTRIBUTES}", detail))


def _validate_status(new: Object, _old: Object, _context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    status: Object = new["status"]
    if not new["metadata"].get("resourceVersion"):
        errors.append(required("resourceVersion"))
    if not new["spec"].get("accessModes"):
        errors.append(required("Spec.accessModes"))
    for name, amount in (status.get("capacity") or {}).items():
        _check_valid(errors, key("status.capacity", name), amount)
    _check_health(errors, (status.get("healthStatus") or {}).get("healthConditions") or [])
    path = "status.allocatedResourceStatuses"
    for name, state in (status.get("allocatedResourceStatuses") or {}).items():
        errors.extend(_key_errors(path, name))
        if state not in _RESIZE_STATES:
            errors.append(not_supported(path, JsonText(name), _RESIZE_STATES))
    path = "status.allocatedResources"
    for name, amount in (status.get("allocatedResources") or {}).items():
        wrong = _key_errors(path, name)
        errors.extend(wrong)
        if not wrong and _check_valid(errors, key(path, name), amount):
            check_amount(errors, key(path, name), "storage", amount)
    return errors


def _check_valid(errors: Errors, path: str, amount: str) -> bool:
    value = parse(amount).value()
    if value < 0:
        errors.append(invalid(path, value, "must be a valid resource quantity"))
    return value >= 0


def _check_health(errors: Errors, conditions: list[Object]) -> None:
    for position, each in enumerate(conditions):
        path = child(index("status.healthStatus.healthConditions", position), "reason")
        reason = each.get("reason", "")
        if reason:
            errors.extend(invalid(path, reason, wrong) for wrong in check_condition_reason(reason))


def _key_errors(path: str, name: str) -> list[FieldError]:
    wrong = [invalid(path, name, each) for each in check_label_key(name)]
    if not wrong and is_native(name) and name != "storage":
        return [not_supported(path, name, ("storage",))]
    return wrong


def _warnings(obj: Object, _context: Context) -> list[str]:
    warnings = list(claim_warnings(obj["spec"], "spec"))
    if STORAGE_CLASS_ANNOTATION in (obj["metadata"].get("annotations") or {}):
        path = key("metadata.annotations", STORAGE_CLASS_ANNOTATION)
        warnings.insert(0, f"{path}: {_DEPRECATED_CLASS}")
    return warnings


def _update_warnings(new: Object, _old: Object, context: Context) -> list[str]:
    return _warnings(new, context)


def _cells(obj: Object, now: float) -> list[Any]:
    metadata, spec, status = obj["metadata"], obj["spec"], obj["status"]
    volume = spec.get("volumeName", "")
    annotations = metadata.get("annotations") or {}
    attributes_class = spec.get(_ATTRIBUTES)
    return [
        metadata["name"],
        "Terminating" if metadata.get("deletionTimestamp") else status.get("phase", ""),
        volume,
        (status.get("capacity") or {}).get("storage", "0") if volume else "",
        modes_text(status.get("accessModes")) if volume else "",
        annotations.get(STORAGE_CLASS_ANNOTATION, spec.get("storageClassName", "")),
        "<unset>" if attributes_class is None else attributes_class,
        age(metadata.get("creationTimestamp"), now),
        spec.get("volumeMode", "<unset>"),
    ]


CLAIMS: Final = with_status(
    Strategy(
        default=_default,
        prepare_create=_prepare_create,
        prepare_update=_prepare_update,
        validate=_validate,
        validate_update=_validate_update,
        warnings=_warnings,
        update_warnings=_update_warnings,
        cells=_cells,
        peculiarities=Peculiarities(is_completed_when_read=True),  # with the phase
    ),
    prepare_update=_prepare_status,
    validate_update=_validate_status,
)
