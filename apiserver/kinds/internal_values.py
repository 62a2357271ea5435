"""Structs as errors print them: with the fields of upstream's internal types.

    internal_value({"type": "Localhost"}, "io.k8s.api.core.v1.SeccompProfile")
    → {"Type": "Localhost", "LocalhostProfile": None}

Those types have no names for JSON, so Go's names stand there, all of them, in their order. They
have the fields of the stored version but for a few that are never nil. Types of the metadata keep
their names for JSON, and metadata stand among the other fields.
"""

import json
from collections.abc import Mapping
from difflib import unified_diff
from functools import cache
from typing import Any, Final

from kvstack.apiserver.objects.go_text import escape_html
from kvstack.apiserver.schema.load import load
from kvstack.apiserver.schema.types import Field, Shape, Type

_META: Final = "io.k8s.apimachinery."
_ZEROS: Final = {
    Shape.STRING: "",
    Shape.INT32: 0,
    Shape.INT64: 0,
    Shape.FLOAT64: 0,
    Shape.BOOL: False,
    Shape.QUANTITY: "0",
    Shape.INT_OR_STRING: 0,
}
"""What Go prints for a value that was not given and that cannot be nil."""
_NEVER_NIL: Final = frozenset({
    ("io.k8s.api.apps.v1.ReplicaSetSpec", "replicas"),
    ("io.k8s.api.apps.v1.RollingUpdateDaemonSet", "maxUnavailable"),
    ("io.k8s.api.apps.v1.RollingUpdateDaemonSet", "maxSurge"),
    ("io.k8s.api.apps.v1.RollingUpdateDeployment", "maxUnavailable"),
    ("io.k8s.api.apps.v1.RollingUpdateDeployment", "maxSurge"),
    ("io.k8s.api.apps.v1.RollingUpdateStatefulSetStrategy", "partition"),
    ("io.k8s.api.apps.v1.StatefulSetSpec", "replicas"),
})  # fmt: skip
"""Fields that are pointers in the stored version alone."""
_CONTEXT_LINES: Final = 3


def internal_value(value: object, type_name: str) -> Any:  # noqa: ANN401 — of the type
    """Return a value of the type, or a list of them, as errors print it."""
    type_ = _types()[type_name]
    if isinstance(value, list):
        return [_converted(each, type_) for each in value]
    return _converted(value, type_)


def internal_diff(old: object, new: object, type_name: str) -> str:
    """Return a unified diff of two values of the type as errors print it, one member a line."""
    return value_diff(internal_value(old, type_name), internal_value(new, type_name))


def value_diff(old: object, new: object) -> str:
    """Return a unified diff of two values that are as errors print them already."""
    diff = unified_diff(_lines(old), _lines(new), n=_CONTEXT_LINES)
    return "".join(list(diff)[2:])


def go_struct_text(value: Mapping[str, Any], type_name: str) -> str:
    """Return a struct of plain values as Go's `%+v` prints it: `{Name:http HostPort:0 …}`."""
    members = internal_value(value, type_name).items()
    return "{" + " ".join(f"{name}:{member}" for name, member in members) + "}"


@cache
def _types() -> Mapping[str, Type]:
    return load().types


def _lines(value: object) -> list[str]:
    text = escape_html(json.dumps(value, indent=1, ensure_ascii=False))
    return [f"{line}\n" for line in text.split("\n")]


def _converted(value: Any, type_: Type) -> Any:  # noqa: ANN401 — of the type
    if value is None:
        return None
    if type_.shape is Shape.STRUCT:
        return value if type_.name.startswith(_META) else _struct(value, type_)
    element = type_.element
    if type_.shape is Shape.LIST and element is not None:
        return [_converted(each, element) for each in value]
    if type_.shape is Shape.MAP and element is not None:
        return {key: _converted(value[key], element) for key in sorted(value)}
    return value


def _struct(value: Mapping[str, Any], type_: Type) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for field in type_.fields.values():
        if field.name in {"apiVersion", "kind"} and "metadata" in type_.fields:
            continue
        if field.go_name == "ObjectMeta":
            members.update(value.get(field.name) or {})
        else:
            members[field.go_name] = _member(value.get(field.name), field, type_)
    return members


def _member(value: Any, field: Field, owner: Type) -> Any:  # noqa: ANN401 — of the field
    if value is not None:
        return _converted(value, field.type)
    if field.is_pointer and (owner.name, field.name) not in _NEVER_NIL:
        return None
    if field.type.shape is Shape.STRUCT:
        return _converted({}, field.type)
    return _ZEROS.get(field.type.shape)
