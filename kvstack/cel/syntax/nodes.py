"""The tree of an expression.

    self.a.all(x, x > 0)
    → Comprehension(iter_var "x", iter_range Select(Ident self, "a"), …)

The parser makes the nodes; the checker notes on each its type and, on calls, the overloads that
may be meant, and resolves names that have dots in them.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

if TYPE_CHECKING:
    from kvstack.cel.checker.types import Type

ACCUMULATOR: Final = "@result"
"""The variable in which a comprehension gathers its result."""


class Node:
    """Any expression."""

    __slots__ = ("offset", "type")

    def __init__(self, offset: int) -> None:
        """Note the position in the source."""
        self.offset = offset
        self.type: Type
        """Set by the checker."""

    def children(self) -> "Iterator[Node]":
        """Yield the expressions within this one."""
        return iter(())


class Literal(Node):
    """A constant: None, bool, int, Uint, float, str or bytes."""

    __slots__ = ("value",)

    def __init__(self, offset: int, value: Any) -> None:  # noqa: ANN401
        """Make a constant."""
        super().__init__(offset)
        self.value = value


class Ident(Node):
    """A variable or the name of a type."""

    __slots__ = ("name",)

    def __init__(self, offset: int, name: str) -> None:
        """Make a reference."""
        super().__init__(offset)
        self.name = name


class Select(Node):
    """A field of a value, or whether there is one."""

    __slots__ = ("field", "is_test", "operand", "resolved")

    def __init__(self, offset: int, operand: Node, field: str, *, is_test: bool = False) -> None:
        """Make `operand.field`, or `has(operand.field)`."""
        super().__init__(offset)
        self.operand = operand
        self.field = field
        self.is_test = is_test
        self.resolved = ""
        """Set by the checker: the name of a variable or type that it spells; empty: none."""

    @override
    def children(self) -> Iterator[Node]:
        """Yield the operand."""
        yield self.operand


class Call(Node):
    """A call of a function, an operator among them."""

    __slots__ = ("arguments", "function", "overloads", "target")

    def __init__(
        self, offset: int, function: str, arguments: list[Node], target: Node | None = None
    ) -> None:
        """Make `function(arguments)` or `target.function(arguments)`."""
        super().__init__(offset)
        self.function = function
        self.arguments = arguments
        self.target = target
        self.overloads: Sequence[str] = ()
        """Set by the checker: identifiers of those that may be meant."""

    @override
    def children(self) -> Iterator[Node]:
        """Yield the target and the arguments."""
        if self.target is not None:
            yield self.target
        yield from self.arguments


class ListNode(Node):
    """A list; `optionals` are positions of elements that may be absent."""

    __slots__ = ("elements", "optionals")

    def __init__(self, offset: int, elements: list[Node], optionals: frozenset[int]) -> None:
        """Make a list."""
        super().__init__(offset)
        self.elements = elements
        self.optionals = optionals

    @override
    def children(self) -> Iterator[Node]:
        """Yield the elements."""
        yield from self.elements


class Entry:
    """One entry of a map, or one field of a struct."""

    __slots__ = ("is_optional", "key", "offset", "value")

    def __init__(self, offset: int, key: Any, value: Node, *, is_optional: bool) -> None:  # noqa: ANN401
        """Make an entry; the key is a node, or the name of a field."""
        self.offset = offset
        self.key = key
        self.value = value
        self.is_optional = is_optional


class MapNode(Node):
    """A map."""

    __slots__ = ("entries",)

    def __init__(self, offset: int, entries: list[Entry]) -> None:
        """Make a map."""
        super().__init__(offset)
        self.entries = entries

    @override
    def children(self) -> Iterator[Node]:
        """Yield keys and values."""
        for each in self.entries:
            yield each.key
            yield each.value


class Struct(Node):
    """An object of a named type."""

    __slots__ = ("entries", "type_name")

    def __init__(self, offset: int, type_name: str, entries: list[Entry]) -> None:
        """Make an object."""
        super().__init__(offset)
        self.type_name = type_name
        self.entries = entries

    @override
    def children(self) -> Iterator[Node]:
        """Yield the values of the fields."""
        for each in self.entries:
            yield each.value


class Comprehension(Node):
    """A fold over a list or map; what macros expand to.

    accumulator := init; while condition, for each item: accumulator := step; then the result.
    """

    __slots__ = (
        "accumulator",
        "condition",
        "init",
        "iter_range",
        "iter_var",
        "iter_var2",
        "result",
        "step",
    )

    def __init__(
        self,
        offset: int,
        iter_range: Node,
        iter_vars: tuple[str, str],
        accumulator: str,
        parts: tuple[Node, Node, Node, Node],
    ) -> None:
        """Make a fold; the second variable is empty where there is none.

        parts: init, condition, step, result.
        """
        super().__init__(offset)
        self.iter_range = iter_range
        self.iter_var, self.iter_var2 = iter_vars
        self.accumulator = accumulator
        self.init, self.condition, self.step, self.result = parts

    @property
    def is_bind(self) -> bool:
        """Whether it only binds a value to a name."""
        return (
            self.accumulator != ACCUMULATOR
            and isinstance(self.iter_range, ListNode)
            and not self.iter_range.elements
        )

    @override
    def children(self) -> Iterator[Node]:
        """Yield all parts."""
        yield self.iter_range
        yield self.init
        yield self.condition
        yield self.step
        yield self.result


def walk(node: Node) -> Iterator[Node]:
    """Yield an expression and all within it, the outer ones first."""
    waiting = [node]
    while waiting:
        each = waiting.pop()
        yield each
        waiting.extend(reversed(list(each.children())))


def depth(node: Node) -> int:
    """Return how deep expressions are nested."""
    deepest = 0
    waiting = [(node, 1)]
    while waiting:
        each, level = waiting.pop()
        deepest = max(deepest, level)
        waiting.extend((child, level + 1) for child in each.children())
    return deepest
