"""Type errors in the expressions of a policy, for the kinds of objects that it matches.

    typed = built_in(table.type_of(kind)) or custom(schema)
    type_warnings(policy["spec"], [("apps/v1, Kind=Deployment", typed)])
    → [{"fieldRef": "spec.validations[0].expression", "warning": …}]

A policy is used whatever is found: fields may be absent from one kind and there in another.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from typing_extensions import override

from kvstack.apimachinery.schema.types import Type as SchemaType
from kvstack.cel.admission import Declared, admission_scope, stored_type
from kvstack.cel.checker.scope import Scope
from kvstack.cel.checker.types import DYN, Type
from kvstack.cel.errors import CompileError
from kvstack.cel.programs import check_expression
from kvstack.cel.schemas.built_in import declare_built_in
from kvstack.cel.schemas.declared import declare

_EXPRESSIONS: Final = ("expression", "messageExpression")


class Typed(NamedTuple):
    """A kind of objects, for the checker."""

    type: Type = DYN
    structs: Mapping[str, Mapping[str, Type]] = {}


def built_in(type_: SchemaType) -> Typed:
    """Return a built-in kind."""
    return Typed(*declare_built_in(type_))


def custom(schema: dict[str, Any], name: str) -> Typed:
    """Return the kind of custom resources; name: of its type."""
    declared = declare(schema, is_resource=True, name=name)
    return Typed() if declared is None else Typed(declared.type, declared.structs())


def type_warnings(
    spec: dict[str, Any],
    kinds: Sequence[tuple[str, Typed]],
    params: Typed | None = None,
) -> list[dict[str, str]]:
    """Return the warnings about a policy; params: the kind of its parameters, None: it has none."""
    scopes = [(shown, _scope(spec, typed, params)) for shown, typed in kinds]
    warnings: list[dict[str, str]] = []
    for position, validation in enumerate(spec.get("validations") or ()):
        for name in _EXPRESSIONS:
            text = validation.get(name, "")
            told = list(_warnings(text, scopes)) if text else []
            if told:
                where = f"spec.validations[{position}].{name}"
                warnings.append({"fieldRef": where, "warning": "\n".join(told)})
    return warnings


def _warnings(text: str, scopes: Sequence[tuple[str, Scope]]) -> Iterator[str]:
    for shown, scope in scopes:
        try:
            check_expression(text, scope)
        except CompileError as error:
            yield f"{shown}: {error}\n"


def _scope(spec: dict[str, Any], typed: Typed, params: Typed | None) -> Scope:
    declared = Declared(has_params=params is not None, is_stored=True)
    types: dict[str, Type] = {}
    scope = _typed_scope(declared, typed, params)
    for variable in spec.get("variables") or ():
        try:
            types[variable["name"]] = stored_type(
                check_expression(variable.get("expression", ""), scope).type
            )
        except CompileError:
            types[variable["name"]] = DYN
        declared = declared._replace(variables=tuple(types.items()))
        scope = _typed_scope(declared, typed, params)
    return scope


def _typed_scope(declared: Declared, typed: Typed, params: Typed | None) -> Scope:
    plain = admission_scope(declared)
    variables = {**plain.variables, "object": typed.type, "oldObject": typed.type}
    structs = [plain.structs, typed.structs]
    if params is not None:
        variables["params"] = params.type
        structs.append(params.structs)
    return replace(plain, variables=variables, structs=_Structs(structs))


class _Structs(Mapping[str, Mapping[str, Type]]):
    """Several tables of types as one; types are looked up at their first use."""

    def __init__(self, tables: Sequence[Mapping[str, Mapping[str, Type]]]) -> None:
        self._tables = tables

    @override
    def __getitem__(self, name: str) -> Mapping[str, Type]:
        for each in self._tables:
            if name in each:
                return each[name]
        raise KeyError(name)

    @override
    def __iter__(self) -> Iterator[str]:
        return (name for each in self._tables for name in each)

    @override
    def __len__(self) -> int:
        return sum(map(len, self._tables))
