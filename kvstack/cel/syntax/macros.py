"""Macros: calls that expand to other expressions.

has(a.b)             whether a has a field b
all exists exists_one existsOne map filter      with one variable, and but for the last two with two
transformList transformMap transformMapEntry    with two variables
optMap optFlatMap    on optional values
sortBy               on lists
"""

from collections.abc import Callable
from typing import Final

from kvstack.cel.syntax.nodes import (
    ACCUMULATOR,
    Call,
    Comprehension,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Node,
    Select,
)
from kvstack.cel.syntax.parser import Macro, MacroError

_SIMPLE_NAME: Final = "argument must be a simple name"
_NO_IDENTIFIER: Final = "argument is not an identifier"
_OVERWRITES: Final = "iteration variable overwrites accumulator variable"
_SORTED: Final = "@__sortBy_input__"

_Parts = Callable[[int, list[Node]], tuple[Node, Node, Node, Node]]
"""(offset, arguments after the variables) → init, condition, step, result."""


def _result(offset: int) -> Node:
    return Ident(offset, ACCUMULATOR)


def _empty_list(offset: int) -> Node:
    return ListNode(offset, [], frozenset())


def _all(offset: int, arguments: list[Node]) -> tuple[Node, Node, Node, Node]:
    condition = Call(offset, "@not_strictly_false", [_result(offset)])
    step = Call(offset, "_&&_", [_result(offset), arguments[0]])
    return Literal(offset, True), condition, step, _result(offset)


def _exists(offset: int, arguments: list[Node]) -> tuple[Node, Node, Node, Node]:
    not_yet = Call(offset, "!_", [_result(offset)])
    condition = Call(offset, "@not_strictly_false", [not_yet])
    step = Call(offset, "_||_", [_result(offset), arguments[0]])
    return Literal(offset, False), condition, step, _result(offset)


def _exists_one(offset: int, arguments: list[Node]) -> tuple[Node, Node, Node, Node]:
    more = Call(offset, "_+_", [_result(offset), Literal(offset, 1)])
    step = Call(offset, "_?_:_", [arguments[0], more, _result(offset)])
    is_one = Call(offset, "_==_", [_result(offset), Literal(offset, 1)])
    return Literal(offset, 0), Literal(offset, True), step, is_one


def _gathered(
    offset: int, init: Node, arguments: list[Node], step: Node
) -> tuple[Node, Node, Node, Node]:
    """Return the parts of a fold whose step is only taken where the first of two arguments is."""
    if len(arguments) == 2:
        step = Call(offset, "_?_:_", [arguments[0], step, _result(offset)])
    return init, Literal(offset, True), step, _result(offset)


def _map(offset: int, arguments: list[Node]) -> tuple[Node, Node, Node, Node]:
    item = ListNode(offset, [arguments[-1]], frozenset())
    step = Call(offset, "_+_", [_result(offset), item])
    return _gathered(offset, _empty_list(offset), arguments, step)


def _map_entries(offset: int, arguments: list[Node]) -> tuple[Node, Node, Node, Node]:
    step = Call(offset, "cel.@mapInsert", [_result(offset), arguments[-1]])
    return _gathered(offset, MapNode(offset, []), arguments, step)


def _variable(node: Node, message: str) -> str:
    if not isinstance(node, Ident):
        raise MacroError(node.offset, message)
    if node.name in {ACCUMULATOR, "__result__"}:
        raise MacroError(node.offset, _OVERWRITES)
    return node.name


def _one_variable(parts: _Parts, message: str = _SIMPLE_NAME) -> Macro:
    def expand(offset: int, target: Node | None, arguments: list[Node]) -> Node:
        assert target is not None
        name = _variable(arguments[0], message)
        return Comprehension(offset, target, (name, ""), ACCUMULATOR, parts(offset, arguments[1:]))

    return expand


def _names(arguments: list[Node]) -> tuple[str, str]:
    for each in arguments[:2]:
        if not isinstance(each, Ident):
            raise MacroError(each.offset, _SIMPLE_NAME)
    first, second = arguments[0], arguments[1]
    assert isinstance(first, Ident)
    assert isinstance(second, Ident)
    if first.name == second.name:
        raise MacroError(second.offset, f"duplicate variable name: {first.name}")
    return _variable(first, _SIMPLE_NAME), _variable(second, _SIMPLE_NAME)


def _two_variables(parts: _Parts) -> Macro:
    def expand(offset: int, target: Node | None, arguments: list[Node]) -> Node:
        assert target is not None
        names = _names(arguments)
        return Comprehension(offset, target, names, ACCUMULATOR, parts(offset, arguments[2:]))

    return expand


def _transform_map(offset: int, target: Node | None, arguments: list[Node]) -> Node:
    assert target is not None
    names = _names(arguments)
    rest = arguments[2:]
    entry: list[Node] = [_result(offset), Ident(offset, names[0]), rest[-1]]
    step = Call(offset, "cel.@mapInsert", entry)
    parts = _gathered(offset, MapNode(offset, []), rest, step)
    return Comprehension(offset, target, names, ACCUMULATOR, parts)


def _filter(offset: int, target: Node | None, arguments: list[Node]) -> Node:
    assert target is not None
    name = _variable(arguments[0], _NO_IDENTIFIER)
    parts = _map(offset, [arguments[1], arguments[0]])
    return Comprehension(offset, target, (name, ""), ACCUMULATOR, parts)


def _has(_offset: int, _target: Node | None, arguments: list[Node]) -> Node:
    field = arguments[0]
    if not isinstance(field, Select):
        raise MacroError(field.offset, "invalid argument to has() macro")
    return Select(_offset, field.operand, field.field, is_test=True)


def _bound(offset: int, name: str, value: Node, result: Node) -> Node:
    """Return an expression in which a value has a name."""
    parts = (value, Literal(offset, False), Ident(offset, name), result)
    return Comprehension(offset, _empty_list(offset), ("#unused", ""), name, parts)


def _opt_map(function: str, *, is_flat: bool) -> Macro:
    def expand(offset: int, target: Node | None, arguments: list[Node]) -> Node:
        assert target is not None
        name = arguments[0]
        if not isinstance(name, Ident):
            text = f"{function}() variable name must be a simple identifier"
            raise MacroError(name.offset, text)
        value = Call(offset, "value", [], target)
        mapped = _bound(offset, name.name, value, arguments[1])
        if not is_flat:
            mapped = Call(offset, "optional.of", [mapped])
        has_value = Call(offset, "hasValue", [], target)
        return Call(offset, "_?_:_", [has_value, mapped, Call(offset, "optional.none", [])])

    return expand


def _sort_by(offset: int, target: Node | None, arguments: list[Node]) -> Node:
    assert target is not None
    if isinstance(target, (Literal, MapNode)):
        text = (
            "sortBy can only be applied to a list, identifier, comprehension, call or select"
            " expression"
        )
        raise MacroError(target.offset, text)
    name = _variable(arguments[0], _NO_IDENTIFIER)
    keys = Comprehension(
        offset, Ident(offset, _SORTED), (name, ""), ACCUMULATOR, _map(offset, arguments[1:])
    )
    call = Call(offset, "@sortByAssociatedKeys", [keys], Ident(offset, _SORTED))
    return _bound(offset, _SORTED, target, call)


def _bind(offset: int, target: Node | None, arguments: list[Node]) -> Node | None:
    if not isinstance(target, Ident) or target.name != "cel":
        return None
    name = arguments[0]
    if not isinstance(name, Ident):
        raise MacroError(name.offset, "cel.bind() variable names must be simple identifiers")
    return _bound(offset, name.name, arguments[1], arguments[2])


BINDINGS: Final[dict[tuple[str, int, bool], Macro]] = {("bind", 3, True): _bind}
"""`cel.bind(name, value, expression)`, which only expressions about devices have."""
MACROS: Final[dict[tuple[str, int, bool], Macro]] = {
    ("has", 1, False): _has,
    ("all", 2, True): _one_variable(_all),
    ("exists", 2, True): _one_variable(_exists),
    ("exists_one", 2, True): _one_variable(_exists_one),
    ("existsOne", 2, True): _one_variable(_exists_one),
    ("map", 2, True): _one_variable(_map, _NO_IDENTIFIER),
    ("map", 3, True): _one_variable(_map, _NO_IDENTIFIER),
    ("filter", 2, True): _filter,
    ("optMap", 2, True): _opt_map("optMap", is_flat=False),
    ("optFlatMap", 2, True): _opt_map("optFlatMap", is_flat=True),
    ("all", 3, True): _two_variables(_all),
    ("exists", 3, True): _two_variables(_exists),
    ("exists_one", 3, True): _two_variables(_exists_one),
    ("existsOne", 3, True): _two_variables(_exists_one),
    ("transformList", 3, True): _two_variables(_map),
    ("transformList", 4, True): _two_variables(_map),
    ("transformMap", 3, True): _transform_map,
    ("transformMap", 4, True): _transform_map,
    ("transformMapEntry", 3, True): _two_variables(_map_entries),
    ("transformMapEntry", 4, True): _two_variables(_map_entries),
    ("sortBy", 2, True): _sort_by,
}
