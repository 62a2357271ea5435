"""The values that expressions work on.

    null bool int double string bytes    None bool int float str bytes
    uint                                 Uint
    list map                             list dict (and what behaves like them, see `sequences`)
    timestamp duration                   Timestamp Duration, in nanoseconds
    optional_type                        Optional
    type                                 TypeValue

Whole numbers have 64 bits; who makes one checks that it fits.
"""

from collections.abc import Iterator
from typing import Any, Final, Protocol

from typing_extensions import override

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
UINT_MAX: Final = 2**64 - 1


class Uint(int):
    """A whole number without a sign."""

    __slots__ = ()


class Timestamp:
    """A moment: nanoseconds since 1970 UTC."""

    __slots__ = ("nanoseconds", "offset")

    def __init__(self, nanoseconds: int, offset: int = 0) -> None:
        """Make a moment; offset: the minutes east of UTC in which it was written."""
        self.nanoseconds: Final = nanoseconds
        self.offset: Final = offset

    @override
    def __eq__(self, other: object) -> bool:
        return type(other) is Timestamp and other.nanoseconds == self.nanoseconds

    @override
    def __hash__(self) -> int:
        return hash(self.nanoseconds)


class Duration:
    """A span of time in nanoseconds, 64 bits."""

    __slots__ = ("nanoseconds",)

    def __init__(self, nanoseconds: int) -> None:
        """Make a span."""
        self.nanoseconds: Final = nanoseconds

    @override
    def __eq__(self, other: object) -> bool:
        return type(other) is Duration and other.nanoseconds == self.nanoseconds

    @override
    def __hash__(self) -> int:
        return hash(self.nanoseconds)


class Optional:
    """A value that may be absent."""

    __slots__ = ("has_value", "value")

    def __init__(self, value: Any, *, has_value: bool = True) -> None:  # noqa: ANN401
        """Make one with a value."""
        self.value: Final = value
        self.has_value: Final = has_value


NONE: Final = Optional(None, has_value=False)


class TypeValue:
    """A type as a value: what `type(x)` returns."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        """Make a type of a name."""
        self.name: Final = name

    @override
    def __eq__(self, other: object) -> bool:
        return type(other) is TypeValue and other.name == self.name

    @override
    def __hash__(self) -> int:
        return hash(self.name)


class SetList(list[Any]):
    """A list whose items are a set: their order does not count."""

    __slots__ = ()


class KeyedList(list[Any]):
    """A list whose items are identified by some of their members (list type map)."""

    __slots__ = ("keys",)

    def __init__(self, items: list[Any], keys: tuple[str, ...]) -> None:
        """Make one; keys: names of members, escaped."""
        super().__init__(items)
        self.keys = keys


class StructValue(dict[str, Any]):
    """An object that an expression made of a named type."""

    __slots__ = ("type_name",)

    def __init__(self, fields: dict[str, Any], type_name: str) -> None:
        """Make one."""
        super().__init__(fields)
        self.type_name = type_name


class ObjectValue:
    """An object whose members have types of their own; what they hold is looked at when asked."""

    __slots__ = ("_known", "raw", "shape")

    def __init__(self, raw: dict[str, Any], shape: "Shape") -> None:
        """Take an object as JSON has it."""
        self.raw = raw
        self.shape = shape
        self._known: dict[str, Any] | None = None

    def get(self, name: str) -> Any:  # noqa: ANN401
        """Return the value of a member; raises KeyError."""
        known = self._known
        if known is None:
            known = self._known = {}
        elif name in known:
            return known[name]
        found = known[name] = self.shape.member(self.raw, name)
        return found

    def __contains__(self, name: object) -> bool:
        """Return whether there is such a member."""
        return self.shape.has(self.raw, name)

    def __len__(self) -> int:
        """Return how many members there are."""
        return len(self.shape.names(self.raw))

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the members."""
        return iter(self.shape.names(self.raw))


class Shape(Protocol):
    """The declared members of objects."""

    def member(self, raw: dict[str, Any], name: str) -> Any:  # noqa: ANN401
        """Return the value of a member of an object; raises KeyError, CelError."""
        ...

    def has(self, raw: dict[str, Any], name: object) -> bool:
        """Return whether an object has a member."""
        ...

    def names(self, raw: dict[str, Any]) -> list[str]:
        """Return the names of the members that an object has, as expressions spell them."""
        ...
