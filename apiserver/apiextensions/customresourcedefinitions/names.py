"""The names of a definition: requested and accepted."""

from collections.abc import Iterable
from typing import Final

from kvstack.apimachinery.objects.field_errors import FieldError, child, index, invalid, required
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import check_dns1035_label
from kvstack.apiserver.kinds.rules import Errors

_MIXED: Final = "may have mixed case, but should otherwise match: "
_NEEDED: Final = ("plural", "singular", "kind", "listKind")


def missing_name_errors(names: Object, path: str) -> list[FieldError]:
    """Return the errors of missing names."""
    return [required(child(path, name)) for name in _NEEDED if not names.get(name)]


def name_errors(names: Object, path: str) -> list[FieldError]:
    """Return the errors in the form of names; they may be empty."""
    errors: Errors = []
    for name in ("plural", "singular"):
        _check(names.get(name, ""), child(path, name), errors)
    for name in ("kind", "listKind"):
        text = names.get(name, "")
        if text and (wrong := check_dns1035_label(text.lower())):
            errors.append(invalid(child(path, name), text, _MIXED + ",".join(wrong)))
    _check_all(names.get("shortNames") or (), child(path, "shortNames"), errors)
    kind, list_kind = names.get("kind"), names.get("listKind")
    if kind and kind == list_kind:
        detail = "kind and listKind may not be the same"
        errors.append(invalid(child(path, "listKind"), list_kind, detail))
    _check_all(names.get("categories") or (), child(path, "categories"), errors)
    return errors


def _check_all(texts: Iterable[str], path: str, errors: Errors) -> None:
    for position, text in enumerate(texts):
        wrong = check_dns1035_label(text)
        if wrong:
            errors.append(invalid(index(path, position), text, ",".join(wrong)))


def _check(text: str, path: str, errors: Errors) -> None:
    if text and (wrong := check_dns1035_label(text)):
        errors.append(invalid(path, text, ",".join(wrong)))
