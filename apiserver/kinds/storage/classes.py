"""StorageClasses: how volumes are provisioned. Most fields are immutable."""

from collections.abc import Sequence
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
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import IMMUTABLE, check_label_key
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apimachinery.objects.times import age
from kvstack.apimachinery.schema.load import enum_values
from kvstack.apimachinery.well_known import (
    BETA_DEFAULT_STORAGE_CLASS_ANNOTATION,
    DEFAULT_STORAGE_CLASS_ANNOTATION,
)
from kvstack.apiserver.kinds.deprecations import deprecated_node_label
from kvstack.apiserver.kinds.rules import Errors, add_invalid
from kvstack.apiserver.kinds.storage.parameters import check_driver, check_parameters
from kvstack.apiserver.kinds.strategy import Context, Strategy, TableFormat

DEFAULT_ANNOTATIONS: Final = (
    DEFAULT_STORAGE_CLASS_ANNOTATION,
    BETA_DEFAULT_STORAGE_CLASS_ANNOTATION,
)

_POLICIES: Final = ("Delete", "Retain")
_BINDING_MODES: Final = enum_values("io.k8s.api.storage.v1.StorageClass", "volumeBindingMode")
_FIXED: Final = ("provisioner", "parameters", "reclaimPolicy", "volumeBindingMode")


def _default(obj: Object) -> None:
    obj.setdefault("reclaimPolicy", "Delete")
    obj.setdefault("volumeBindingMode", "Immediate")


def _validate(obj: Object, _context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    provisioner = obj.get("provisioner", "")
    if provisioner:
        check_driver(errors, "provisioner", provisioner)
    check_parameters(errors, "parameters", obj.get("parameters") or {}, is_required=False)
    policy = obj.get("reclaimPolicy")
    if policy and policy not in _POLICIES:
        errors.append(not_supported("reclaimPolicy", JsonText(policy), _POLICIES))
    mode = obj.get("volumeBindingMode")
    if mode is not None and mode not in _BINDING_MODES:
        errors.append(not_supported("volumeBindingMode", JsonText(mode), _BINDING_MODES))
    _check_topologies(errors, obj.get("allowedTopologies") or [])
    if not provisioner:
        # Errors of the schema come last.
        errors.append(required("provisioner"))
    return errors


def _validate_update(new: Object, old: Object, context: Context) -> list[FieldError]:
    return _validate(new, context) + [
        invalid(each, None, IMMUTABLE)
        for each in _FIXED
        if (new.get(each) or None) != (old.get(each) or None)
    ]


def _check_topologies(errors: Errors, terms: Sequence[Object]) -> None:
    # Upstream compares a term with as many empty ones as there are terms, too.
    seen: list[dict[str, set[str]]] = [{} for _ in terms]
    for position, term in enumerate(terms):
        path = child(index("allowedTopologies", position), "matchLabelExpressions")
        values = _check_term(errors, path, term.get("matchLabelExpressions") or [])
        errors.extend(duplicate(path, "") for each in seen if each == values)
        seen.append(values)


def _check_term(errors: Errors, path: str, expressions: Sequence[Object]) -> dict[str, set[str]]:
    by_key: dict[str, set[str]] = {}
    for position, expression in enumerate(expressions):
        field = index(path, position)
        values_path, values = child(field, "values"), expression.get("values") or []
        if not values:
            errors.append(required(values_path))
        errors.extend(
            duplicate(index(values_path, number), value)
            for number, value in enumerate(values)
            if value in values[:number]
        )
        key = expression.get("key", "")
        add_invalid(errors, child(field, "key"), key, check_label_key(key))
        if key in by_key:
            errors.append(duplicate(child(field, "key"), key))
        by_key[key] = set(values)
    return by_key


def _warnings(obj: Object, _context: Context) -> list[str]:
    warnings: list[str] = []
    for position, term in enumerate(obj.get("allowedTopologies") or ()):
        path = child(index("allowedTopologies", position), "matchLabelExpressions")
        for number, expression in enumerate(term.get("matchLabelExpressions") or ()):
            message = deprecated_node_label(expression.get("key", ""))
            if message:
                warnings.append(f"{child(index(path, number), 'key')}: {message}")
    return warnings


def _update_warnings(new: Object, _old: Object, context: Context) -> list[str]:
    return _warnings(new, context)


def effective_default(classes: Sequence[Object]) -> str:
    """Return the name of the class that claims without one get: the newest default; or ""."""
    defaults = [
        (each["metadata"].get("creationTimestamp") or "", each["metadata"]["name"])
        for each in classes
        if is_default(each)
    ]
    newest = max((created for created, _ in defaults), default="")
    return min((name for created, name in defaults if created == newest), default="")


def is_default(storage_class: Object) -> bool:
    """Return whether a class is marked as the default."""
    annotations = storage_class["metadata"].get("annotations") or {}
    return any(annotations.get(each) == "true" for each in DEFAULT_ANNOTATIONS)


def _cells(obj: Object, now: float) -> list[Any]:
    metadata = obj["metadata"]
    return [
        metadata["name"],
        obj.get("provisioner", ""),
        obj.get("reclaimPolicy", "Delete"),
        obj.get("volumeBindingMode", "Immediate"),
        obj.get("allowVolumeExpansion", False),
        age(metadata.get("creationTimestamp"), now),
    ]


def _mark_default(classes: Sequence[Object], rows: Sequence[list[Any]]) -> None:
    name = effective_default(classes)
    for each, cells in zip(classes, rows, strict=True):
        if name and each["metadata"]["name"] == name:
            cells[0] = f"{name} (default)"


STORAGE_CLASSES: Final = Strategy(
    default=_default,
    validate=_validate,
    validate_update=_validate_update,
    warnings=_warnings,
    update_warnings=_update_warnings,
    cells=_cells,
    table=TableFormat(adjust_list=_mark_default),
)
