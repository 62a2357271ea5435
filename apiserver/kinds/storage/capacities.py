"""CSIStorageCapacities: available capacity of a storage class in a topology segment."""

from typing import Final

from kvstack.apimachinery.objects.field_errors import FieldError, child, index, invalid
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.labels import validate_object
from kvstack.apimachinery.objects.names import IMMUTABLE, NEGATIVE, check_dns_subdomain
from kvstack.apimachinery.objects.quantity import parse
from kvstack.apiserver.kinds.deprecations import deprecated_node_label
from kvstack.apiserver.kinds.equality import same
from kvstack.apiserver.kinds.rules import add_invalid
from kvstack.apiserver.kinds.strategy import Context, Strategy

_SELECTOR: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector"


def _validate(obj: Object, _context: Context) -> list[FieldError]:
    return _errors(obj, allows_bad_values=False)


def _errors(obj: Object, *, allows_bad_values: bool) -> list[FieldError]:
    topology = obj.get("nodeTopology")
    errors = validate_object("nodeTopology", topology, allow_invalid_values=allows_bad_values)
    name = obj.get("storageClassName", "")
    add_invalid(errors, "storageClassName", name, check_dns_subdomain(name))
    capacity = obj.get("capacity")
    if capacity is not None and parse(capacity).sign < 0:
        errors.append(invalid("capacity", capacity, NEGATIVE))
    return errors


def _validate_update(new: Object, old: Object, _context: Context) -> list[FieldError]:
    before = old.get("nodeTopology")
    errors = _errors(new, allows_bad_values=bool(validate_object("", before)))
    topology = new.get("nodeTopology")
    if not same(topology, before, _SELECTOR):
        errors.append(invalid("nodeTopology", topology, IMMUTABLE))
    name = new.get("storageClassName", "")
    if name != old.get("storageClassName", ""):
        errors.append(invalid("storageClassName", name, IMMUTABLE))
    return errors


def _warnings(obj: Object, _context: Context) -> list[str]:
    topology = obj.get("nodeTopology") or {}
    warnings: list[str] = []
    for position, expression in enumerate(topology.get("matchExpressions") or ()):
        name = expression.get("key", "")
        message = deprecated_node_label(name)
        if message:
            path = child(index("nodeTopology.matchExpressions", position), "key")
            warnings.append(f"{path}: {name} is {message}")
    for name in topology.get("matchLabels") or ():
        message = deprecated_node_label(name)
        if message:
            warnings.append(f"nodeTopology.matchLabels.{name}: {message}")
    return warnings


def _update_warnings(new: Object, _old: Object, context: Context) -> list[str]:
    return _warnings(new, context)


CSI_STORAGE_CAPACITIES: Final = Strategy(
    validate=_validate,
    validate_update=_validate_update,
    warnings=_warnings,
    update_warnings=_update_warnings,
    allows_unconditional_update=False,
)
