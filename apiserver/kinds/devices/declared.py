"""Declared rules of resource.k8s.io/v1."""

from collections.abc import Sequence
from typing import Any, Final

from kvstack.apimachinery.objects.field_errors import FieldError, not_supported, too_long
from kvstack.apimachinery.objects.names import length
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apimachinery.schema.load import enum_values
from kvstack.apiserver.kinds.declared import Check, Declared, DeclaredRules, OneOf
from kvstack.apiserver.kinds.devices.names import (
    check_full_name,
    declared_driver_name,
    declared_extended_name,
    declared_label_key,
    declared_long_name,
    declared_pool_name,
    declared_short_name,
    declared_uuid,
)

TYPES: Final = "io.k8s.api.resource.v1"
ALLOCATION_MODES: Final = enum_values(f"{TYPES}.ExactDeviceRequest", "allocationMode")
CONFIGURATION_SOURCES: Final = enum_values(f"{TYPES}.DeviceAllocationConfiguration", "source")
OPERATORS: Final = enum_values(f"{TYPES}.DeviceToleration", "operator")
TAINT_EFFECTS: Final = enum_values(f"{TYPES}.DeviceTaint", "effect")


def _choice(values: Sequence[str]) -> Check:
    def check(value: Any, path: str) -> list[FieldError]:  # noqa: ANN401 — a text
        return [] if value in values else [not_supported(path, JsonText(value), values)]

    return check


def _bytes_max(maximum: int) -> Check:
    def check(value: Any, path: str) -> list[FieldError]:  # noqa: ANN401 — a text
        return [too_long(path, maximum)] if length(value) > maximum else []

    return check


_DRIVER: Final = Declared(is_required=True, then=(declared_driver_name,))
_CLASS: Final = Declared(is_required=True, then=(declared_long_name,))
_COUNTER: Final = Declared(is_required=True, then=(declared_short_name,))
_COUNTERS: Final = Declared(is_required=True, keys=(declared_short_name,))
_REFERENCES: Final = Declared(max_items=32, identity=())
_UUID: Final = Declared(then=(declared_uuid,))
_BINDINGS: Final = {
    "bindingConditions": Declared(max_items=4),
    "bindingFailureConditions": Declared(max_items=4),
}
_SELECTION: Final = {
    "selectors": Declared(max_items=32),
    "allocationMode": Declared(then=(_choice(ALLOCATION_MODES),)),
}
_ATTRIBUTE_VALUES: Final = (
    "int",
    "bool",
    "string",
    "version",
    "ints",
    "bools",
    "strings",
    "versions",
)

DECLARED: Final = DeclaredRules(
    {
        f"{TYPES}.{name}": rules
        for name, rules in {
            "AllocatedDeviceStatus": {"shareID": _UUID},
            "CounterSet": {"name": _COUNTER, "counters": _COUNTERS},
            "Device": {
                "consumesCounters": Declared(max_items=2, identity=("counterSet",)),
                **_BINDINGS,
            },
            "DeviceAllocationConfiguration": {
                "source": Declared(is_required=True, then=(_choice(CONFIGURATION_SOURCES),)),
                "requests": _REFERENCES,
            },
            "DeviceAllocationResult": {
                "results": Declared(max_items=32),
                "config": Declared(max_items=64),
            },
            "DeviceClaim": {
                "requests": Declared(max_items=32, identity=("name",)),
                "constraints": Declared(max_items=32),
                "config": Declared(max_items=32),
            },
            "DeviceClaimConfiguration": {"requests": _REFERENCES},
            "DeviceClassSpec": {
                "selectors": Declared(max_items=32),
                "config": Declared(max_items=32),
                "extendedResourceName": Declared(then=(declared_extended_name,)),
            },
            "DeviceConstraint": {
                "requests": _REFERENCES,
                "matchAttribute": Declared(then=(check_full_name,)),
                "distinctAttribute": Declared(then=(check_full_name,)),
            },
            "DeviceCounterConsumption": {"counterSet": _COUNTER, "counters": _COUNTERS},
            "DeviceRequest": {"firstAvailable": Declared(max_items=8, identity=("name",))},
            "DeviceRequestAllocationResult": {
                "driver": _DRIVER,
                "pool": Declared(is_required=True, then=(declared_pool_name,)),
                "shareID": _UUID,
                **_BINDINGS,
            },
            "DeviceSubRequest": {"deviceClassName": _CLASS, **_SELECTION},
            "DeviceTaint": {
                "effect": Declared(is_required=True, then=(_choice(TAINT_EFFECTS),)),
            },
            "DeviceToleration": {
                "key": Declared(then=(declared_label_key,)),
                "operator": Declared(then=(_choice(OPERATORS),)),
                "effect": Declared(then=(_choice(TAINT_EFFECTS),)),
            },
            "ExactDeviceRequest": _SELECTION,
            "NetworkDeviceData": {
                "interfaceName": Declared(then=(_bytes_max(256),)),
                "ips": Declared(max_items=16, identity=()),
                "hardwareAddress": Declared(then=(_bytes_max(128),)),
            },
            "OpaqueDeviceConfiguration": {"driver": _DRIVER},
            "ResourceClaim": {"spec": Declared(is_immutable=True)},
            "ResourceClaimStatus": {
                "allocation": Declared(is_set_once=True),
                "reservedFor": Declared(max_items=256, identity=("uid",)),
                "devices": Declared(identity=("driver", "device", "pool", "shareID")),
            },
            "ResourceSliceSpec": {
                "sharedCounters": Declared(max_items=8, identity=("name",)),
            },
        }.items()
    },
    {f"{TYPES}.DeviceAttribute": (OneOf(fields=_ATTRIBUTE_VALUES),)},
)
