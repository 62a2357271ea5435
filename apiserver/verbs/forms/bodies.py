"""Bodies of requests as objects: JSON, YAML or protobuf, of the kind of an endpoint.

    read_object(call, WARN)   → Body(obj, …)     decoded by its type, without defaults

Kind and version default to the endpoint's; custom resources must name both. Unknown and duplicate
fields are warnings or errors, as the request chooses; protobuf has neither. Texts are upstream's.
"""

from collections.abc import Callable
from functools import cache
from typing import Final, NamedTuple

import orjson

from kvstack.apimachinery.objects.groups import parse_group_version
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError, bad_request
from kvstack.apimachinery.objects.text import json_text, yaml_text
from kvstack.apimachinery.objects.text.json_syntax import JsonError
from kvstack.apimachinery.objects.text.json_text import HugeNumberError, Json
from kvstack.apimachinery.objects.text.value_limit import check_json
from kvstack.apimachinery.objects.text.yaml_scalars import YamlError
from kvstack.apimachinery.schema.decode import (
    DecodedWithEmpty,
    DecodeError,
    decode,
    decode_as_given,
)
from kvstack.apimachinery.schema.load import load
from kvstack.apimachinery.schema.protobuf.codec import from_protobuf
from kvstack.apimachinery.schema.protobuf.envelope import MAGIC, unwrap
from kvstack.apimachinery.schema.protobuf.wire import ProtobufError
from kvstack.apimachinery.schema.repeated import resolve
from kvstack.apimachinery.schema.resource import Kind
from kvstack.apimachinery.schema.table import Table
from kvstack.apimachinery.schema.types import Type
from kvstack.apiserver.verbs.options import IGNORE, STRICT

JSON: Final = "application/json"
YAML: Final = "application/yaml"
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
MEDIA_TYPES: Final = (JSON, YAML, PROTOBUF)

_SHOWN_BYTES: Final = 30
_SCHEME: Final = "pkg/runtime/scheme.go:111"
TYPE_META: Final = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\"";'
    ' Kind string "json:\\"kind,omitempty\\"" }'
)
_YAML_PREFIX: Final = "yaml: unmarshal errors:\n"


class Body(NamedTuple):
    """A decoded body."""

    obj: Object
    kind: Kind
    """The kind that the body names, or the endpoint's where it names none."""
    findings: list[str]
    """Findings of strict decoding."""
    has_empty: bool = False
    """Whether it has empty lists or maps that are not stored."""


class _Plain(NamedTuple):
    """A JSON value, and the text or findings that name repeated members."""

    value: Json
    text: bytes | None
    repeated: str
    huge: str = ""
    """The error of a number that no float holds; empty: there is none."""


class UnrecognizedError(Exception):
    """The body does not say its kind."""


def read_object(
    body: bytes, media_type: str, kind: Kind, type_: Type, *, is_custom: bool = False
) -> Body:
    """Return the object of a body for an endpoint of a kind; raises ApiError.

    is_custom: whether it is a custom resource; such an object may name another kind of the group
    and version, which is an error of the object and not of the body.
    """
    if is_custom:
        return _read_custom(body, media_type, kind, type_)
    try:
        if media_type == PROTOBUF:
            return _read_protobuf(body, kind, type_)
        plain = _parse(body, media_type)
        value = {} if plain.value is None else plain.value
        actual = declared_kind(value, kind)
    except (UnrecognizedError, ProtobufError) as error:
        raise bad_request(
            f"the object provided is unrecognized (must be of type {kind.kind}): {error}"
            f" ({_beginning(body)})"
        ) from None
    found = _type_of(actual, kind, type_)
    try:
        decoded = _decoded(plain._replace(value=value), found)
    except (DecodeError, RecursionError) as error:
        raise cannot_be_handled(actual, kind, str(error)) from None
    _check_kind(actual, kind, type_)
    return Body(decoded.obj, actual, decoded.unknown, decoded.has_empty)


def _read_custom(body: bytes, media_type: str, kind: Kind, type_: Type) -> Body:
    try:
        plain = _parse(body, media_type)
        value = {} if plain.value is None else plain.value
        claimed_kind = given_kind(value, lambda: body.decode("utf-8", "replace"))
    except UnrecognizedError as error:
        raise bad_request(
            f"the object provided is unrecognized (must be of type {kind.kind}): {error}"
            f" ({_beginning(body)})"
        ) from None
    try:
        decoded = _decoded(plain._replace(value=value), type_, is_custom=True)
    except (DecodeError, RecursionError) as error:
        raise cannot_be_handled(claimed_kind, kind, str(error)) from None
    if (claimed_kind.group, claimed_kind.version) != (kind.group, kind.version):
        raise _other_version(claimed_kind, kind)
    findings = decoded.unknown
    if claimed_kind.kind != kind.kind:  # its fields are unknown
        findings = [each for each in findings if not each.startswith(_UNKNOWN)]
    return Body(decoded.obj, claimed_kind, findings, decoded.has_empty)


_UNKNOWN: Final = "unknown field "


def given_kind(value: Json, text: Callable[[], str]) -> Kind:
    """Return the kind that a custom resource names; raises UnrecognizedError if it names none.

    text: returns the body as it was written. The version is empty if the object names none.
    """
    given = declared_kind(value, _NO_KIND)
    if not given.kind:
        raise UnrecognizedError(f"Object 'Kind' is missing in '{text()}'")
    return given


_NO_KIND: Final = Kind("", "", "")


def read_options(body: bytes, media_type: str, kind: Kind) -> Object:
    """Return the DeleteOptions of a body, of any group and version; raises ApiError."""
    options_kind = Kind(kind.group, kind.version, "DeleteOptions")
    try:
        if media_type == PROTOBUF:
            envelope = unwrap(body)
            group, version = parse_group_version(envelope.api_version)
            actual = _completed(group, version, envelope.kind, options_kind)
            return from_protobuf(envelope.content, _options_type(actual))
        plain = _parse(body, media_type)
        value = {} if plain.value is None else plain.value
        type_ = _options_type(declared_kind(value, options_kind))
        return _decoded(plain, type_).obj if plain.huge else decode(value, type_).obj
    except (UnrecognizedError, ProtobufError, DecodeError, ValueError, RecursionError) as error:
        raise bad_request(str(error)) from None


def _options_type(actual: Kind) -> Type:
    options_type = _table().type_of(actual) if actual.kind == "DeleteOptions" else None
    if options_type is None:
        raise UnrecognizedError(
            f'no kind "{actual.kind}" is registered for version "{actual.api_version}" in scheme'
            f' "{_SCHEME}"'
        )
    return options_type


def report_findings(body: Body, kind: Kind, validation: str, warnings: list[str]) -> None:
    """Refuse or warn of findings of strict decoding, as the request chooses; raises ApiError."""
    if not body.findings or validation == IGNORE:
        return
    if validation == STRICT:
        text = f"strict decoding error: {', '.join(body.findings)}"
        raise cannot_be_handled(body.kind, kind, text)
    warnings += as_warnings(body.findings)


def as_warnings(findings: list[str]) -> list[str]:
    """Return findings of strict decoding as warnings: those about YAML line by line."""
    texts: list[str] = []
    for each in findings:
        if each.startswith(_YAML_PREFIX):
            texts += [line.strip() for line in each.removeprefix(_YAML_PREFIX).splitlines()]
        else:
            texts.append(each)
    return texts


def cannot_be_handled(actual: Kind, kind: Kind, text: str) -> ApiError:
    """Return the 400 of a body whose kind the endpoint does not take."""
    return bad_request(
        f'{actual.kind} in version "{actual.version}" cannot be handled as a {kind.kind}: {text}'
    )


def _parse(body: bytes, media_type: str) -> _Plain:
    if media_type == YAML:
        try:
            parsed = yaml_text.parse(body)
        except YamlError as error:
            raise UnrecognizedError(str(error)) from None
        return _Plain(parsed.value, None, parsed.repeated)
    try:
        return _Plain(json_text.parse(body), body, "")
    except HugeNumberError as error:
        return _Plain(json_text.parse_with_huge(body), None, "", str(error))
    except JsonError as error:
        raise UnrecognizedError(_no_kind(str(error))) from None


def _no_kind(text: str) -> str:
    return f"couldn't get version/kind; json parse error: {text}"


def declared_kind(value: Json, kind: Kind) -> Kind:
    """Return the kind that a value names, completed by that of the endpoint."""
    if not isinstance(value, dict):
        word = _WORDS.get(json_text.type_word(value), json_text.type_word(value))
        raise UnrecognizedError(
            _no_kind(f"json: cannot unmarshal {word} into Go value of type {TYPE_META}")
        )
    for name in ("apiVersion", "kind"):
        given = value.get(name)
        if given is not None and not isinstance(given, str):
            word = json_text.type_word(given)
            text = f"json: cannot unmarshal {word} into Go struct field .{name} of type string"
            raise UnrecognizedError(_no_kind(text))
    try:
        group, version = parse_group_version(value.get("apiVersion") or "")
    except ValueError as error:
        raise UnrecognizedError(str(error)) from None
    return _completed(group, version, value.get("kind") or "", kind)


_WORDS: Final = {"boolean": "bool"}


def _completed(group: str, version: str, kind_name: str, kind: Kind) -> Kind:
    if not version and group in ("", kind.group):
        group, version = kind.group, kind.version
    found = Kind(group, version, kind_name or kind.kind)
    return _SAME.get(found, found)


_SAME: Final = {Kind("policy", "v1beta1", "Eviction"): Kind("policy", "v1", "Eviction")}
"""Kinds of removed versions, and the kinds that replaced them."""


def _type_of(actual: Kind, kind: Kind, type_: Type) -> Type:
    """Return the type of a body's kind; raises ApiError."""
    try:
        return _registered(actual, kind, type_)
    except UnrecognizedError as error:
        raise cannot_be_handled(actual, kind, str(error)) from None


def _registered(actual: Kind, kind: Kind, type_: Type) -> Type:
    if actual == kind:
        return type_
    registered_type = _table().type_of(actual)
    if registered_type is None:
        raise UnrecognizedError(
            f'no kind "{actual.kind}" is registered for version "{actual.api_version}" in scheme'
            f' "{_SCHEME}"'
        )
    return registered_type


def check_type(actual: Kind, kind: Kind, type_: Type) -> None:
    """Check that the endpoint takes objects of a kind; raises UnrecognizedError."""
    found = _registered(actual, kind, type_)
    if actual.kind != kind.kind or not _is_related(actual.group, kind.group):
        raise UnrecognizedError(
            f"converting ({found.go_kind}) to ({_internal(kind, type_)}): unknown conversion"
        )


@cache
def _table() -> Table:
    return load()


def _decoded(plain: _Plain, type_: Type, *, is_custom: bool = False) -> DecodedWithEmpty:
    """Return the object, and findings of strict decoding; raises DecodeError."""
    value = plain.value
    if plain.huge:  # which fails where it is decoded: everywhere, if there is no type
        found = None if is_custom else decode_as_given(value, type_)
        if found is None or json_text.has_huge(found.obj):
            raise DecodeError(plain.huge)
        return found
    if plain.text is not None and json_text.has_repeated(plain.text, value):
        value, findings = resolve(json_text.parse_repeated(plain.text), type_)
        return decode_as_given(value, type_)._replace(unknown=findings)
    decoded = decode_as_given(value, type_)
    if not plain.repeated:
        return decoded
    return decoded._replace(unknown=[plain.repeated, *decoded.unknown])


def _check_kind(actual: Kind, kind: Kind, type_: Type) -> None:
    """Refuse an object of another kind, or of another version of the kind."""
    if actual == kind:
        return
    try:
        check_type(actual, kind, type_)
    except UnrecognizedError as error:
        raise cannot_be_handled(actual, kind, str(error)) from None
    raise _other_version(actual, kind)


def _other_version(actual: Kind, kind: Kind) -> ApiError:
    return bad_request(
        f"the API version in the data ({actual.api_version}) does not match the expected API"
        f" version ({kind.api_version})"
    )


def _is_related(group: str, other: str) -> bool:
    """Return whether kinds of the same name in two groups are the same kind."""
    return group == other or {group, other} == {"", "events.k8s.io"}


def _internal(kind: Kind, type_: Type) -> str:
    """Return the name of a kind's internal type."""
    group = kind.group.partition(".")[0] or "core"
    return f"{'core' if group == 'events' else group}.{type_.go_kind.rpartition('.')[2]}"


def _read_protobuf(body: bytes, kind: Kind, type_: Type) -> Body:
    if not body or body == MAGIC:
        raise UnrecognizedError("empty body" if body else "empty data")
    envelope = unwrap(body)
    try:
        group, version = parse_group_version(envelope.api_version)
    except ValueError as error:
        raise UnrecognizedError(str(error)) from None
    actual = _completed(group, version, envelope.kind, kind)
    found = _type_of(actual, kind, type_)
    try:
        obj = from_protobuf(envelope.content, found)
    except ProtobufError as error:
        raise cannot_be_handled(actual, kind, str(error)) from None
    check_json(orjson.dumps(obj))
    _check_kind(actual, kind, type_)
    obj = {"kind": actual.kind, "apiVersion": actual.api_version, **obj}
    return Body(obj, actual, [])


def _beginning(body: bytes) -> str:
    """Return the beginning of a body, for errors."""
    if not body:
        return "<empty>"
    start = body[:_SHOWN_BYTES]
    text = start.decode("utf-8", "replace") if body[:1] == b"{" else start.hex()
    return f"{text} ..." if len(body) > _SHOWN_BYTES else text
