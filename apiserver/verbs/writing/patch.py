"""Patch: JSON patch, merge patch, strategic merge patch and server-side apply.

    body → stored object in the endpoint's version → patched → decoded, defaulted → as an update

The patch is applied again each time the stored object has changed meanwhile, unless it names a
resourceVersion. Only an apply creates a missing object.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Final, NamedTuple

import orjson

from kvstack.apimachinery.objects import json_patch, merge_patch, metadata, status, unchanged
from kvstack.apimachinery.objects.field_errors import invalid
from kvstack.apimachinery.objects.groups import GroupKind
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.json_patch import JsonPatchError
from kvstack.apimachinery.objects.status import ApiError, bad_request
from kvstack.apimachinery.objects.text import json_text, yaml_text
from kvstack.apimachinery.objects.text.go_text import go_plain
from kvstack.apimachinery.objects.text.json_syntax import JsonError
from kvstack.apimachinery.objects.text.json_text import Json
from kvstack.apimachinery.objects.text.yaml_scalars import YamlError
from kvstack.apimachinery.objects.text.yaml_text import Parsed
from kvstack.apimachinery.schema import strategic_merge
from kvstack.apimachinery.schema.decode import (
    DecodedWithEmpty,
    DecodeError,
    decode,
    decode_as_given,
)
from kvstack.apimachinery.schema.resource import (
    APPLY_PATCH,
    JSON_PATCH,
    MERGE_PATCH,
    Kind,
)
from kvstack.apimachinery.schema.types import Type
from kvstack.apiserver.apply import apply as server_side
from kvstack.apiserver.apply.managed_fields import name_from_user_agent
from kvstack.apiserver.registry.keys import object_key
from kvstack.apiserver.verbs import options
from kvstack.apiserver.verbs.call import Call
from kvstack.apiserver.verbs.forms import bodies, from_plain
from kvstack.apiserver.verbs.options import IGNORE, STRICT, WriteOptions
from kvstack.apiserver.verbs.results import Computed, Stored
from kvstack.apiserver.verbs.subresources import scale
from kvstack.apiserver.verbs.writing import update_loop
from kvstack.apiserver.verbs.writing.ownership import own_changed

_NO_KIND: Final = GroupKind("", "")
_PATCHED_TOO_DEEP: Final = "the patched object is nested too deeply"


class Patched(NamedTuple):
    """The plain result of a patch, not decoded yet."""

    obj: Json
    shown: Callable[[], str]
    """Returns what errors quote: for JSON the patched object, members in Go's order."""
    findings: list[str]
    """Findings of strict decoding of the patch itself."""
    is_plain: bool = False
    """Whether the typed object is converted from it without JSON between."""


Apply = Callable[[Object], Patched]


async def patch(call: Call) -> Stored | Computed:
    """Apply the patch of the body; raises ApiError."""
    is_apply = call.media_type == APPLY_PATCH
    read = _Yaml(call.body)
    if call.audit is not None and call.audit.wants_request:
        call.audit.request_object = await call.apart(read.recorded)
    write_options = options.write_options(options.PATCH, call.query, is_apply=is_apply)
    name = call.info.name
    if is_apply:
        changed = await call.apart(_applied, call, write_options, read)
    else:
        changed = await call.apart(_patched, call, write_options)
    change = update_loop.Update(
        name,
        object_key(call.namespace, name),
        changed,
        write_options,
        creates=is_apply and not call.endpoint.subresource,
    )
    if call.endpoint.subresource == "scale":
        return await scale.change(call, change)
    return await update_loop.run(call, change)


class _Yaml:
    """A YAML body, parsed once on first use."""

    def __init__(self, body: bytes) -> None:
        self._body: Final = body

    @cached_property
    def parsed(self) -> Parsed:
        """The value, and the findings about duplicate keys; raises YamlError."""
        return yaml_text.parse(self._body)

    def recorded(self) -> Json:
        """Return the value for the audit; an unreadable one is left out."""
        try:
            return self.parsed.value
        except YamlError:
            return None


def patch_function(call: Call, write_options: WriteOptions) -> Apply:
    """Return a function that applies the patch of the body to a plain object; raises ApiError.

    It may be called several times: neither the object nor the patch is changed.
    """
    try:
        value = json_text.parse(call.body)
    except JsonError:
        raise bad_request("invalid JSON patch") from None
    is_strict = write_options.validation != IGNORE
    if call.media_type == JSON_PATCH:
        operations, findings = json_patch.parse(call.body, is_strict=is_strict)
        return _repeatable(
            operations, lambda live: _by_json_patch(call, live, operations, findings)
        )
    if call.media_type == MERGE_PATCH:
        merged, findings = merge_patch.parse(call.body, is_strict=is_strict)
        return _repeatable(merged, lambda live: _by_merge_patch(call, live, merged, findings))
    if value is not None and not isinstance(value, dict):
        word = json_text.type_word(value)
        raise bad_request(
            f"json: cannot unmarshal {word} into Go value of type map[string]interface {{}}"
        )
    repeated: list[str] = []
    if is_strict and json_text.has_repeated(call.body, value):
        repeated = json_text.repeated_fields(json_text.parse_repeated(call.body))
    return _repeatable(value, lambda live: _by_strategic_merge(call, live, value or {}, repeated))


def _repeatable(patch_: object, apply: Apply) -> Apply:
    """Return a function that applies a patch; tests verify that it does not change the patch."""
    if not unchanged.IS_CHECKED:
        return apply
    check = unchanged.watched(patch_, "a patch that may be applied again")

    def checked(live: Object) -> Patched:
        check()
        return unchanged.checking(apply, 0)(live)

    return checked


def _by_json_patch(
    call: Call, live: Object, operations: json_patch.Patch, findings: list[str]
) -> Patched:
    try:
        obj = json_patch.apply(live, operations)
    except JsonPatchError:
        raise status.generic(422) from None
    return Patched(
        obj, lambda: _text(json_patch.apply(_in_order(call, live), operations)), findings
    )


def _by_merge_patch(call: Call, live: Object, patch_: Json, findings: list[str]) -> Patched:
    obj = merge_patch.apply(live, patch_)
    return Patched(obj, lambda: _text(merge_patch.apply(_in_order(call, live), patch_)), findings)


def _in_order(call: Call, live: Object) -> Object:
    """Return a stored object with all members in the order of their structs, or names."""
    if call.endpoint.row.is_custom:
        ordered: Object = orjson.loads(json_text.write_sorted(live))
        return ordered
    return decode(live, call.object_type).obj


def _text(obj: Json) -> str:
    return json_text.write(obj).decode()


def _by_strategic_merge(call: Call, live: Object, patch_: Object, findings: list[str]) -> Patched:
    obj, rest = strategic_merge.apply(live, patch_, call.object_type)
    return Patched(obj, lambda: go_plain(rest), findings, is_plain=True)


def _patched(call: Call, write_options: WriteOptions) -> update_loop.Changed:
    apply = patch_function(call, write_options)
    manager = write_options.manager or name_from_user_agent(call.user_agent)

    def changed(live: Object | None) -> Object:
        if live is None:
            raise status.not_found(call.endpoint.resource, call.info.name)
        try:
            new = typed(call, apply(live), write_options)
        except RecursionError:
            raise bad_request(_PATCHED_TOO_DEEP) from None
        own_changed(call, live, new, manager)
        check_identity(call, new)
        return new

    return changed


def typed(call: Call, patched: Patched, given: WriteOptions) -> Object:
    """Return a patched object decoded by the endpoint's type, with defaults; raises ApiError."""
    obj = _decoded(call, patched, given)
    obj |= {"kind": call.endpoint.kind.kind, "apiVersion": call.endpoint.kind.api_version}
    if call.endpoint.kind == call.endpoint.row.kind:
        try:
            call.endpoint.default(obj, call.now)
        except DecodeError as error:
            raise _not_fitting(patched, str(error)) from None
    obj.setdefault("metadata", {})
    return obj


def _decoded(call: Call, patched: Patched, write_options: WriteOptions) -> Object:
    type_ = call.object_type
    if not patched.is_plain:
        _check_kind(call, patched)
    try:
        obj, unknown, call.has_empty = _read(patched, type_)
    except DecodeError as error:
        raise _not_fitting(patched, str(error)) from None
    findings = [*patched.findings, *(sorted(unknown) if patched.is_plain else unknown)]
    if findings and write_options.validation != IGNORE:
        if write_options.validation == STRICT:
            text = f"strict decoding error: {', '.join(findings)}"
            raise _not_fitting(patched, text)
        call.warnings += findings
    return obj


def _read(patched: Patched, type_: Type) -> DecodedWithEmpty:
    """Return a patched object decoded by its type; raises DecodeError."""
    read = from_plain.read if patched.is_plain else decode_as_given
    return read(patched.obj, type_)


def _not_fitting(patched: Patched, text: str) -> ApiError:
    return status.invalid(_NO_KIND, "", [invalid("patch", patched.shown(), text)])


def _check_kind(call: Call, patched: Patched) -> None:
    """Refuse a patched object that names another kind; raises ApiError."""
    obj = patched.obj
    if not isinstance(obj, dict):
        word = json_text.type_word(obj)
        text = f"json: cannot unmarshal {word} into Go value of type {bodies.TYPE_META}"
        raise _not_fitting(patched, f"couldn't get version/kind; json parse error: {text}")
    kind = call.endpoint.kind
    call.given_kind = None
    named_kind = (obj.get("apiVersion"), obj.get("kind"))
    if named_kind == (kind.api_version, kind.kind):
        return
    if call.endpoint.is_custom_object:
        try:
            call.given_kind = bodies.given_kind(obj, patched.shown)
        except bodies.UnrecognizedError as error:
            raise _not_fitting(patched, str(error)) from None
        return
    if not named_kind[1]:
        # Without a kind it cannot be decoded.
        names = [each for each in obj if each not in ("kind", "apiVersion")]
        call.warnings += [json_text.unknown_field(each) for each in sorted(names)]
        metadata.check_url_name({}, call.info.name)
    try:
        found = bodies.declared_kind(obj, Kind("", "", ""))
        bodies.check_type(found, kind, call.object_type)
    except bodies.UnrecognizedError as error:
        raise _not_fitting(patched, str(error)) from None


def check_identity(call: Call, new: Object) -> None:
    """Check namespace and name of a patched object; raises ApiError."""
    meta = new["metadata"]
    metadata.match_namespace(meta, call.namespace)
    metadata.check_url_name(meta, call.info.name)


# Server-side apply.


def _applied(call: Call, write_options: WriteOptions, read: _Yaml) -> update_loop.Changed:
    config = _config_of(call, read)
    repeated = read.parsed.repeated
    check = unchanged.watched(config, "a configuration that may be applied again")

    def changed(live: Object | None) -> Object:
        check()
        endpoint = call.endpoint
        if live is None and endpoint.subresource:
            raise status.not_found(endpoint.resource, call.info.name)
        try:
            merged = server_side.on_apply(
                endpoint.fields,
                live,
                config,
                write_options.manager,
                call.now,
                force=write_options.force,
            )
            new = _of_merged(call, merged)
            if live is not None and _is_unchanged(merged, live):  # then nothing is written
                new |= {name: live[name] for name in live if name != "metadata"}
        except RecursionError:
            raise bad_request(_PATCHED_TOO_DEEP) from None
        _tell_repeated(call, write_options, repeated)
        if live is None and new["metadata"].get("uid"):
            raise status.conflict(
                endpoint.resource,
                call.info.name,
                "uid mismatch: the provided object specified uid"
                f" {new['metadata']['uid']}, and no existing object was found",
            )
        check_identity(call, new)
        return new

    return changed


def _config_of(call: Call, read: _Yaml) -> Object:
    """Return the applied configuration of the body; raises ApiError."""
    try:
        parsed = read.parsed
    except YamlError as error:
        is_json = call.body.lstrip()[:1] == b"{"
        text = f"error decoding patch: error converting YAML to JSON: {error}"
        raise bad_request(text if is_json else f"error encoding patch: {error}") from None
    if parsed.value is None:
        return {}
    if not isinstance(parsed.value, dict):
        word = json_text.type_word(parsed.value)
        raise bad_request(
            "error decoding patch: error unmarshaling JSON: while decoding JSON: json: cannot"
            f" unmarshal {word} into Go value of type map[string]interface {{}}"
        )
    return parsed.value


def _tell_repeated(call: Call, given: WriteOptions, repeated: str) -> None:
    """Refuse duplicate keys in the configuration, or warn of them; raises ApiError."""
    if given.validation == IGNORE or not repeated:
        return
    if given.validation == STRICT:
        text = f"error strict decoding patch: error converting YAML to JSON: {repeated}"
        raise bad_request(text)
    call.warnings += bodies.as_warnings([repeated])


def _of_merged(call: Call, merged: Object) -> Object:
    """Return a merged object, decoded and with defaults; raises ApiError."""
    endpoint, type_ = call.endpoint, call.object_type
    try:
        obj, _, call.has_empty = _read(Patched(merged, str, [], is_plain=True), type_)
        obj = {"kind": endpoint.kind.kind, "apiVersion": endpoint.kind.api_version, **obj}
        if endpoint.kind == endpoint.row.kind:
            endpoint.default(obj, call.now)
    except DecodeError as error:
        meta = merged.get("metadata") or {}
        key = f"{meta.get('namespace', '')}/{meta.get('name', '')}"
        kind = f"{_slashed(endpoint.kind)}, Kind={endpoint.kind.kind}"
        raise status.unknown(
            f"failed to convert new object ({key}; {kind}) to proper version: unable to convert"
            f" unstructured object to {kind}: {error}"
        ) from None
    obj.setdefault("metadata", {})
    return obj


def _is_unchanged(merged: Object, live: Object) -> bool:
    """Return whether an apply changed nothing but the managers."""
    return _has_members_of(merged, live, "metadata") and _has_members_of(
        merged.get("metadata") or {}, live.get("metadata") or {}, "managedFields"
    )


def _has_members_of(one: Object, other: Object, but: str) -> bool:
    return one.keys() - {but} == other.keys() - {but} and all(
        value is other[name] for name, value in one.items() if name != but
    )


def _slashed(kind: Kind) -> str:
    return f"{kind.group}/{kind.version}"
