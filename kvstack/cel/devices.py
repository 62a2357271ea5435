"""Expressions that select devices: checked when they are written, run by schedulers.

check_device_selector('device.driver == "gpu.example.com"')   → None
check_device_selector("1")   → ("invalid", "must evaluate to bool or the unknown type, not int")
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from kvstack.apimachinery.objects.quantity import parse as _quantity
from kvstack.cel.checker.call_estimates import Path
from kvstack.cel.checker.estimates import estimate
from kvstack.cel.checker.ranges import Range
from kvstack.cel.checker.scope import Scope
from kvstack.cel.checker.types import (
    BOOL,
    DYN_KIND,
    STRING,
    Type,
    make,
    map_of,
    struct,
)
from kvstack.cel.errors import CelError, CompileError
from kvstack.cel.evaluation.operators import type_value
from kvstack.cel.evaluation.plan import PlanError
from kvstack.cel.library.semantic_versions import IMPLEMENTATIONS as VERSIONS
from kvstack.cel.library.table import COMPATIBLE
from kvstack.cel.programs import Program, check_expression, program_of
from kvstack.cel.syntax.macros import BINDINGS, MACROS
from kvstack.cel.values import ObjectValue

_COST_MAX: Final = 1_000_000
_VALUE_MAX: Final = 64
_MEMBERS_MAX: Final = 32
_NAME_SIZES: Final = (63, 32)
"""Limits on the length of a domain, and of a name within it."""
_ANY: Final = make(DYN_KIND, "any")
_DEVICE: Final = struct("kubernetes.DRADevice")
_FIELDS: Final = {
    "driver": STRING,
    "allowMultipleAllocations": BOOL,
    "attributes": map_of(STRING, map_of(STRING, _ANY)),
    "capacity": map_of(STRING, map_of(STRING, struct("kubernetes.Quantity"))),
}
_SCOPE: Final = Scope(
    functions=COMPATIBLE,
    variables={"device": _DEVICE},
    structs={_DEVICE.name: _FIELDS},
)
_MACROS: Final = {**MACROS, **BINDINGS}
_VERSION: Final = VERSIONS["string_to_semver"]
_SIZES: Final = {"driver": 63, "allowMultipleAllocations": 1}


def _size(path: Path, _type: Type) -> Range | None:
    if not path or path[0] != "device":
        return None
    if len(path) == 1:
        return Range(0, 0)
    if path[1] in _SIZES:
        return Range(0, _SIZES[path[1]])
    if path[1] not in {"attributes", "capacity"}:
        return None
    if path[-1] == "@keys":
        return Range(0, _NAME_SIZES[min(len(path) - 3, 1)])
    if len(path) <= 3:
        # Domains that are named are not among the fields that are known.
        is_known = len(path) == 2 or path[2] == "@values"
        return Range(0, _MEMBERS_MAX) if is_known else None
    return Range(0, _VALUE_MAX if path[1] == "attributes" else 0)


@lru_cache(maxsize=1024)
def check_device_selector(text: str) -> tuple[str, str] | None:
    """Return what is wrong, `invalid`, `internal` or `forbidden`, and why."""
    try:
        checked = check_expression(text, _SCOPE, _MACROS)
    except CompileError as error:
        return "invalid", f"compilation failed: {error}"
    if checked.type is not BOOL and checked.type is not _ANY:
        told = f"must evaluate to bool or the unknown type, not {checked.type}"
        return "invalid", told
    try:
        program_of(checked, _SCOPE)
    except PlanError as error:
        return "internal", f"program instantiation failed: {error}"
    if estimate(checked.root, _size).max > _COST_MAX:
        return "forbidden", "too complex, exceeds cost limit"
    return None


class _Domains:
    """Members of attributes and capacities: a domain that a device does not name is empty."""

    @staticmethod
    def member(raw: dict[str, Any], name: str) -> Any:  # noqa: ANN401
        return raw.get(name, {})

    @staticmethod
    def has(raw: dict[str, Any], name: object) -> bool:
        return name in raw

    @staticmethod
    def names(raw: dict[str, Any]) -> list[str]:
        return list(raw)


_DOMAINS: Final = _Domains()


def device_value(driver: str, device: Mapping[str, Any]) -> dict[str, Any]:
    """Return a device of a ResourceSlice as expressions see it; raises CelError."""
    attributes: dict[str, Any] = {}
    for name, attribute in (device.get("attributes") or {}).items():
        domain, key = _domain_of(name, driver)
        attributes.setdefault(domain, {})[key] = _attribute(name, attribute)
    capacity: dict[str, Any] = {}
    for name, amount in (device.get("capacity") or {}).items():
        domain, key = _domain_of(name, driver)
        capacity.setdefault(domain, {})[key] = _quantity(amount["value"])
    return {
        "driver": driver,
        "allowMultipleAllocations": bool(device.get("allowMultipleAllocations")),
        "attributes": ObjectValue(attributes, _DOMAINS),
        "capacity": ObjectValue(capacity, _DOMAINS),
    }


def selects(text: str, device: Mapping[str, Any]) -> bool:
    """Return whether an expression selects a device; raises CompileError, EvaluationError."""
    found = _selector(text).evaluate({"device": device}).value
    if not isinstance(found, bool):
        told = type_value(found).name
        raise CelError(f"CEL result of type {told} could not be converted to bool")
    return found


@lru_cache(maxsize=1024)
def _selector(text: str) -> Program:
    try:
        return program_of(check_expression(text, _SCOPE, _MACROS), _SCOPE)
    except PlanError as error:
        raise CompileError(str(error)) from error


def _domain_of(name: str, driver: str) -> tuple[str, str]:
    domain, slash, key = name.partition("/")
    return (domain, key) if slash else (driver, name)


def _attribute(name: str, attribute: Mapping[str, Any]) -> Any:  # noqa: ANN401
    for kind in ("int", "bool", "string"):
        if kind in attribute:
            return attribute[kind]
    if "version" not in attribute:
        raise CelError(f"attribute {name}: unsupported attribute value")
    try:
        return _VERSION(attribute["version"])
    except CelError as error:
        raise CelError(f"attribute {name}: parse semantic version: {error}") from error
