"""PersistentVolumes."""

from typing import Any, Final

from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    forbidden,
    index,
    invalid,
    key,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import IMMUTABLE, check_label_value
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apimachinery.objects.times import age
from kvstack.apimachinery.schema.load import built_in_types
from kvstack.apimachinery.well_known import (
    ARCH_LABEL,
    BETA_ARCH_LABEL,
    BETA_INSTANCE_TYPE_LABEL,
    BETA_OS_LABEL,
    BETA_REGION_LABEL,
    BETA_ZONE_LABEL,
    INSTANCE_TYPE_LABEL,
    OS_LABEL,
    REGION_LABEL,
    STORAGE_CLASS_ANNOTATION,
    ZONE_LABEL,
)
from kvstack.apiserver.kinds.amounts import round_up_amounts
from kvstack.apiserver.kinds.deprecations import VOLUME_DEPRECATIONS, node_selector_term_warnings
from kvstack.apiserver.kinds.equality import same
from kvstack.apiserver.kinds.internal_values import internal_value, value_diff
from kvstack.apiserver.kinds.pods.defaults import default_volume_source
from kvstack.apiserver.kinds.status_metadata import keep_status
from kvstack.apiserver.kinds.storage.access_modes import modes_text
from kvstack.apiserver.kinds.storage.sources import SOURCE_NAMES
from kvstack.apiserver.kinds.storage.volume_specs import (
    FILESYSTEM,
    RECYCLE,
    RETAIN,
    check_volume_spec,
)
from kvstack.apiserver.kinds.strategy import Context, Strategy, with_status

MOUNT_ANNOTATION: Final = "volume.beta.kubernetes.io/mount-options"
PENDING: Final = "Pending"

_SPEC: Final = "io.k8s.api.core.v1.PersistentVolumeSpec"
_AFFINITY: Final = "io.k8s.api.core.v1.VolumeNodeAffinity"
_MOUNTED: Final = SOURCE_NAMES - {
    "csi", "fc", "flexVolume", "flocker", "hostPath", "local", "portworxVolume", "scaleIO",
    "storageos",
}  # fmt: skip
"""Sources that take mount options from an annotation."""

_DEPRECATED_ANNOTATIONS: Final = {
    STORAGE_CLASS_ANNOTATION: 'deprecated since v1.8; use "storageClassName" attribute instead',
    MOUNT_ANNOTATION: 'deprecated since v1.31; use "mountOptions" attribute instead',
}
_WARNED_SOURCES: Final = (
    "cephfs", "photonPersistentDisk", "scaleIO", "storageos", "glusterfs", "rbd",
)  # fmt: skip
_STABLE_LABELS: Final = {
    BETA_ZONE_LABEL: ZONE_LABEL,
    BETA_REGION_LABEL: REGION_LABEL,
    BETA_OS_LABEL: OS_LABEL,
    BETA_ARCH_LABEL: ARCH_LABEL,
    BETA_INSTANCE_TYPE_LABEL: INSTANCE_TYPE_LABEL,
}


def _default(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    if not spec.get("persistentVolumeReclaimPolicy"):
        spec["persistentVolumeReclaimPolicy"] = RETAIN
    spec.setdefault("volumeMode", FILESYSTEM)
    round_up_amounts(spec.get("capacity"))
    default_volume_source(spec)
    status = obj.setdefault("status", {})
    if not status.get("phase"):
        status["phase"] = PENDING


def _prepare_create(obj: Object, context: Context) -> None:
    obj["status"] = {"phase": PENDING, "lastPhaseTransitionTime": context.now}


def _prepare_status(new: Object, old: Object, context: Context) -> None:
    new["spec"] = old["spec"]
    status, before = new["status"], old["status"]
    given, kept = (each.get("lastPhaseTransitionTime") for each in (status, before))
    if status.get("phase") == before.get("phase"):
        if given is None and kept is not None:
            status["lastPhaseTransitionTime"] = kept
    elif given is None or given == kept:
        status["lastPhaseTransitionTime"] = context.now


def _validate(obj: Object, _context: Context) -> list[FieldError]:
    return _errors(obj, allows_bad_values=False)


def _validate_update(new: Object, old: Object, _context: Context) -> list[FieldError]:
    spec, before = new["spec"], old["spec"]
    errors = _errors(new, allows_bad_values=_has_bad_values(before))
    errors += _source_errors(spec, before)
    mode, old_mode = spec.get("volumeMode"), before.get("volumeMode")
    if mode != old_mode:
        shown = None if mode is None else JsonText(mode)
        errors.append(invalid("volumeMode", shown, IMMUTABLE))
    errors += _affinity_errors(spec.get("nodeAffinity"), before.get("nodeAffinity"))
    name = "volumeAttributesClassName"
    if before.get(name) is not None and spec.get(name) is None:
        detail = "update from non-nil value to nil is forbidden"
        errors.append(forbidden(f"spec.{name}", detail))
    return errors


def _validate_status(new: Object, _old: Object, _context: Context) -> list[FieldError]:
    return [] if new["metadata"].get("resourceVersion") else [required("resourceVersion")]


def _errors(obj: Object, *, allows_bad_values: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    metadata, spec = obj["metadata"], obj["spec"]
    name = metadata.get("name", "")
    check_volume_spec(spec, "spec", errors, name=name, allows_bad_values=allows_bad_values)
    has_options = MOUNT_ANNOTATION in (metadata.get("annotations") or {})
    if has_options and not any(spec.get(each) is not None for each in _MOUNTED):
        detail = "may not specify mount options for this volume type"
        errors.append(forbidden(f"metadata.annotations.{MOUNT_ANNOTATION}", detail))
    return errors


def _has_bad_values(spec: Object) -> bool:
    """Return whether a stored volume has invalid label values in its affinity."""
    selector = (spec.get("nodeAffinity") or {}).get("required") or {}
    return any(
        check_label_value(value)
        for term in selector.get("nodeSelectorTerms") or ()
        for expression in term.get("matchExpressions") or ()
        for value in expression.get("values") or ()
    )


def _source_errors(spec: Object, before: Object) -> list[FieldError]:
    csi, old_csi = spec.get("csi"), before.get("csi")
    name = "controllerExpandSecretRef"
    if csi is not None and old_csi is not None and old_csi.get(name) is None:
        # This one may be added later, once.
        spec = spec | {"csi": {each: value for each, value in csi.items() if each != name}}
    source, old_source = _source(spec), _source(before)
    if same(source, old_source, _SPEC):
        return []
    difference = value_diff(_internal_source(old_source), _internal_source(source))
    detail = f"spec.persistentvolumesource is immutable after creation\n{difference}"
    return [forbidden("spec.persistentvolumesource", detail)]


def _source(spec: Object) -> Object:
    return {name: value for name, value in spec.items() if name in SOURCE_NAMES}


def _internal_source(source: Object) -> Object:
    fields = built_in_types()[_SPEC].fields.values()
    shown = {each.go_name for each in fields if each.name in SOURCE_NAMES}
    members = internal_value(source, _SPEC).items()
    return {name: value for name, value in members if name in shown}


def _affinity_errors(affinity: Object | None, before: Object | None) -> list[FieldError]:
    if before is None or same(affinity, before, _AFFINITY):
        return []
    if affinity is not None and same(affinity, _with_stable_labels(affinity, before), _AFFINITY):
        return []
    shown = internal_value(affinity, _AFFINITY)
    return [
        invalid("nodeAffinity", shown, f"{IMMUTABLE}, except for updating from beta label to GA")
    ]


def _with_stable_labels(affinity: Object, before: Object) -> Object:
    """Return the old affinity with deprecated labels renamed where the new one renames them."""
    terms = (affinity.get("required") or {}).get("nodeSelectorTerms") or []
    old_terms = (before.get("required") or {}).get("nodeSelectorTerms") or []
    renamed: list[Object] = []
    for position, old_term in enumerate(old_terms):
        term = terms[position] if position < len(terms) else {}
        renamed.append(
            {
                **old_term,
                **{
                    each: _renamed(old_term[each], term.get(each) or [])
                    for each in ("matchExpressions", "matchFields")
                    if each in old_term
                },
            }
        )
    return {"required": {"nodeSelectorTerms": renamed}} if before.get("required") else {}


def _renamed(old: list[Object], new: list[Object]) -> list[Object]:
    result: list[Object] = []
    for position, requirement in enumerate(old):
        name = requirement.get("key", "")
        other = new[position].get("key", "") if position < len(new) else name
        is_stable = _STABLE_LABELS.get(name) == other
        result.append(requirement | {"key": other} if is_stable else requirement)
    return result


def _warnings(obj: Object, _context: Context) -> list[str]:
    spec = obj["spec"]
    annotations = obj["metadata"].get("annotations") or {}
    warnings = [
        f"{key('metadata.annotations', name)}: {message}"
        for name, message in _DEPRECATED_ANNOTATIONS.items()
        if name in annotations
    ]
    if spec.get("persistentVolumeReclaimPolicy") == RECYCLE:
        warnings.append(
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead,"
            " the recommended approach is to use dynamic provisioning."
        )
    selector = (spec.get("nodeAffinity") or {}).get("required") or {}
    for position, term in enumerate(selector.get("nodeSelectorTerms") or ()):
        path = index("spec.nodeAffinity.required.nodeSelectorTerms", position)
        warnings.extend(node_selector_term_warnings(term, path))
    for each in _WARNED_SOURCES:
        if spec.get(each) is not None:
            shown, message = VOLUME_DEPRECATIONS[each]
            warnings.append(f"spec.{shown}: {message}")
    return warnings


def _update_warnings(new: Object, _old: Object, context: Context) -> list[str]:
    return _warnings(new, context)


def _cells(obj: Object, now: float) -> list[Any]:
    metadata, spec, status = obj["metadata"], obj["spec"], obj["status"]
    claim = spec.get("claimRef")
    annotations = metadata.get("annotations") or {}
    attributes_class = spec.get("volumeAttributesClassName")
    return [
        metadata["name"],
        (spec.get("capacity") or {}).get("storage", "0"),
        modes_text(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        "Terminating" if metadata.get("deletionTimestamp") else status.get("phase", ""),
        "" if claim is None else f"{claim.get('namespace', '')}/{claim.get('name', '')}",
        annotations.get(STORAGE_CLASS_ANNOTATION, spec.get("storageClassName", "")),
        "<unset>" if attributes_class is None else attributes_class,
        status.get("reason", ""),
        age(metadata.get("creationTimestamp"), now),
        spec.get("volumeMode", "<unset>"),
    ]


VOLUMES: Final = with_status(
    Strategy(
        default=_default,
        prepare_create=_prepare_create,
        prepare_update=keep_status,
        validate=_validate,
        validate_update=_validate_update,
        warnings=_warnings,
        update_warnings=_update_warnings,
        cells=_cells,
    ),
    prepare_update=_prepare_status,
    validate_update=_validate_status,
)
