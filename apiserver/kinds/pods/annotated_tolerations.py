"""The annotation for tolerations, as JSON.

    scheduler.alpha.kubernetes.io/tolerations: [{"key": "a", "operator": "Exists"}]

It preceded the field and has no effect, but is validated: it must be a list of tolerations, with
Go's errors if it is not, and each toleration must be valid.
"""

from typing import Final, NamedTuple

from kvstack.apimachinery.objects.field_errors import child, invalid
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.json_syntax import JsonError
from kvstack.apimachinery.objects.text.json_text import parse, type_word
from kvstack.apiserver.kinds.pods.scheduling import check_toleration_list
from kvstack.apiserver.kinds.pods.tolerances import Tolerances
from kvstack.apiserver.kinds.rules import Errors

TOLERATIONS: Final = "scheduler.alpha.kubernetes.io/tolerations"

_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1


class _Field(NamedTuple):
    """A field of a toleration, and its name in Go's errors."""

    name: str
    go_name: str
    go_type: str


_FIELDS: Final = {
    each.go_name.lower(): each
    for each in (
        _Field("key", "Key", "string"),
        _Field("operator", "Operator", "core.TolerationOperator"),
        _Field("value", "Value", "string"),
        _Field("effect", "Effect", "core.TaintEffect"),
        _Field("tolerationSeconds", "TolerationSeconds", "int64"),
    )
}


def check_tolerations(errors: Errors, text: str, path: str, tolerances: Tolerances) -> None:
    """Check the value of the annotation; `path`: of the annotations."""
    try:
        tolerations = parse(text.encode())
    except JsonError as error:
        errors.append(invalid(path, TOLERATIONS, str(error)))
        return
    wrong = _type_mismatch(tolerations)
    if wrong:
        errors.append(invalid(path, TOLERATIONS, f"json: cannot unmarshal {wrong}"))
        return
    listed = [_with_own_names(each or {}) for each in tolerations or ()]
    allows = tolerances.comparing_tolerations
    check_toleration_list(errors, listed, child(path, TOLERATIONS), allows_comparing=allows)


def _type_mismatch(tolerations: object) -> str:
    """Return the first value of a wrong type, in Go's words; empty if there is none."""
    if tolerations is None:
        return ""
    if not isinstance(tolerations, list):
        return f"{type_word(tolerations)} into Go value of type []core.Toleration"
    for each in tolerations:
        if isinstance(each, dict):
            wrong = next(filter(None, map(_field_mismatch, each, each.values())), "")
            if wrong:
                return wrong
        elif each is not None:
            return f"{type_word(each)} into Go value of type core.Toleration"
    return ""


def _field_mismatch(name: str, value: object) -> str:
    field = _FIELDS.get(name.lower())
    if field is None or value is None:
        return ""
    is_number = type(value) in {int, float}
    if field.go_type == "int64":
        if isinstance(value, int) and is_number and _INT64_MIN <= value <= _INT64_MAX:
            return ""
    elif isinstance(value, str):
        return ""
    word = type_word(value)
    shown = f"{word} {value}" if is_number and field.go_type == "int64" else word
    return f"{shown} into Go struct field Toleration.{field.go_name} of type {field.go_type}"


def _with_own_names(toleration: Object) -> Object:
    # Go matches fields without JSON names case-insensitively.
    fields = ((_FIELDS.get(name.lower()), name) for name in toleration)
    return {
        field.name: toleration[name]
        for field, name in fields
        if field is not None and toleration[name] is not None
    }
