"""VolumeAttachments: attachments of volumes to nodes, desired and actual."""

from typing import Any, Final

from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    forbidden,
    invalid,
    required,
    too_long,
    too_long_characters,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import (
    IMMUTABLE,
    between,
    check_caseless_dns_subdomain,
    check_dns_subdomain,
    length,
)
from kvstack.apimachinery.objects.times import age
from kvstack.apiserver.kinds.amounts import round_up_amounts
from kvstack.apiserver.kinds.equality import same
from kvstack.apiserver.kinds.pods.defaults import default_volume_source
from kvstack.apiserver.kinds.rules import Errors, add_invalid
from kvstack.apiserver.kinds.status_metadata import keep_all_but_status, keep_status
from kvstack.apiserver.kinds.storage.volume_specs import check_inline_spec
from kvstack.apiserver.kinds.strategy import Context, Strategy, with_status

_SPEC: Final = "io.k8s.api.storage.v1.VolumeAttachmentSpec"
_ATTACHER_MAX: Final = 63
_METADATA_BYTES_MAX: Final = 256 * 1024
_MESSAGE_BYTES_MAX: Final = 1024
_ONE_SOURCE: Final = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"


def _default(obj: Object) -> None:
    inline = obj.get("spec", {}).get("source", {}).get("inlineVolumeSpec")
    if inline is not None:
        round_up_amounts(inline.get("capacity"))
        default_volume_source(inline)


def _prepare_create(obj: Object, _context: Context) -> None:
    obj["status"] = {"attached": False}


def _validate(obj: Object, _context: Context) -> list[FieldError]:
    errors, declared = _errors(obj)
    return errors + declared


def _validate_update(new: Object, old: Object, _context: Context) -> list[FieldError]:
    errors, declared = _errors(new)
    if not same(new["spec"], old["spec"], _SPEC):
        errors.append(invalid("spec", None, IMMUTABLE))
        return errors if new["spec"].get("attacher") else [*errors, *declared]
    return errors + declared


def _errors(obj: Object) -> tuple[list[FieldError], list[FieldError]]:
    """Return the errors, followed by those that the schema declares."""
    errors: list[FieldError] = []
    spec, status = obj["spec"], obj.get("status") or {}
    source: Object = spec.get("source") or {}
    _check_source(errors, source)
    node = spec.get("nodeName", "")
    add_invalid(errors, "spec.nodeName", node, check_dns_subdomain(node))
    _check_status(errors, status)
    name = source.get("persistentVolumeName")
    if name is not None:
        add_invalid(errors, "spec.source.persistentVolumeName", name, check_dns_subdomain(name))
    return errors, _attacher_errors(spec.get("attacher", ""))


def _attacher_errors(attacher: str) -> list[FieldError]:
    path = "spec.attacher"
    if not attacher:
        return [required(path)]
    errors = [invalid(path, attacher, each) for each in check_caseless_dns_subdomain(attacher)]
    if len(attacher) > _ATTACHER_MAX:
        errors.append(too_long_characters(path, _ATTACHER_MAX))
    return errors


def _check_source(errors: Errors, source: Object) -> None:
    inline, name = source.get("inlineVolumeSpec"), source.get("persistentVolumeName")
    path = "spec.source"
    if inline is None and name is None:
        errors.append(required(path, _ONE_SOURCE))
    elif inline is not None and name is not None:
        errors.append(forbidden(path, _ONE_SOURCE))
    elif inline is not None:
        check_inline_spec(inline, child(path, "inlineVolumeSpec"), errors)
    elif not name:
        detail = "must specify non empty persistentVolumeName"
        errors.append(required(child(path, "persistentVolumeName"), detail))


def _check_status(errors: Errors, status: Object) -> None:
    metadata: dict[str, str] = status.get("attachmentMetadata") or {}
    size = sum(length(name) + length(value) for name, value in metadata.items())
    if size > _METADATA_BYTES_MAX:
        errors.append(too_long("status.attachmentMetadata", _METADATA_BYTES_MAX))
    for each in ("attachError", "detachError"):
        problem = status.get(each)
        if problem is None:
            continue
        path = child("status", each)
        if length(problem.get("message", "")) > _MESSAGE_BYTES_MAX:
            errors.append(too_long(child(path, "message"), _MESSAGE_BYTES_MAX))
        code = problem.get("errorCode")
        if code is not None and code < 0:
            errors.append(invalid(child(path, "errorCode"), code, between(0, 2**31 - 1)))


def _cells(obj: Object, now: float) -> list[Any]:
    metadata, spec = obj["metadata"], obj["spec"]
    return [
        metadata["name"],
        spec.get("attacher", ""),
        (spec.get("source") or {}).get("persistentVolumeName", ""),
        spec.get("nodeName", ""),
        (obj.get("status") or {}).get("attached", False),
        age(metadata.get("creationTimestamp"), now),
    ]


VOLUME_ATTACHMENTS: Final = with_status(
    Strategy(
        default=_default,
        prepare_create=_prepare_create,
        prepare_update=keep_status,
        validate=_validate,
        validate_update=_validate_update,
        allows_unconditional_update=False,
        cells=_cells,
    ),
    prepare_update=keep_all_but_status,
    validate_update=_validate_update,
    reset_fields=(("metadata",), ("spec",)),
)
