"""ControllerRevisions: previous states of StatefulSets and DaemonSets; their data is immutable."""

from typing import Final

from kvstack.apimachinery.objects.field_errors import FieldError, invalid, required
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import IMMUTABLE
from kvstack.apimachinery.objects.text.go_text import go_json
from kvstack.apiserver.kinds.rules import Errors, check_not_negative
from kvstack.apiserver.kinds.strategy import Context, Strategy
from kvstack.apiserver.kinds.workloads.cells import controller_revision_cells


def _validate(obj: Object, _context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    _check_revision(errors, obj)
    data = obj.get("data")
    if data is None:
        errors.append(required("data", "data is mandatory"))
    elif not isinstance(data, dict):
        errors.append(required("data", "data must be a valid JSON object"))
    return errors


def _validate_update(new: Object, old: Object, _context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    _check_revision(errors, new)
    data = new.get("data")
    # Upstream compares the bytes, so another order of members is a change.
    if go_json(data) != go_json(old.get("data")):
        errors.append(invalid("data", data, IMMUTABLE))
    return errors


def _check_revision(errors: Errors, obj: Object) -> None:
    check_not_negative(errors, "revision", obj.get("revision", 0))


CONTROLLER_REVISIONS: Final = Strategy(
    validate=_validate,
    validate_update=_validate_update,
    cells=controller_revision_cells,
)
