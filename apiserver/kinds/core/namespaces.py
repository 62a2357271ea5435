"""Namespaces: a label with their name, and finalizers that only /finalize may change.

A namespace has two lists of finalizers. Anybody may use `metadata.finalizers`; `spec.finalizers`
holds `kubernetes` from the start. The namespace is removed when both are empty.
"""

from typing import Any, Final

from kvstack.apimachinery.objects.field_errors import FieldError, index, invalid
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import check_label_key, name_is_dns_label
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apimachinery.objects.times import age
from kvstack.apimachinery.well_known import (
    FOREGROUND_FINALIZER,
    NAMESPACE_NAME_LABEL,
    ORPHAN_FINALIZER,
)
from kvstack.apiserver.kinds.rules import Errors, add_invalid
from kvstack.apiserver.kinds.status_metadata import keep_spec, keep_status
from kvstack.apiserver.kinds.strategy import Context, Deletion, Strategy, with_status

KUBERNETES: Final = "kubernetes"
ACTIVE: Final = "Active"
NAMESPACE_RESOURCE: Final = GroupResource("", "namespaces")
TERMINATING: Final = "Terminating"

_STANDARD_FINALIZERS: Final = frozenset({KUBERNETES, ORPHAN_FINALIZER, FOREGROUND_FINALIZER})


def _default(obj: Object) -> None:
    metadata = obj.setdefault("metadata", {})
    name = metadata.get("name")
    if name:
        labels = metadata.get("labels")
        if labels is None:
            labels = metadata["labels"] = {}
        labels[NAMESPACE_NAME_LABEL] = name
    status = obj.setdefault("status", {})
    if not status.get("phase"):
        status["phase"] = ACTIVE


def _prepare_create(obj: Object, _context: Context) -> None:
    # The name may have been generated after defaulting.
    _default(obj)
    obj["status"] = {"phase": ACTIVE}
    spec = obj.setdefault("spec", {})
    finalizers = spec.get("finalizers") or []
    if KUBERNETES not in finalizers:
        spec["finalizers"] = [*finalizers, KUBERNETES]


def _prepare_update(new: Object, old: Object, _context: Context) -> None:
    new["status"] = old["status"]
    finalizers = old.get("spec", {}).get("finalizers")
    if finalizers:
        new.setdefault("spec", {})["finalizers"] = finalizers
    else:
        new.setdefault("spec", {}).pop("finalizers", None)


def _validate(obj: Object, _context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    for each in obj.get("spec", {}).get("finalizers") or ():
        _check_finalizer(errors, "spec.finalizers", each)
    return errors


def _validate_update(new: Object, _old: Object, context: Context) -> list[FieldError]:
    return _validate(new, context)


def _validate_status(new: Object, _old: Object, _context: Context) -> list[FieldError]:
    if new["metadata"].get("deletionTimestamp"):
        expected, state = TERMINATING, "not empty"
    else:
        expected, state = ACTIVE, "empty"
    phase = new["status"].get("phase", "")
    if phase == expected:
        return []
    detail = f"may only be '{expected}' if `deletionTimestamp` is {state}"
    return [invalid("status.Phase", JsonText(phase), detail)]


def _validate_finalize(new: Object, _old: Object, _context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    for position, each in enumerate(new.get("spec", {}).get("finalizers") or ()):
        _check_finalizer(errors, index("spec.finalizers", position), each)
    return errors


def _check_finalizer(errors: Errors, path: str, name: str) -> None:
    add_invalid(errors, path, name, check_label_key(name))
    if "/" not in name and name not in _STANDARD_FINALIZERS:
        errors.append(
            invalid(
                path, name, "name is neither a standard finalizer name nor is it fully qualified"
            )
        )


def _selectable(obj: Object) -> dict[str, str]:
    return {"status.phase": obj["status"].get("phase", "")}


def _cells(obj: Object, now: float) -> list[Any]:
    metadata = obj["metadata"]
    return [
        metadata["name"],
        obj["status"].get("phase", ""),
        age(metadata.get("creationTimestamp"), now),
    ]


NAMESPACES: Final = with_status(
    Strategy(
        default=_default,
        prepare_create=_prepare_create,
        prepare_update=_prepare_update,
        validate=_validate,
        validate_update=_validate_update,
        check_name=name_is_dns_label,
        selectable=_selectable,
        deletion=Deletion(returns_object=True, allows_unread=False),
        cells=_cells,
        subresources={
            "finalize": Strategy(
                default=_default,
                prepare_update=keep_status,
                validate_update=_validate_finalize,
                reset_fields=(("status",),),
                cells=_cells,
            ),
        },
    ),
    prepare_update=keep_spec,
    validate_update=_validate_status,
)
