"""Validation of access reviews; the texts are upstream's."""

from typing import Final

from kvstack.apimachinery.objects import labels
from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    forbidden,
    index,
    invalid,
    required,
)
from kvstack.apimachinery.objects.json_object import Object

_ONE_KIND: Final = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
_RESOURCE: Final = "spec.resourceAttributes"
_WITH_VALUES: Final = "must be specified when `operator` is 'In' or 'NotIn'"
_WITHOUT_VALUES: Final = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"


def check_access_review(
    review: Object, *, is_about_self: bool, namespace: str = ""
) -> list[FieldError]:
    """Return validation errors; namespace: of a local review."""
    spec = review.get("spec") or {}
    of_resource, of_path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    errors: list[FieldError] = []
    if (of_resource is None) == (of_path is None):
        errors.append(invalid("spec", _printed(of_path), _ONE_KIND))
    if not is_about_self and not spec.get("user") and not spec.get("groups"):
        message = "at least one of user or group must be specified"
        errors.append(invalid("spec.user", "", message))
    if of_resource is not None:
        errors += _check_field_selector(of_resource.get("fieldSelector"))
        errors += _check_label_selector(of_resource.get("labelSelector"))
    errors += _check_metadata(review.get("metadata") or {}, is_local=bool(namespace))
    if not namespace:
        return errors
    if of_resource is not None and of_resource.get("namespace", "") != namespace:
        path, value = f"{_RESOURCE}.namespace", of_resource.get("namespace", "")
        errors.append(invalid(path, value, "must match metadata.namespace"))
    if of_path is not None:
        path = "spec.nonResourceAttributes"
        errors.append(invalid(path, _printed(of_path), "disallowed on this kind of request"))
    return errors


def _check_metadata(metadata: Object, *, is_local: bool) -> list[FieldError]:
    ignored = {"managedFields", "namespace"} if is_local else {"managedFields"}
    if not any(value for name, value in metadata.items() if name not in ignored):
        return []
    message = "must be empty except for namespace" if is_local else "must be empty"
    return [invalid("metadata", metadata, message)]


def _check_field_selector(selector: Object | None) -> list[FieldError]:
    path = f"{_RESOURCE}.fieldSelector"
    errors = _check_selector(path, selector)
    for position, each in enumerate((selector or {}).get("requirements") or ()):
        where = index(child(path, "requirements"), position)
        if not each.get("key"):
            errors.append(required(child(where, "key"), "must be specified"))
        operator, values = each.get("operator"), each.get("values")
        if operator in {"In", "NotIn"} and not values:
            errors.append(required(child(where, "values"), _WITH_VALUES))
        if operator in {"Exists", "DoesNotExist"} and values:
            errors.append(forbidden(child(where, "values"), _WITHOUT_VALUES))
    return errors


def _check_label_selector(selector: Object | None) -> list[FieldError]:
    path = f"{_RESOURCE}.labelSelector"
    expressions = (selector or {}).get("requirements") or ()
    return _check_selector(path, selector) + labels.validate_expressions(
        child(path, "requirements"), expressions, allow_unknown_operators=True
    )


def _check_selector(path: str, selector: Object | None) -> list[FieldError]:
    if selector is None:
        return []
    raw, requirements = selector.get("rawSelector"), selector.get("requirements")
    if raw and requirements:
        message = "may not specified at the same time as requirements"
        return [invalid(child(path, "rawSelector"), raw, message)]
    if not raw and not requirements:
        message = f"when {path} is specified, requirements or rawSelector is required"
        return [required(child(path, "requirements"), message)]
    return []


def _printed(of_path: Object | None) -> object:
    if of_path is None:
        return None
    return {"Path": of_path.get("path", ""), "Verb": of_path.get("verb", "")}
