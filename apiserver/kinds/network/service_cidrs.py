"""ServiceCIDRs: the ranges of cluster IPs."""

from typing import Any, Final

from kvstack.apimachinery.objects.addresses import parse_cidr, validate_cidr
from kvstack.apimachinery.objects.field_errors import FieldError, index, invalid, required
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import IMMUTABLE
from kvstack.apimachinery.objects.times import age
from kvstack.apiserver.kinds.status_metadata import (
    begin_without_status,
    keep_all_but_status,
    keep_status,
)
from kvstack.apiserver.kinds.strategy import Context, Strategy, with_status

_PATH: Final = "spec.cidrs"


def _validate(obj: Object, _context: Context) -> list[FieldError]:
    cidrs = _cidrs(obj)
    if not cidrs:
        return [required(_PATH, "at least one CIDR required")]
    if len(cidrs) > 2:
        return [invalid(_PATH, {"CIDRs": cidrs}, "may only hold up to 2 values")]
    errors = [
        error
        for position, each in enumerate(cidrs)
        for error in validate_cidr(index(_PATH, position), each)
    ]
    networks = [parse_cidr(each) for each in cidrs]
    families = [each.address.is_ipv4 for each in networks if each is not None]
    if families in ([True, True], [False, False]):
        detail = (
            "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and"
            " 2001:db8::/64"
        )
        errors.append(invalid(_PATH, cidrs, detail))
    return errors


def _validate_update(new: Object, old: Object, context: Context) -> list[FieldError]:
    cidrs, before = _cidrs(new), _cidrs(old)
    becomes_dual = len(before) == 1 and len(cidrs) == 2
    if len(cidrs) != len(before) and not becomes_dual:
        return [invalid(_PATH, cidrs or None, IMMUTABLE)]
    errors = [
        invalid(index(_PATH, position), cidrs[position], IMMUTABLE)
        for position, each in enumerate(before)
        if cidrs[position] != each
    ]
    return errors + _validate(new, context) if becomes_dual else errors


def _cidrs(obj: Object) -> list[str]:
    return obj.get("spec", {}).get("cidrs") or []


def _cells(obj: Object, now: float) -> list[Any]:
    metadata = obj["metadata"]
    return [metadata["name"], ",".join(_cidrs(obj)), age(metadata.get("creationTimestamp"), now)]


SERVICE_CIDRS: Final = with_status(
    Strategy(
        prepare_create=begin_without_status,
        prepare_update=keep_status,
        validate=_validate,
        validate_update=_validate_update,
        cells=_cells,
    ),
    prepare_update=keep_all_but_status,
    reset_fields=(("metadata",), ("spec",)),
)
