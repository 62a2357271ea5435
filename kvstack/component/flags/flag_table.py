"""The flags of a program as rows of a table, by which `command_line` parses arguments.

    TABLE = FlagTable(flag_group("Logs", ("v", INT, "0", LIVE, "…"), …), {"v": "v"})

Tables have one row a line, by groups, in the order of the help.
A flag that is IGNORED is read and checked like any other, and has no effect. A flag that is REFUSED
ends the start, because running without its effect would be unsafe.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, NamedTuple, TypeAlias


class Kind(Enum):
    """The kind of a flag; the comment gives the value's Python type."""

    BOOL = auto()  # bool
    INT = auto()  # int
    FLOAT = auto()  # float
    TEXT = auto()  # str
    IP = auto()  # str
    DURATION = auto()  # int, nanoseconds
    LIST = auto()  # tuple[str, ...]: comma-separated; repeated flags append
    ARRAY = auto()  # tuple[str, ...]: one a flag, in order
    MAP = auto()  # dict[str, str]: name=value, comma-separated
    PORTS = auto()  # str: a range of ports
    VERSION = auto()  # bool


class Effect(Enum):
    """The effect of a flag."""

    LIVE = auto()
    IGNORED = auto()
    REFUSED = auto()


class Flag(NamedTuple):
    """One flag."""

    name: str
    group: str
    kind: Kind
    default: str
    effect: Effect
    help: str = ""


Row: TypeAlias = tuple[str, Kind, str, Effect, str]
"""A flag of a group: its name, kind, default, effect and help."""

BOOL, INT, FLOAT, TEXT, IP, DURATION, LIST, ARRAY, MAP, PORTS, VERSION = Kind
LIVE, IGNORED, REFUSED = Effect


def flag_group(group: str, *rows: Row) -> tuple[Flag, ...]:
    """Return the flags of one group."""
    return tuple(
        Flag(name, group, kind, default, effect, told) for name, kind, default, effect, told in rows
    )


class FlagTable:
    """The flags of one program."""

    def __init__(self, flags: tuple[Flag, ...], short: Mapping[str, str]) -> None:
        """short: letter → name."""
        self.flags: Final = flags
        self.short: Final = short
        self.by_name: Final = {flag.name: flag for flag in flags}

    def display_name(self, flag: Flag) -> str:
        """Return the name of a flag in errors and help: `-v, --v`."""
        short = next((letter for letter, name in self.short.items() if name == flag.name), "")
        return f"-{short}, --{flag.name}" if short else f"--{flag.name}"
