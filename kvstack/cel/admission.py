"""The scope of expressions in admission: object, request, params, authorizer, variables.

    compiled = compile_admission(Declared(has_params=True), "object.a == params.a", BOOLEANS)
    compiled.program, or compiled.problem   "compilation failed: …"

Compiled expressions are remembered by their text and what is declared.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from typing_extensions import override

from kvstack.cel.checker.functions import Functions, merged
from kvstack.cel.checker.scope import Scope
from kvstack.cel.checker.types import (
    BOOL,
    DYN,
    NULL,
    STRING,
    Type,
    list_of,
    make,
    map_of,
    parse_type,
    struct,
)
from kvstack.cel.errors import CompileError
from kvstack.cel.evaluation.plan import PlanError
from kvstack.cel.library.table import COMPATIBLE, PATCHES, WITHOUT_PATCHES
from kvstack.cel.programs import Program, check_expression, program_of

_CACHED: Final = 4096

OBJECT: Final = struct("Object")
JSON_PATCH: Final = struct("JSONPatch")
BOOLEANS: Final = (BOOL,)
TEXTS: Final = (STRING,)
TEXTS_OR_NULL: Final = (STRING, NULL)
OBJECTS: Final = (OBJECT,)
PATCH_LISTS: Final = (list_of(JSON_PATCH),)
VARIABLES: Final = "variables"
_VARIABLES_TYPE: Final = "kubernetes.variables"


def _fields(text: str) -> dict[str, Type]:
    pairs = (each.split(":", 1) for each in text.split(";"))
    return {name.strip(): parse_type(type_.strip()) for name, type_ in pairs}


_STRUCTS: Final = {
    "kubernetes.GroupVersionKind": _fields("group: string; version: string; kind: string"),
    "kubernetes.GroupVersionResource": _fields("group: string; version: string; resource: string"),
    "kubernetes.UserInfo": _fields(
        "username: string; uid: string; groups: list(string); extra: map(string, list(string))"
    ),
    "kubernetes.AdmissionRequest": _fields(
        "kind: kubernetes.GroupVersionKind; resource: kubernetes.GroupVersionResource;"
        " subResource: string; requestKind: kubernetes.GroupVersionKind;"
        " requestResource: kubernetes.GroupVersionResource; requestSubResource: string;"
        " name: string; namespace: string; operation: string; userInfo: kubernetes.UserInfo;"
        " dryRun: bool; options: dyn"
    ),
    "kubernetes.NamespaceSpec": _fields("finalizers: list(string)"),
    "kubernetes.NamespaceCondition": _fields(
        "status: string; type: string; lastTransitionTime: timestamp; message: string;"
        " reason: string"
    ),
    "kubernetes.NamespaceStatus": _fields(
        "conditions: list(kubernetes.NamespaceCondition); phase: string"
    ),
    "kubernetes.NamespaceMetadata": _fields(
        "name: string; generateName: string; namespace: string; labels: map(string, string);"
        " annotations: map(string, string); UID: string; creationTimestamp: timestamp;"
        " deletionGracePeriodSeconds: int; deletionTimestamp: timestamp; generation: int;"
        " resourceVersion: string; finalizers: list(string)"
    ),
    "kubernetes.Namespace": _fields(
        "metadata: kubernetes.NamespaceMetadata; spec: kubernetes.NamespaceSpec;"
        " status: kubernetes.NamespaceStatus"
    ),
}
_PATCH_FIELDS: Final = {"op": STRING, "path": STRING, "from": STRING, "value": DYN}
_NO_TYPE: Final = make("", "")
"""Upstream's error for an unknown field of a patch."""


class _AnyField(Mapping[str, Type]):
    """The fields of a type that has every field."""

    @override
    def __getitem__(self, name: str) -> Type:
        return DYN

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(())

    @override
    def __len__(self) -> int:
        return 0

    @override
    def get(self, name: str, default: Any = None) -> Type:
        return DYN


class _PatchFields(dict[str, Type]):
    """The fields of `JSONPatch`."""

    @override
    def get(self, name: str, default: Any = None) -> Type:
        return super().get(name, _NO_TYPE)


class _PatchStructs(dict[str, Mapping[str, Type]]):
    """Types that patches are made of, too: `JSONPatch`, `Object`, `Object.spec` and so on."""

    _any = _AnyField()
    _patch = _PatchFields(_PATCH_FIELDS)

    @override
    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    @override
    def get(self, name: str, default: Any = None) -> Any:
        if name == "JSONPatch":
            return self._patch
        if name == "Object" or name.startswith("Object."):
            return self._any
        return super().get(name, default)


class Declared(NamedTuple):
    """The names available to an expression besides the object and the request."""

    has_params: bool = False
    has_authorizer: bool = True
    has_patches: bool = False
    """Whether it may use the functions that make patches."""
    is_stored: bool = False
    """Whether it is already stored, so that it may use the newest functions."""
    variables: tuple[tuple[str, Type], ...] | None = None
    """The members of `variables`; None: it is not declared."""


class Compiled(NamedTuple):
    """An expression that compiles, or why it does not."""

    program: Program | None
    problem: str = ""
    is_internal: bool = False
    """Whether the problem is reported as an internal error."""

    @property
    def type(self) -> Type:
        """The type of the result, as far as it is known."""
        return DYN if self.program is None else self.program.type


def _functions(declared: Declared) -> Functions:
    known = WITHOUT_PATCHES if declared.is_stored else COMPATIBLE
    return merged(known, PATCHES) if declared.has_patches else known


@lru_cache(maxsize=256)
def admission_scope(declared: Declared) -> Scope:
    """Return what an expression about a request may name."""
    variables = {
        "object": DYN,
        "oldObject": DYN,
        "namespaceObject": struct("kubernetes.Namespace"),
        "request": struct("kubernetes.AdmissionRequest"),
    }
    if declared.has_params:
        variables["params"] = DYN
    if declared.has_authorizer:
        variables["authorizer"] = struct("kubernetes.authorization.Authorizer")
        variables["authorizer.requestResource"] = struct("kubernetes.authorization.ResourceCheck")
    structs: dict[str, Mapping[str, Type]] = dict(_STRUCTS)
    if declared.has_patches:
        structs = _PatchStructs(structs)
    if declared.variables is not None:
        variables[VARIABLES] = struct(_VARIABLES_TYPE)
        structs[_VARIABLES_TYPE] = dict(declared.variables)
    return Scope(functions=_functions(declared), variables=variables, structs=structs)


@lru_cache(maxsize=_CACHED)
def compile_admission(
    declared: Declared, text: str, returns: tuple[Type, ...] | None = None
) -> Compiled:
    """Return the program of an expression, or the reason why there is none.

    returns: the types that it may return; None: any.
    """
    return compile_in(admission_scope(declared), text, returns)


def compile_in(scope: Scope, text: str, returns: tuple[Type, ...] | None = None) -> Compiled:
    """Return the program of an expression in a scope, or the reason why there is none."""
    try:
        checked = check_expression(text, scope)
    except CompileError as error:
        return Compiled(None, f"compilation failed: {error}")
    if returns is not None and checked.type not in returns:
        return Compiled(None, wrong_type(checked.type, returns))
    try:
        return Compiled(program_of(checked, scope))
    except PlanError as error:
        return Compiled(None, f"program instantiation failed: {error}", is_internal=True)


def wrong_type(actual: Type, expected: tuple[Type, ...]) -> str:
    """Return the error for an expression with a wrong result type."""
    if len(expected) == 1:
        return f"must evaluate to {_name(expected[0])} but got {_name(actual)}"
    names = " ".join(map(_name, expected))
    return f"must evaluate to one of [{names}] but got {_name(actual)}"


def _name(type_: Type) -> str:
    return "null_type" if type_ is NULL else str(type_)


def stored_type(type_: Type) -> Type:
    """Return the type of a variable for the expressions that use it: structs are not known."""
    if type_.kind == "list":
        return list_of(stored_type(type_.parameters[0]))
    if type_.kind == "map":
        keys, values = type_.parameters
        return map_of(stored_type(keys), stored_type(values))
    return DYN if type_.kind in {"struct", "opaque", "type"} else type_
