"""Finds the type of every part of an expression, and what does not fit together.

    check(node, scope, source)   notes types and overloads on the nodes; raises CompileError

After it `root.type` is what the expression returns. Where nothing is known of a value its type is
dyn, and what is done with it is looked at when the expression runs.
"""

from collections.abc import Sequence
from typing import Final

from kvstack.cel.checker.functions import Overload
from kvstack.cel.checker.literals import literal_issues
from kvstack.cel.checker.scope import Scope
from kvstack.cel.checker.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DYN,
    ERROR,
    INT,
    LIST,
    MAP,
    NULL,
    PARAM,
    STRING,
    STRUCT,
    TYPE,
    UINT,
    Type,
    list_of,
    map_of,
    optional_of,
    parameter,
)
from kvstack.cel.checker.unify import (
    Mapping,
    are_assignable,
    is_assignable,
    most_general,
    substituted,
)
from kvstack.cel.errors import CompileError, Issue, format_issues
from kvstack.cel.syntax.nodes import (
    Call,
    Comprehension,
    Entry,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Node,
    Select,
    Struct,
    walk,
)
from kvstack.cel.values import Uint

_LITERALS: Final[dict[type, Type]] = {
    type(None): NULL,
    bool: BOOL,
    int: INT,
    Uint: UINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
}
_LOGICAL: Final = frozenset(("_&&_", "_||_"))


def check(root: Node, scope: Scope, source: str) -> None:
    """Note types and overloads; raises CompileError."""
    checker = _Checker(scope)
    try:
        checker.visit(root)
    except RecursionError:
        issue = Issue(-1, "max recursion depth exceeded")
        raise CompileError(format_issues(source, [issue])) from None
    for node in walk(root):
        node.type = substituted(checker.mapping, node.type, to_dyn=True)
    issues = checker.issues or literal_issues(root)
    if issues:
        raise CompileError(format_issues(source, issues))


class _Checker:
    """The state of checking one expression."""

    def __init__(self, scope: Scope) -> None:
        self.issues: list[Issue] = []
        self.mapping: Mapping = {}
        self._scope = scope
        self._locals: list[dict[str, Type]] = []
        """Variables of comprehensions, the inner ones last."""
        self._parameters = 0

    def visit(self, node: Node) -> Type:
        """Note the type of a node and all within it, and return it."""
        if isinstance(node, Literal):
            type_ = _LITERALS[type(node.value)]
        elif isinstance(node, Ident):
            type_ = self._ident(node)
        elif isinstance(node, Select):
            type_ = self._select(node)
        elif isinstance(node, Call):
            type_ = self._call(node)
        elif isinstance(node, ListNode):
            type_ = self._list(node)
        elif isinstance(node, MapNode):
            type_ = self._map(node)
        elif isinstance(node, Struct):
            type_ = self._struct(node)
        else:
            assert isinstance(node, Comprehension)
            type_ = self._comprehension(node)
        node.type = type_
        return type_

    def _ident(self, node: Ident) -> Type:
        found = self._local(node.name) if not node.name.startswith(".") else None
        if found is None:
            found = self._scope.identifier(node.name.removeprefix("."))
        if found is None:
            self._undeclared(node, node.name)
            return ERROR
        return found

    def _local(self, name: str) -> Type | None:
        return next((each[name] for each in reversed(self._locals) if name in each), None)

    def _undeclared(self, node: Node, name: str) -> None:
        self._tell(node, f"undeclared reference to '{name}' (in container '')")

    def _select(self, node: Select) -> Type:
        name = "" if node.is_test else _qualified(node)
        if name and self._local(name.partition(".")[0]) is None:
            found = self._scope.identifier(name)
            if found is not None:
                node.resolved = name
                self._settle(node.operand)
                return found
        found = self._field(node, node.operand, node.field, is_optional=False)
        return BOOL if node.is_test else substituted(self.mapping, found)

    def _settle(self, node: Node) -> None:
        """Note a type on a part of a qualified name, which is not checked separately."""
        for each in walk(node):
            each.type = DYN

    def _field(self, node: Node, operand: Node, name: str, *, is_optional: bool) -> Type:
        whole = substituted(self.mapping, self.visit(operand))
        target = whole.parameters[0] if whole.is_optional else whole
        field_type = ERROR
        if target.kind == MAP:
            field_type = target.parameters[1]
        elif target.kind == STRUCT:
            field = self._scope.field(target.name, name)
            if field is None:
                self._tell(node, f"undefined field '{name}'")
            else:
                field_type = field
        elif target.kind == PARAM:
            is_assignable(self.mapping, DYN, target)
            field_type = DYN
        else:
            if not target.is_dyn_or_error:
                self._tell(node, f"type '{target}' does not support field selection")
            field_type = DYN
        return optional_of(field_type) if is_optional or whole.is_optional else field_type

    def _call(self, node: Call) -> Type:
        if node.function == "_?._":
            field = node.arguments[1]
            assert isinstance(field, Literal)
            self.visit(field)
            node.overloads = ("select_optional_field",)
            found = self._field(node, node.arguments[0], field.value, is_optional=True)
            return substituted(self.mapping, found)
        for each in node.arguments:
            self.visit(each)
        if node.target is not None:
            prefix = _qualified(node.target)
            name = f"{prefix}.{node.function}".removeprefix(".")
            if prefix and name in self._scope.functions:
                node.function, node.target = name, None
        if node.target is not None:
            self.visit(node.target)
        overloads = self._scope.functions.get(node.function.removeprefix("."))
        if overloads is None:
            self._undeclared(node, node.function)
            return ERROR
        return self._resolved(node, overloads)

    def _resolved(self, node: Call, overloads: Sequence[Overload]) -> Type:
        """Return what a call returns, and note which overloads may be meant."""
        arguments = node.arguments if node.target is None else [node.target, *node.arguments]
        argument_types = [each.type for each in arguments]
        if node.function in _LOGICAL:
            return self._logical(node, argument_types, overloads[0])
        result: Type | None = None
        identifiers: list[str] = []
        for overload in overloads:
            if overload.is_member != (node.target is not None):
                continue
            fresh: Mapping = {each: self._new_parameter() for each in overload.parameters}
            wanted = [substituted(fresh, each) for each in overload.arguments]
            if not are_assignable(self.mapping, argument_types, wanted):
                continue
            identifiers.append(overload.identifier)
            returned = substituted(self.mapping, substituted(fresh, overload.result))
            if result is None:
                result = returned
            elif result is not DYN and returned is not result:
                result = DYN
        if result is None:
            self._no_overload(node, argument_types)
            return ERROR
        node.overloads = tuple(identifiers)
        return result

    def _logical(self, node: Call, argument_types: Sequence[Type], overload: Overload) -> Type:
        fits = True
        for argument, each in zip(node.arguments, argument_types, strict=True):
            if not is_assignable(self.mapping, each, BOOL):
                self._mismatch(argument, BOOL, each)
                fits = False
        node.overloads = (overload.identifier,)
        return BOOL if fits else ERROR

    def _no_overload(self, node: Call, argument_types: Sequence[Type]) -> None:
        names = [str(substituted(self.mapping, each, to_dyn=True)) for each in argument_types]
        target = "" if node.target is None else f"{names.pop(0)}."
        signature = f"{target}({', '.join(names)})"
        function = node.function.removeprefix(".")
        message = f"found no matching overload for '{function}' applied to '{signature}'"
        self._tell(node, message)

    def _list(self, node: ListNode) -> Type:
        items: Type | None = None
        for position, each in enumerate(node.elements):
            found = self.visit(each)
            if position in node.optionals:
                found = self._unwrapped(each, found)
            items = self._joined(items, found)
        return list_of(self._new_parameter() if items is None else items)

    def _map(self, node: MapNode) -> Type:
        keys: Type | None = None
        values: Type | None = None
        for entry in node.entries:
            keys = self._joined(keys, self.visit(entry.key))
            values = self._joined(values, self._entry_value(entry))
        if keys is None or values is None:
            return map_of(self._new_parameter(), self._new_parameter())
        return map_of(keys, values)

    def _entry_value(self, entry: Entry) -> Type:
        found = self.visit(entry.value)
        return self._unwrapped(entry.value, found) if entry.is_optional else found

    def _unwrapped(self, node: Node, type_: Type) -> Type:
        """Return the type of an optional value without the optional."""
        if type_.is_optional:
            return type_.parameters[0]
        if type_ is not DYN:
            self._mismatch(node, optional_of(type_), type_)
        return type_

    def _joined(self, before: Type | None, type_: Type) -> Type:
        if before is None:
            return type_
        return most_general(before, type_) if is_assignable(self.mapping, before, type_) else DYN

    def _struct(self, node: Struct) -> Type:
        type_ = self._scope.identifier(node.type_name.removeprefix("."))
        if type_ is None:
            self._undeclared(node, node.type_name)
            self._settle_fields(node)
            return ERROR
        if type_.kind != TYPE:
            self._tell(node, f"'{type_}' is not a type")
            self._settle_fields(node)
            return ERROR
        struct = type_.parameters[0]
        for entry in node.entries:
            value = self._entry_value(entry)
            if struct.kind != STRUCT:
                self.issues.append(Issue(entry.offset, f"undefined field '{entry.key}'"))
                continue
            expected = self._scope.field(struct.name, entry.key)
            if expected is None:
                self.issues.append(Issue(entry.offset, f"undefined field '{entry.key}'"))
            elif not is_assignable(self.mapping, expected, value):
                given = substituted(self.mapping, value)
                text = (
                    f"expected type of field '{entry.key}' is '{expected}' but provided type is"
                    f" '{given}'"
                )
                self.issues.append(Issue(entry.offset, text))
        return struct

    def _settle_fields(self, node: Struct) -> None:
        for entry in node.entries:
            self._settle(entry.value)

    def _comprehension(self, node: Comprehension) -> Type:
        whole = self.visit(node.iter_range)
        accumulated = self.visit(node.init)
        whole = substituted(self.mapping, whole)
        self._locals.append({node.accumulator: accumulated})
        self._locals.append(self._iterated(node, whole))
        self.visit(node.condition)
        self._assert(node.condition, BOOL)
        self.visit(node.step)
        self._assert(node.step, accumulated)
        self._locals.pop()
        result = self.visit(node.result)
        self._locals.pop()
        return substituted(self.mapping, result)

    def _iterated(self, node: Comprehension, whole: Type) -> dict[str, Type]:
        """Return the types of the variables that take the items one after another."""
        has_two = bool(node.iter_var2)
        if whole.kind == LIST:
            first, second = whole.parameters[0], whole.parameters[0]
            if has_two:
                first = INT
        elif whole.kind == MAP:
            first, second = whole.parameters
        elif whole.kind == PARAM or whole.is_dyn_or_error:
            is_assignable(self.mapping, DYN, whole)
            first = second = DYN
        else:
            message = (
                f"expression of type '{whole}' cannot be range of a comprehension (must be list,"
                " map, or dynamic)"
            )
            self._tell(node.iter_range, message)
            first = second = ERROR
        return {node.iter_var: first, node.iter_var2: second} if has_two else {node.iter_var: first}

    def _assert(self, node: Node, expected: Type) -> None:
        if not is_assignable(self.mapping, expected, node.type):
            self._mismatch(node, expected, node.type)

    def _mismatch(self, node: Node, expected: Type, actual: Type) -> None:
        self._tell(node, f"expected type '{expected}' but found '{actual}'")

    def _tell(self, node: Node, message: str) -> None:
        self.issues.append(Issue(node.offset, message))

    def _new_parameter(self) -> Type:
        self._parameters += 1
        return parameter(f"_var{self._parameters - 1}")


def _qualified(node: Node) -> str:
    """Return the qualified name of an expression of selections; empty if it is not one."""
    names: list[str] = []
    while isinstance(node, Select) and not node.is_test:
        names.append(node.field)
        node = node.operand
    if not isinstance(node, Ident):
        return ""
    return ".".join((node.name, *reversed(names)))
