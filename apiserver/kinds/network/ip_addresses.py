"""IPAddresses: each reserves the address that is its name for one object, usually a Service."""

from typing import Any, Final

from kvstack.apimachinery.objects.addresses import validate_ip
from kvstack.apimachinery.objects.field_errors import FieldError, child, invalid, required
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import IMMUTABLE, check_dns_subdomain, check_path_segment
from kvstack.apimachinery.objects.times import age
from kvstack.apiserver.kinds.rules import add_invalid
from kvstack.apiserver.kinds.strategy import Context, Strategy

_PARENT: Final = "spec.parentRef"


def _check_name(name: str, _is_prefix: bool) -> list[str]:  # noqa: FBT001  # a CheckName
    return [each.body.partition(": ")[2].partition(": ")[2] for each in validate_ip("", name)]


def _validate(obj: Object, _context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    parent = obj.get("spec", {}).get("parentRef")
    if parent is None:
        errors.append(required(_PARENT))
        return errors
    if parent.get("group"):
        wrong = check_dns_subdomain(parent["group"])
        add_invalid(errors, child(_PARENT, "group"), parent["group"], wrong)
    for each in ("resource", "name", "namespace"):
        value = parent.get(each, "")
        if value:
            add_invalid(errors, child(_PARENT, each), value, check_path_segment(value))
    # Errors of the schema come last.
    errors.extend(
        required(child(_PARENT, each)) for each in ("resource", "name") if not parent.get(each)
    )
    return errors


def _validate_update(new: Object, old: Object, context: Context) -> list[FieldError]:
    errors = _validate(new, context)
    if new.get("spec", {}).get("parentRef") != old.get("spec", {}).get("parentRef"):
        errors.append(invalid(_PARENT, None, IMMUTABLE))
    return errors


def _cells(obj: Object, now: float) -> list[Any]:
    metadata = obj["metadata"]
    return [metadata["name"], _parent(obj), age(metadata.get("creationTimestamp"), now)]


def _parent(obj: Object) -> str:
    parent = obj.get("spec", {}).get("parentRef")
    if parent is None:
        return "<none>"
    group, resource = parent.get("group"), parent.get("resource", "")
    qualified = f"{resource}.{group}" if group else resource
    parts = [qualified.lower(), parent.get("namespace", ""), parent.get("name", "")]
    return "/".join(each for position, each in enumerate(parts) if each or position != 1)


IP_ADDRESSES: Final = Strategy(
    validate=_validate,
    validate_update=_validate_update,
    check_name=_check_name,
    cells=_cells,
)
