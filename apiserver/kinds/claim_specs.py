"""Specs of PersistentVolumeClaims, in claims and templates.

    check_claim_spec(spec, "spec", errors)
    check_claim_template({"metadata": …, "spec": …}, "….volumeClaimTemplate", errors)

A claim template in a pod's volume takes labels and annotations and no other metadata.
"""

from typing import Final

from kvstack.apimachinery.objects import labels
from kvstack.apimachinery.objects.field_errors import (
    child,
    forbidden,
    invalid,
    key,
    not_supported,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.metadata import validate_annotations, validate_labels
from kvstack.apimachinery.objects.names import (
    NOT_POSITIVE,
    check_dns_subdomain,
    name_is_dns_label,
    name_is_dns_subdomain,
)
from kvstack.apimachinery.objects.quantity import canonical, parse
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apimachinery.schema.load import enum_values
from kvstack.apiserver.kinds.amounts import round_up_amounts
from kvstack.apiserver.kinds.resource_names import check_amount
from kvstack.apiserver.kinds.rules import Errors, add_invalid, needs, one_of

ACCESS_MODES: Final = enum_values("io.k8s.api.core.v1.PersistentVolumeClaimSpec", "accessModes")
VOLUME_MODES: Final = enum_values("io.k8s.api.core.v1.PersistentVolumeClaimSpec", "volumeMode")

_ALONE: Final = "ReadWriteOncePod"
_REFUSED_METADATA: Final = {
    "name": "name", "generateName": "generateName", "namespace": "namespace",
    "selfLink": "selfLink", "uid": "uID", "resourceVersion": "resourceVersion",
    "generation": "generation", "creationTimestamp": "creationTimestamp",
    "deletionTimestamp": "deletionTimestamp",
    "deletionGracePeriodSeconds": "deletionGracePeriodSeconds",
    "ownerReferences": "ownerReferences", "finalizers": "finalizers",
    "managedFields": "managedFields",
}  # fmt: skip
"""Metadata fields that a template must not have, and their names in errors."""


def default_claim_spec(spec: Object) -> None:
    """Set the defaults of a claim's spec."""
    spec.setdefault("volumeMode", "Filesystem")
    resources = spec.get("resources") or {}
    round_up_amounts(resources.get("limits"))
    round_up_amounts(resources.get("requests"))


def check_claim_spec(
    spec: Object, path: str, errors: Errors, *, allows_bad_group: bool = False,
    allows_bad_selector: bool = False,
) -> None:  # fmt: skip
    """Check the spec of a claim; faults of a stored claim may be tolerated."""
    modes = spec.get("accessModes") or []
    modes_path = child(path, "accessModes")
    if not modes:
        errors.append(required(modes_path, "at least 1 access mode is required"))
    selector = spec.get("selector")
    if selector is not None:
        selector_path = child(path, "selector")
        errors.extend(
            labels.validate_object(
                selector_path, selector, allow_invalid_values=allows_bad_selector
            )
        )
    check_access_modes(modes, modes_path, errors)
    _check_storage(spec, child(path, "resources"), errors)
    _check_class_name("storageClassName", spec, path, errors)
    _volume_mode(spec, path, errors)
    _check_sources(spec, path, errors, allows_bad_group=allows_bad_group)
    _check_class_name("volumeAttributesClassName", spec, path, errors)


def check_access_modes(modes: list[str], path: str, errors: Errors) -> None:
    """Check access modes; all errors are reported at the list."""
    errors.extend(
        not_supported(path, JsonText(each), ACCESS_MODES)
        for each in modes
        if each not in ACCESS_MODES
    )
    if _ALONE in modes and any(each in ACCESS_MODES and each != _ALONE for each in modes):
        errors.append(forbidden(path, "may not use ReadWriteOncePod with other access modes"))


def check_claim_template(template: Object, path: str, errors: Errors) -> None:
    """Check a template of a claim."""
    check_template_metadata(template.get("metadata") or {}, child(path, "metadata"), errors)
    check_claim_spec(template.get("spec") or {}, child(path, "spec"), errors)


def check_template_metadata(metadata: Object, path: str, errors: Errors) -> None:
    """Check the metadata of a template of volume claims or device claims."""
    annotations_path = child(path, "annotations")
    errors += validate_annotations(annotations_path, metadata.get("annotations") or {})
    errors += validate_labels(child(path, "labels"), metadata.get("labels") or {})
    errors.extend(
        forbidden(child(path, shown), "cannot be set")
        for name, shown in _REFUSED_METADATA.items()
        if metadata.get(name) is not None
    )


def _check_storage(spec: Object, path: str, errors: Errors) -> None:
    requests = (spec.get("resources") or {}).get("requests") or {}
    storage = requests.get("storage")
    storage_path = key(path, "storage")
    if storage is None:
        errors.append(required(storage_path))
    elif parse(storage).sign <= 0:
        errors.append(invalid(storage_path, canonical(storage), NOT_POSITIVE))
    else:
        check_amount(errors, storage_path, "storage", storage)


def _check_class_name(name: str, spec: Object, path: str, errors: Errors) -> None:
    value = spec.get(name)
    if value:
        add_invalid(errors, child(path, name), value, name_is_dns_subdomain(value, False))


def _check_sources(spec: Object, path: str, errors: Errors, *, allows_bad_group: bool) -> None:
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    source_path = child(path, "dataSource")
    if source is not None:
        _check_source(source, source_path, errors, allows_bad_group=allows_bad_group)
    if reference is None:
        return
    reference_path = child(path, "dataSourceRef")
    _check_source(reference, reference_path, errors, allows_bad_group=allows_bad_group)
    namespace = reference.get("namespace")
    if namespace:
        wrong = name_is_dns_label(namespace, False)
        add_invalid(errors, child(reference_path, "namespace"), namespace, wrong)
    if source is None:
        return
    # Upstream prints the path itself as the value: an empty object.
    if namespace:
        message = "may not be specified when dataSourceRef.namespace is specified"
        errors.append(invalid(path, {}, message))
    elif any(source.get(each) != reference.get(each) for each in ("apiGroup", "kind", "name")):
        errors.append(invalid(path, {}, "must match dataSourceRef"))


def _check_source(source: Object, path: str, errors: Errors, *, allows_bad_group: bool) -> None:
    needs("name", "kind")(source, path, errors)
    group, kind = source.get("apiGroup"), source.get("kind", "")
    if not group and kind != "PersistentVolumeClaim":
        message = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        errors.append(invalid(path, kind, message))
    if group and not allows_bad_group:
        add_invalid(errors, child(path, "apiGroup"), group, check_dns_subdomain(group))


_volume_mode: Final = one_of("volumeMode", VOLUME_MODES)
