"""Structs as errors print them: with the field names of upstream's internal types.

    internal_value({"type": "Localhost"}, "io.k8s.api.core.v1.SeccompProfile")
    → {"Type": "Localhost", "LocalhostProfile": None}

Types are named as in the storage version; `schema.internal` maps to the internal ones.
"""

import json
from collections.abc import Mapping
from difflib import unified_diff
from functools import cache
from typing import Any, Final

from kvstack.apimachinery.objects.text.go_text import escape_html
from kvstack.apimachinery.schema.internal import internal
from kvstack.apimachinery.schema.load import built_in_types
from kvstack.apimachinery.schema.stored_form import without_empty
from kvstack.apimachinery.schema.types import Type

_MACHINERY: Final = "io.k8s.apimachinery."
"""Types of apimachinery have no internal version and print unchanged."""
_CONTEXT_LINES: Final = 3


def internal_value(value: Any, type_name: str) -> Any:  # noqa: ANN401 — of the type
    """Return a value of the type, or a list of them, as errors print it."""
    if value is None:
        return value
    if type_name.startswith(_MACHINERY):
        return without_empty(value, _types()[type_name])
    type_, name = _types()[type_name], _internal_name(type_name)
    if isinstance(value, list):
        return [internal(each, type_, name) for each in value]
    return internal(value, type_, name)


def internal_diff(old: object, new: object, type_name: str) -> str:
    """Return a unified diff of two values of the type as errors print it, one member per line."""
    return value_diff(internal_value(old, type_name), internal_value(new, type_name))


def value_diff(old: object, new: object) -> str:
    """Return a unified diff of two values in internal form."""
    diff = unified_diff(_lines(old), _lines(new), n=_CONTEXT_LINES)
    return "".join(list(diff)[2:])


def go_struct_text(value: Mapping[str, Any], type_name: str) -> str:
    """Return a struct of plain values as Go's `%+v` prints it: `{Name:http HostPort:0 …}`."""
    members = internal_value(value, type_name).items()
    return "{" + " ".join(f"{name}:{member}" for name, member in members) + "}"


@cache
def _types() -> Mapping[str, Type]:
    return built_in_types()


@cache
def _internal_name(type_name: str) -> str:
    *_, group, _, kind = type_name.split(".")
    return f"{group}.{kind}"


def _lines(value: object) -> list[str]:
    text = escape_html(json.dumps(value, indent=1, ensure_ascii=False))
    return [f"{line}\n" for line in text.split("\n")]
