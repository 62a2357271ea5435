"""Errors about fields of an object, with the texts and reasons of Kubernetes.

    invalid(child(child("spec"), "replicas"), -1, "must be greater than or equal to 0")
    → spec.replicas: Invalid value: -1: must be greater than or equal to 0

A path is a plain string, built by `child`, `index` and `key`; the root is "", and an error that has
no path at all is at `NO_PATH`. A validator returns or extends a list of `FieldError`; nothing here
raises. `summary` joins a list as the message of a 422 does, and `causes` makes its
`details.causes`.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from typing_extensions import override

from kvstack.apimachinery.objects.text.go_text import go_value


class Omitted:
    """Marks "print no value" in an error of a type that usually prints one."""

    __slots__ = ()


OMITTED: Final = Omitted()

NO_PATH: Final = "<nil>"

REQUIRED: Final = "FieldValueRequired"
INVALID: Final = "FieldValueInvalid"
TYPE_INVALID: Final = "FieldValueTypeInvalid"
NOT_SUPPORTED: Final = "FieldValueNotSupported"
DUPLICATE: Final = "FieldValueDuplicate"
NOT_FOUND: Final = "FieldValueNotFound"
FORBIDDEN: Final = "FieldValueForbidden"
TOO_LONG: Final = "FieldValueTooLong"
TOO_SHORT: Final = "FieldValueTooShort"
TOO_MANY: Final = "FieldValueTooMany"
TOO_FEW: Final = "FieldValueTooFew"
INTERNAL: Final = "InternalError"

_WORDS: Final = {
    REQUIRED: "Required value",
    INVALID: "Invalid value",
    TYPE_INVALID: "Invalid value",
    NOT_SUPPORTED: "Unsupported value",
    DUPLICATE: "Duplicate value",
    NOT_FOUND: "Not found",
    FORBIDDEN: "Forbidden",
    TOO_LONG: "Too long",
    TOO_SHORT: "Too short",
    TOO_MANY: "Too many",
    TOO_FEW: "Too few",
    INTERNAL: "Internal error",
}


class FieldError(NamedTuple):
    """One error about one field."""

    reason: str
    """The type, one of the constants above; the `reason` of a cause."""
    field: str
    """The path, such as `spec.containers[0].name`."""
    body: str
    """The text without the path: `Invalid value: -1: must be …`."""
    covered: bool = False
    """Whether declarative validation makes the same check and may replace it."""

    @override
    def __str__(self) -> str:
        """Return the text with its path, as in the message of a 422."""
        return f"{self.field}: {self.body}"


def child(path: str, *names: str) -> str:
    """Return the path of a field below `path`."""
    tail = ".".join(names)
    return f"{path}.{tail}" if path else tail


def index(path: str, position: int) -> str:
    """Return the path of an item of the list at `path`."""
    return f"{path}[{position}]"


def key(path: str, name: str) -> str:
    """Return the path of an entry of the map at `path`."""
    return f"{path}[{name}]"


def required(path: str, detail: str = "") -> FieldError:
    """Return the error for a missing required value."""
    return FieldError(REQUIRED, path, _body(REQUIRED, OMITTED, detail))


def invalid(path: str, value: object, detail: str) -> FieldError:
    """Return the error of a malformed value; `value` is printed by `go_value`."""
    return FieldError(INVALID, path, _body(INVALID, value, detail))


def type_invalid(path: str, value: object, detail: str) -> FieldError:
    """Return the error of a value of the wrong type."""
    return FieldError(TYPE_INVALID, path, _body(TYPE_INVALID, value, detail))


def not_supported(path: str, value: object, supported: Iterable[str]) -> FieldError:
    """Return the error for a value that is not among the supported ones, in their order."""
    names = ", ".join(go_value(each) for each in supported)
    return FieldError(
        NOT_SUPPORTED, path, _body(NOT_SUPPORTED, value, names and f"supported values: {names}")
    )


def duplicate(path: str, value: object) -> FieldError:
    """Return the error for a duplicate value in a list."""
    return FieldError(DUPLICATE, path, _body(DUPLICATE, value, ""))


def not_found(path: str, value: object) -> FieldError:
    """Return the error of a value that names something that is not there."""
    return FieldError(NOT_FOUND, path, _body(NOT_FOUND, value, ""))


def forbidden(path: str, detail: str) -> FieldError:
    """Return the error of a field that may not be set (or not changed) here."""
    return FieldError(FORBIDDEN, path, _body(FORBIDDEN, OMITTED, detail))


def too_long(path: str, max_bytes: int) -> FieldError:
    """Return the error of a text of more than `max_bytes` bytes; negative omits the number."""
    return FieldError(TOO_LONG, path, _body(TOO_LONG, OMITTED, _limit(max_bytes, "byte")))


def too_long_characters(path: str, max_characters: int) -> FieldError:
    """Return the error of a text of more than `max_characters` characters."""
    return FieldError(TOO_LONG, path, _body(TOO_LONG, OMITTED, _limit(max_characters, "character")))


def too_many(path: str, actual: int, maximum: int) -> FieldError:
    """Return the error of a list or map with `actual` items where `maximum` are allowed."""
    detail = (
        f"must have at most {_count(maximum, 'item')}" if maximum >= 0 else "has too many items"
    )
    value: object = actual if actual >= 0 else OMITTED
    return FieldError(TOO_MANY, path, _body(TOO_MANY, value, detail))


def internal(path: str, detail: str) -> FieldError:
    """Return the error of a check that itself failed."""
    return FieldError(INTERNAL, path, _body(INTERNAL, OMITTED, detail))


def summary(errors: Sequence[FieldError]) -> str:
    """Return the errors as one text: one as it is, several in brackets, equal texts once."""
    texts = list(dict.fromkeys(str(each) for each in errors))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def causes(errors: Iterable[FieldError]) -> list[dict[str, str]]:
    """Return `details.causes` of the errors, all of them, in order."""
    return [
        {"reason": each.reason, "message": each.body, "field": each.field}
        if each.field
        else {"reason": each.reason, "message": each.body}
        for each in errors
    ]


def _body(reason: str, value: object, detail: str) -> str:
    text = _WORDS[reason]
    if value is not OMITTED:
        text = f"{text}: {go_value(value)}"
    return f"{text}: {detail}" if detail else text


def _limit(maximum: int, unit: str) -> str:
    return f"may not be more than {_count(maximum, unit)}" if maximum >= 0 else "value is too long"


def _count(number: int, unit: str) -> str:
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"
