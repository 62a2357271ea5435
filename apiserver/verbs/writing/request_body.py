"""The object of a request's body: decoded, with defaults, its metadata checked."""

from kvstack.apimachinery.objects import metadata, status
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.decode import DecodeError
from kvstack.apiserver.verbs.call import Call
from kvstack.apiserver.verbs.forms import bodies
from kvstack.apiserver.verbs.options import WriteOptions


def read_new(call: Call, given: WriteOptions) -> Object:
    """Return the object of the body with defaults, its metadata checked; raises ApiError."""
    obj = read_body(call, given)
    meta = obj.setdefault("metadata", {})
    check_namespace(call, meta)
    metadata.wipe_system_fields(meta)
    call.warnings += metadata.drop_duplicate_owners(meta)
    return obj


def read_changed(call: Call, given: WriteOptions) -> Object:
    """Return the object of the body, which has the name and namespace of the path; ApiError."""
    obj = read_body(call, given)
    meta = obj.setdefault("metadata", {})
    metadata.check_url_name(meta, call.info.name)
    check_namespace(call, meta)
    call.warnings += metadata.drop_duplicate_owners(meta)
    return obj


def check_namespace(call: Call, meta: Object) -> None:
    """Check that an object is in the namespace of the path; raises ApiError."""
    metadata.match_namespace(meta, call.namespace)
    if call.endpoint.row.is_namespaced and not call.namespace:
        raise status.bad_request("Namespace parameter required.")


def read_body(call: Call, write_options: WriteOptions) -> Object:
    """Return the object of the body, decoded and with defaults; raises ApiError."""
    kind = call.endpoint.kind
    is_custom = call.endpoint.is_custom_object
    body = bodies.read_object(
        call.body, call.media_type, kind, call.object_type, is_custom=is_custom
    )
    bodies.report_findings(body, kind, write_options.validation, call.warnings)
    call.has_empty = body.has_empty
    obj = {"kind": kind.kind, "apiVersion": kind.api_version, **body.obj}
    if is_custom and body.kind != kind:
        call.given_kind = body.kind
        obj["kind"] = kind.kind
    if kind == call.endpoint.row.kind:
        try:
            call.endpoint.default(obj, call.now)
        except DecodeError as error:
            raise bodies.cannot_be_handled(kind, kind, str(error)) from None
    call.note(obj)
    return obj
