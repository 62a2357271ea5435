"""APIServices: versions of groups that this server or a Service serves."""

from typing import Any, Final

from kvstack.apimachinery.objects.core.conditions import find
from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    index,
    invalid,
    not_supported,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import (
    check_dns1035_label,
    check_dns_subdomain,
    check_path_segment,
    check_port_number,
)
from kvstack.apimachinery.objects.text.go_text import JsonText, quote
from kvstack.apimachinery.objects.times import age
from kvstack.apimachinery.schema.scalars import decode_base64
from kvstack.apiserver.kinds.rules import add_invalid
from kvstack.apiserver.kinds.strategy import (
    NO_TABLE,
    Context,
    Peculiarities,
    Strategy,
    with_status,
)

AVAILABLE: Final = "Available"
LOCAL: Final = "Local"
LOCAL_MESSAGE: Final = "Local APIServices are always available"

_PORT: Final = 443
_PRIORITIES: Final = (("groupPriorityMinimum", 20000), ("versionPriority", 1000))
_STATUSES: Final = ("True", "False", "Unknown")
_KEPT_METADATA: Final = ("labels", "annotations", "finalizers", "ownerReferences")


def _default(obj: Object) -> None:
    service = obj.setdefault("spec", {}).get("service")
    if service is not None and service.get("port") is None:
        service["port"] = _PORT


def _prepare_create(obj: Object, context: Context) -> None:
    obj["status"] = {}
    if obj["spec"].get("service") is None:
        condition = {
            "type": AVAILABLE,
            "status": "True",
            "lastTransitionTime": context.now,
            "reason": LOCAL,
            "message": LOCAL_MESSAGE,
        }
        obj["status"]["conditions"] = [condition]


def _prepare_update(new: Object, old: Object, _context: Context) -> None:
    new["status"] = old.get("status") or {}


def _prepare_status(new: Object, old: Object, _context: Context) -> None:
    new["spec"] = old["spec"]
    metadata, before = new["metadata"], old["metadata"]
    for name in _KEPT_METADATA:
        metadata.pop(name, None)
        if name in before:
            metadata[name] = before[name]


def _check_name(name: str, _is_prefix: bool) -> list[str]:  # noqa: FBT001  # a CheckName
    return check_path_segment(name)


def _validate(obj: Object, _context: Context) -> list[FieldError]:
    spec = obj["spec"]
    errors = _name_errors(obj)
    group, version = spec.get("group", ""), spec.get("version", "")
    if group:
        add_invalid(errors, "spec.group", group, check_dns_subdomain(group))
    elif version != "v1":
        detail = "only v1 may have an empty group and it better be legacy kube"
        errors.append(required("spec.group", detail))
    add_invalid(errors, "spec.version", version, check_dns1035_label(version))
    for name, maximum in _PRIORITIES:
        priority = spec.get(name) or 0
        if not 0 < priority <= maximum:
            detail = f"must be positive and less than {maximum}"
            errors.append(invalid(child("spec", name), priority, detail))
    service = spec.get("service")
    return errors + (_local_errors(spec) if service is None else _service_errors(spec, service))


def _name_errors(obj: Object) -> list[FieldError]:
    spec, metadata = obj["spec"], obj["metadata"]
    wanted = f"{spec.get('version', '')}.{spec.get('group', '')}"
    detail = f'must be `spec.version+"."+spec.group`: {quote(wanted)}'
    return [
        invalid(child("metadata", field), name, detail)
        for field in ("generateName", "name")
        if (name := metadata.get(field)) and name != wanted and not check_path_segment(name)
    ]


def _local_errors(spec: Object) -> list[FieldError]:
    errors: list[FieldError] = []
    bundle = spec.get("caBundle")
    if bundle:
        shown = f"{len(decode_base64(bundle))} bytes"
        detail = "local APIServices may not have a caBundle"
        errors.append(invalid("spec.caBundle", shown, detail))
    if spec.get("insecureSkipTLSVerify"):
        detail = "local APIServices may not have insecureSkipTLSVerify"
        errors.append(invalid("spec.insecureSkipTLSVerify", True, detail))
    return errors


def _service_errors(spec: Object, service: Object) -> list[FieldError]:
    path = "spec.service"
    errors = [
        required(child(path, name)) for name in ("namespace", "name") if not service.get(name)
    ]
    port = service.get("port") or 0
    wrong = check_port_number(port)
    if wrong:
        detail = f"port is not valid: {', '.join(wrong)}"
        errors.append(invalid(child(path, "port"), port, detail))
    if spec.get("insecureSkipTLSVerify") and spec.get("caBundle"):
        detail = "may not be true if caBundle is present"
        errors.append(invalid("spec.insecureSkipTLSVerify", True, detail))
    return errors


def _validate_update(new: Object, _old: Object, context: Context) -> list[FieldError]:
    wrong = check_path_segment(new["metadata"].get("name", ""))
    errors = [invalid("metadata.name", new["metadata"].get("name", ""), each) for each in wrong]
    return errors + _validate(new, context)


def _validate_status(new: Object, _old: Object, _context: Context) -> list[FieldError]:
    conditions = (new.get("status") or {}).get("conditions") or ()
    return [
        not_supported(
            child(index("status.conditions", position), "status"),
            JsonText(each.get("status", "")),
            _STATUSES,
        )
        for position, each in enumerate(conditions)
        if each.get("status") not in _STATUSES
    ]


def _cells(obj: Object, now: float) -> list[Any]:
    service = obj["spec"].get("service")
    where = LOCAL
    if service is not None:
        where = f"{service.get('namespace', '')}/{service.get('name', '')}"
    age_text = age(obj["metadata"].get("creationTimestamp"), now)
    return [obj["metadata"]["name"], where, _availability(obj), age_text]


def _availability(obj: Object) -> str:
    condition = find((obj.get("status") or {}).get("conditions"), AVAILABLE)
    if condition is None:
        return "Unknown"
    status: str = condition.get("status", "")
    reason = condition.get("reason")
    return f"{status} ({reason})" if reason and status != "True" else status


API_SERVICES: Final = with_status(
    Strategy(
        allows_any_finalizer=True,
        peculiarities=Peculiarities(reports_metadata_twice=True),
        default=_default,
        prepare_create=_prepare_create,
        prepare_update=_prepare_update,
        validate=_validate,
        validate_update=_validate_update,
        check_name=_check_name,
        allows_unconditional_update=False,
        cells=_cells,
    ),
    prepare_update=_prepare_status,
    validate_update=_validate_status,
    reset_fields=(("spec",), ("metadata",)),
    table=NO_TABLE,
)
