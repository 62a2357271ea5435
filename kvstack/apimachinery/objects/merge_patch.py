"""JSON merge patch (RFC 7386), as Kubernetes applies it.

    apply({"a": 1, "b": {"c": 2}}, {"a": None, "b": {"d": 3}})   → {"b": {"c": 2, "d": 3}}

Two things differ from the RFC: a patch that is not an object is refused, and nulls within a list
stay only if the list takes the place of an object, else members that are null are dropped from the
objects in it. Objects that the patch touches come out with their members sorted, all others as they
were.
"""

from typing import Any

from kvstack.apimachinery.objects.status import bad_request
from kvstack.apimachinery.objects.text.json_syntax import JsonError
from kvstack.apimachinery.objects.text.json_text import (
    Json,
    copied,
    has_repeated,
    parse_repeated,
    repeated_fields,
    sort_members,
    type_word,
)
from kvstack.apimachinery.objects.text.json_text import parse as parse_json


def parse(data: bytes, *, is_strict: bool = True) -> tuple[Json, list[str]]:
    """Return the patch of a text, and what strict reading finds; raises ApiError.

    is_strict: whether repeated members are reported; then a list is refused here, else it
    takes the place of the object.
    """
    try:
        patch = parse_json(data)
    except JsonError as error:
        text = f"error decoding patch: {error}" if is_strict else "Invalid JSON Patch"
        raise bad_request(text) from None
    if is_strict and not isinstance(patch, (dict, type(None))):
        raise bad_request(
            f"error decoding patch: json: cannot unmarshal {type_word(patch)} into Go value of type"
            " map[string]interface {}"
        )
    if not isinstance(patch, (dict, list)):
        raise bad_request("Invalid JSON Patch")
    is_repeated = is_strict and has_repeated(data, patch)
    return patch, repeated_fields(parse_repeated(data)) if is_repeated else []


def apply(document: dict[str, Any], patch: Json) -> Json:
    """Return the patched document; neither the document nor the patch is changed."""
    mine = copied(patch)
    if not isinstance(mine, dict):
        return _without_nulls(mine)
    result = copied(document)
    _merge(result, mine)
    return result


def _merge(document: dict[str, Any], patch: dict[str, Any]) -> None:
    for name, value in patch.items():
        current = document.get(name)
        if value is None:
            document.pop(name, None)
        elif isinstance(current, dict) and isinstance(value, dict):
            _merge(current, value)
        elif isinstance(current, dict):
            document[name] = value
        else:
            document[name] = _without_nulls(value)
    sort_members(document)


def _without_nulls(value: Json) -> Json:
    """Return a value of a patch without the members that are null; lists keep their items."""
    if isinstance(value, dict):
        return {
            name: _without_nulls(each) for name, each in sorted(value.items()) if each is not None
        }
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value
