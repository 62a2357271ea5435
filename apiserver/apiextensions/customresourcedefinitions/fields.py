"""Field paths in a definition: columns of Tables, the Scale, selectable fields."""

from collections.abc import Iterable, Sequence
from typing import Final

from kvstack.apimachinery.objects.field_errors import (
    child,
    duplicate,
    index,
    invalid,
    required,
    too_many,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apiserver.apiextensions.customresourcedefinitions.ratchet import SELECTABLE_MAX
from kvstack.apiserver.apiextensions.customresourcedefinitions.schemas import (
    PathError,
    Schema,
    find_field,
)
from kvstack.apiserver.kinds.rules import Errors

COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
COLUMN_FORMATS: Final = (
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
)

_SELECTABLE: Final = frozenset(("string", "boolean", "integer"))
_PATHS_OF_SCALE: Final = (
    ("specReplicasPath", (".spec.",), "under .spec"),
    ("statusReplicasPath", (".status.",), "under .status"),
    ("labelSelectorPath", (".spec.", ".status."), "under either .spec or .status"),
)


def check_columns(columns: Iterable[Object], base: str, errors: Errors) -> None:
    """Check the additional columns of Tables."""
    for position, column in enumerate(columns):
        path = index(base, position)
        if not column.get("name"):
            errors.append(required(child(path, "name")))
        type_name, where = column.get("type", ""), child(path, "type")
        detail = f"must be one of {','.join(COLUMN_TYPES)}"
        if not type_name:
            errors.append(required(where, detail))
        elif type_name not in COLUMN_TYPES:
            errors.append(invalid(where, type_name, detail))
        form = column.get("format", "")
        if form and form not in COLUMN_FORMATS:
            detail = f"must be one of {','.join(COLUMN_FORMATS)}"
            errors.append(invalid(child(path, "format"), form, detail))
        _check_path(column.get("jsonPath", ""), child(path, "JSONPath"), errors)


def _check_path(text: str, path: str, errors: Errors) -> bool:
    """Return whether a path is valid; add an error if not."""
    if not text:
        errors.append(required(path))
    elif not text.startswith("."):
        errors.append(invalid(path, text, "must be a simple json path starting with ."))
    return text.startswith(".")


def check_subresources(subresources: Object | None, base: str, errors: Errors) -> None:
    """Check the paths of the Scale."""
    scale = (subresources or {}).get("scale")
    if scale is None:
        return
    path = child(base, "scale")
    for name, wanted, detail in _PATHS_OF_SCALE:
        text, where = scale.get(name) or "", child(path, name)
        is_pointer = name == "labelSelectorPath"
        if is_pointer and not text:
            continue
        if _check_path(text, where, errors) and not text.startswith(wanted):
            value = JsonText(text) if is_pointer else text
            errors.append(invalid(where, value, f"should be a json path {detail}"))


def check_selectable_fields(
    fields: Sequence[Object], schema: Schema, base: str, errors: Errors, *, is_limited: bool
) -> None:
    """Check the selectable fields."""
    seen: set[str] = set()
    for position, field in enumerate(fields):
        path = child(index(base, position), "jsonPath")
        text = field.get("jsonPath", "")
        if not text:
            errors.append(required(path))
            continue
        try:
            target = find_field(text, schema, allows_brackets=False)
        except PathError as error:
            errors.append(invalid(path, text, f"is an invalid path: {error}"))
            continue
        if target.root == "metadata":
            errors.append(invalid(path, text, "must not point to fields in metadata"))
        if target.schema.get("type", "") not in _SELECTABLE:
            detail = (
                "must point to a field of type string, boolean or integer. Enum string fields and"
                " strings with formats are allowed."
            )
            errors.append(invalid(path, text, detail))
        if target.path in seen:
            errors.append(duplicate(path, text))
        seen.add(target.path)
    if is_limited and len(seen) > SELECTABLE_MAX:
        errors.append(too_many(base, len(seen), SELECTABLE_MAX))
