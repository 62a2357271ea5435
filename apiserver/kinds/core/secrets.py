"""Secrets: bytes by key; the type requires some keys."""

import base64
from collections.abc import Callable
from typing import Any, Final

from kvstack.apimachinery.objects.field_errors import FieldError, invalid, key, required, too_long
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import IMMUTABLE
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apimachinery.objects.text.json_syntax import JsonError
from kvstack.apimachinery.objects.text.json_text import parse, type_word
from kvstack.apimachinery.objects.times import age
from kvstack.apimachinery.well_known import (
    SERVICE_ACCOUNT_NAME_ANNOTATION,
    SERVICE_ACCOUNT_TOKEN_TYPE,
)
from kvstack.apiserver.kinds.core.key_pairs import key_pair_problem
from kvstack.apiserver.kinds.core.keyed_data import (
    DATA_BYTES_MAX,
    check_keys,
    check_sealed,
    decoded,
    decoded_length,
    fill_bytes,
)
from kvstack.apiserver.kinds.rules import Errors
from kvstack.apiserver.kinds.strategy import Context, Strategy

OPAQUE: Final = "Opaque"
TLS: Final = "kubernetes.io/tls"


def _default(obj: Object) -> None:
    obj.setdefault("type", OPAQUE)
    fill_bytes(obj.get("data"))
    texts: dict[str, str] | None = obj.pop("stringData", None)
    if texts:
        data = obj.get("data") or {}
        obj["data"] = data | {
            name: base64.b64encode(text.encode()).decode() for name, text in texts.items()
        }


def _prepare_update(new: Object, old: Object, _context: Context) -> None:
    if not new.get("type") and old.get("type"):
        new["type"] = old["type"]


def _validate(obj: Object, _context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    data: dict[str, str] = obj.get("data") or {}
    check_keys(errors, "data", data)
    if sum(map(decoded_length, data.values())) > DATA_BYTES_MAX:
        errors.append(too_long("data", DATA_BYTES_MAX))
    check_type = _BY_TYPE.get(obj.get("type", ""))
    if check_type is not None:
        check_type(obj, data, errors)
    return errors


def _validate_update(new: Object, old: Object, context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    if new.get("type", "") != old.get("type", ""):
        errors.append(invalid("type", JsonText(new.get("type", "")), IMMUTABLE))
    return errors + check_sealed(new, old, "data") + _validate(new, context)


def _warnings(obj: Object, _context: Context) -> list[str]:
    if obj.get("type") != TLS:
        return []
    data = obj.get("data") or {}
    problem = key_pair_problem(decoded(data.get("tls.crt", "")), decoded(data.get("tls.key", "")))
    return [problem] if problem else []


def _update_warnings(new: Object, _old: Object, context: Context) -> list[str]:
    return _warnings(new, context)


def _cells(obj: Object, now: float) -> list[Any]:
    metadata = obj["metadata"]
    return [
        metadata["name"],
        obj.get("type", ""),
        len(obj.get("data") or ()),
        age(metadata.get("creationTimestamp"), now),
    ]


def _selectable(obj: Object) -> dict[str, str]:
    return {"type": obj.get("type", "")}


_CheckType = Callable[[Object, dict[str, str], Errors], None]


def _needs_account(obj: Object, _data: dict[str, str], errors: Errors) -> None:
    if not (obj["metadata"].get("annotations") or {}).get(SERVICE_ACCOUNT_NAME_ANNOTATION):
        errors.append(required(key("metadata.annotations", SERVICE_ACCOUNT_NAME_ANNOTATION)))


def _needs_json(name: str) -> _CheckType:
    def check(_obj: Object, data: dict[str, str], errors: Errors) -> None:
        path = key("data", name)
        if name not in data:
            errors.append(required(path))
            return
        problem = _object_problem(decoded(data[name]))
        if problem:
            errors.append(invalid(path, "<secret contents redacted>", problem))

    return check


def _object_problem(data: bytes) -> str:
    """Return why the bytes are not a JSON object, empty if they are."""
    try:
        value = parse(data)
    except JsonError as error:
        return str(error)
    if value is None or isinstance(value, dict):
        return ""
    word = type_word(value)
    return f"json: cannot unmarshal {word} into Go value of type map[string]interface {{}}"


def _needs_keys(*names: str) -> _CheckType:
    def check(_obj: Object, data: dict[str, str], errors: Errors) -> None:
        errors.extend(required(key("data", name)) for name in names if name not in data)

    return check


def _needs_one_of(*names: str) -> _CheckType:
    def check(_obj: Object, data: dict[str, str], errors: Errors) -> None:
        if not any(name in data for name in names):
            errors.extend(required(key("data", name)) for name in names)

    return check


def _needs_content(name: str) -> _CheckType:
    def check(_obj: Object, data: dict[str, str], errors: Errors) -> None:
        if not data.get(name):
            errors.append(required(key("data", name)))

    return check


_BY_TYPE: Final[dict[str, _CheckType]] = {
    SERVICE_ACCOUNT_TOKEN_TYPE: _needs_account,
    "kubernetes.io/dockercfg": _needs_json(".dockercfg"),
    "kubernetes.io/dockerconfigjson": _needs_json(".dockerconfigjson"),
    "kubernetes.io/basic-auth": _needs_one_of("username", "password"),
    "kubernetes.io/ssh-auth": _needs_content("ssh-privatekey"),
    TLS: _needs_keys("tls.crt", "tls.key"),
}

SECRETS: Final = Strategy(
    default=_default,
    prepare_update=_prepare_update,
    validate=_validate,
    validate_update=_validate_update,
    warnings=_warnings,
    update_warnings=_update_warnings,
    selectable=_selectable,
    cells=_cells,
)
