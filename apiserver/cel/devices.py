"""Expressions that select devices: checked when they are written, run by schedulers.

check_device_selector('device.driver == "gpu.example.com"')   → None
check_device_selector("1")   → ("invalid", "must evaluate to bool or the unknown type, not int")
"""

from functools import lru_cache
from typing import Final

from kvstack.apiserver.cel.checking.call_estimates import Path
from kvstack.apiserver.cel.checking.estimates import estimate
from kvstack.apiserver.cel.checking.ranges import Range
from kvstack.apiserver.cel.checking.scope import Scope
from kvstack.apiserver.cel.checking.types import (
    BOOL,
    DYN_KIND,
    STRING,
    Type,
    make,
    map_of,
    struct,
)
from kvstack.apiserver.cel.errors import CompileError
from kvstack.apiserver.cel.evaluation.plan import PlanError
from kvstack.apiserver.cel.library.table import COMPATIBLE
from kvstack.apiserver.cel.programs import check_expression, program_of
from kvstack.apiserver.cel.syntax.macros import BINDINGS, MACROS

_COST_MAX: Final = 1_000_000
_VALUE_MAX: Final = 64
_MEMBERS_MAX: Final = 32
_NAME_SIZES: Final = (63, 32)
"""Of a domain, and of a name within it."""
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
