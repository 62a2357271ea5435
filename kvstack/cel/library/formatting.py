"""`"%s has %d".format(["a", 1])`: texts with values in them.

`check_format` finds the errors of a call whose format and list are literals.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from kvstack.apimachinery.objects.text.go_floats import format_float
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.cel.checker.types import Type
from kvstack.cel.errors import CelError, Issue
from kvstack.cel.syntax.nodes import ListNode, MapNode, Node
from kvstack.cel.values import Duration, Timestamp, TypeValue, Uint

_DEFAULT_PRECISION: Final = 6
_SPECIAL: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_TIMES: Final = "\u00d7"
_SUPERSCRIPTS: Final = str.maketrans("-0123456789", "\u207b⁰¹²³⁴⁵⁶⁷⁸⁹")
_LISTED: Final = (
    "strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
)


class _Clause(NamedTuple):
    """The formatter of a letter after the percent sign."""

    error: str
    """The error for a value of another type."""
    types: frozenset[str]
    """Names of types that expressions may give."""


_ALL: Final = frozenset(
    ("list", "map", "int", "uint", "double", "bool", "string", "timestamp", "bytes", "duration",
     "type", "null")
)  # fmt: skip
_CLAUSES: Final = {
    "s": _Clause(f"string clause can only be used on {_LISTED}", _ALL),
    "d": _Clause("decimal clause can only be used on integers", frozenset(("int", "uint"))),
    "f": _Clause("fixed-point clause can only be used on doubles", frozenset(("double", "string"))),
    "e": _Clause("scientific clause can only be used on doubles", frozenset(("double", "string"))),
    "b": _Clause(
        "only integers and bools can be formatted as binary", frozenset(("int", "uint", "bool"))
    ),
    "x": _Clause(
        "only integers, byte buffers, and strings can be formatted as hex",
        frozenset(("int", "uint", "string", "bytes")),
    ),
    "o": _Clause("octal clause can only be used on integers", frozenset(("int", "uint"))),
}
_CLAUSES_BY_LETTER: Final = {**_CLAUSES, "X": _CLAUSES["x"]}
_PROTO_NAMES: Final = {
    "timestamp": "google.protobuf.Timestamp", "duration": "google.protobuf.Duration",
    "null": "null_type",
}  # fmt: skip


class _ClauseError(CelError):
    """A value of a type that its clause does not take."""

    def __init__(self, message: str, node: Node | None = None) -> None:
        super().__init__(message)
        self.node = node


def format_text(pattern: str, values: Sequence[Any]) -> str:
    """Return the text; raises CelError."""
    return _format(
        pattern,
        len(values),
        lambda position, clause, precision: _one(values[position], clause, precision),
    )


def check_format(offset: int, pattern: str, nodes: Sequence[Node]) -> Issue | None:
    """Return what is wrong with a call at an offset, whose values are of the types of nodes."""
    used: list[int] = []

    def check(position: int, clause: str, _precision: int | None) -> str:
        used.append(position)
        _check(nodes[position], clause)
        return ""

    try:
        _format(pattern, len(nodes), check)
    except CelError as error:
        node = error.node if isinstance(error, _ClauseError) else None
        return Issue(offset if node is None else node.offset, str(error))
    if len(nodes) > len(used):
        text = (
            f"too many arguments supplied to string.format (expected {len(used)}, got {len(nodes)})"
        )
        return Issue(offset, text)
    return None


def _format(pattern: str, count: int, write: Callable[[int, str, int | None], str]) -> str:
    pieces: list[str] = []
    position, value = 0, 0
    while True:
        mark = pattern.find("%", position)
        if mark < 0:
            return "".join(pieces) + pattern[position:]
        pieces.append(pattern[position:mark])
        if pattern[mark + 1 : mark + 2] == "%":
            pieces.append("%")
            position = mark + 2
            continue
        if value >= count:
            raise CelError(f"index {value} out of range")
        if mark + 1 >= len(pattern):
            raise CelError("unexpected end of string")
        letter, precision, position = _clause(pattern, mark + 1)
        try:
            pieces.append(write(value, letter, precision))
        except _ClauseError as error:
            raise _ClauseError(f"error during formatting: {error}", error.node) from None
        value += 1


def _clause(pattern: str, start: int) -> tuple[str, int | None, int]:
    """Return the letter of a clause, its precision, and where it ends."""
    precision: int | None = None
    position = start
    prefix = "could not parse formatting clause"
    if pattern[position] == ".":
        end = position + 1
        while end < len(pattern) and pattern[end] in "0123456789":
            end += 1
        precision_error = f"{prefix}: error while parsing precision"
        if end >= len(pattern):
            raise CelError(f"{precision_error}: could not find end of precision specifier")
        digits = pattern[position + 1 : end]
        if not digits or int(digits) > 2**63 - 1:
            reason = "invalid syntax" if not digits else "value out of range"
            raise CelError(
                f"{precision_error}: error while converting precision to integer: "
                f'strconv.Atoi: parsing "{digits}": {reason}'
            )
        precision, position = int(digits), end
    letter = pattern[position]
    if letter not in _CLAUSES_BY_LETTER:
        raise CelError(f'{prefix}: unrecognized formatting clause "{letter}"')
    return letter, precision, position + 1


def _one(value: Any, clause: str, precision: int | None) -> str:  # noqa: ANN401
    name = type_name(value)
    if clause == "s":
        if name not in _ALL:
            raise _refused(clause, name)
        return text_of(value)
    if clause == "d" and name in {"int", "uint"}:
        return str(int(value))
    if clause in "fe" and (name == "double" or (name == "string" and value in _SPECIAL)):
        number = _SPECIAL[value] if name == "string" else value
        return _float_text(number, clause, _DEFAULT_PRECISION if precision is None else precision)
    if clause == "b" and name in {"int", "uint", "bool"}:
        return f"{int(value):b}"
    if clause == "o" and name in {"int", "uint"}:
        return f"{int(value):o}"
    if clause in "xX" and name in {"int", "uint"}:
        return format(int(value), clause)
    if clause in "xX" and name in {"string", "bytes"}:
        text: str = (value.encode() if name == "string" else value).hex()
        return text.upper() if clause == "X" else text
    raise _refused(clause, name)


def _refused(clause: str, name: str, node: Node | None = None) -> _ClauseError:
    told = _CLAUSES_BY_LETTER[clause].error
    return _ClauseError(f"{told}, was given {_PROTO_NAMES.get(name, name)}", node)


def _check(node: Node, clause: str) -> None:
    name = _name_of(node.type)
    if name != "dyn" and name not in _CLAUSES_BY_LETTER[clause].types:
        raise _refused(clause, name, node)
    if clause != "s":
        return
    if isinstance(node, (ListNode, MapNode)):
        for each in node.children():
            _check(each, clause)


def _name_of(type_: Type) -> str:
    return type_.name


def _float_text(number: float, clause: str, precision: int) -> str:
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "∞" if number > 0 else "-∞"
    if clause == "f":
        return f"{number:,.{precision}f}"
    mantissa, _, exponent = f"{number:.{precision}e}".partition("e")
    power = f"{'-' if exponent[0] == '-' else ''}{abs(int(exponent)):02d}"
    return f"{mantissa}{_TIMES}10{power.translate(_SUPERSCRIPTS)}"


def type_name(value: Any) -> str:  # noqa: ANN401
    """Return the name of the type of a value, as errors of this library have it."""
    if value is None:
        return "null"
    known = _NAMES.get(type(value))
    if known is not None:
        return known
    if isinstance(value, list):
        return "list"
    if isinstance(value, dict):
        return "map"
    name: str = getattr(value, "type_name", "object")
    return name


_NAMES: Final[dict[type, str]] = {
    bool: "bool", int: "int", Uint: "uint", float: "double", str: "string", bytes: "bytes",
    list: "list", dict: "map", Timestamp: "timestamp", Duration: "duration", TypeValue: "type",
}  # fmt: skip


def text_of(value: Any) -> str:  # noqa: ANN401
    """Return a value as %s prints it."""
    from kvstack.cel.library import conversions

    name = type_name(value)
    if name == "null":
        return "null"
    if name == "list":
        return f"[{', '.join(map(_inner, value))}]"
    if name == "map":
        entries = sorted(f"{_key(key)}:{_inner(each)}" for key, each in value.items())
        return f"{{{', '.join(entries)}}}"
    if name == "type":
        return str(value.name)
    if name == "bytes":
        return bytes(value).decode("utf-8", "replace")
    if name == "double":
        return format_float(value)
    if name == "bool":
        return "true" if value else "false"
    if name == "timestamp":
        return conversions.timestamp_text(value)
    if name == "duration":
        return conversions.duration_text(value)
    return str(value) if name == "string" else str(int(value))


def _inner(value: Any) -> str:  # noqa: ANN401
    """Return a value within a list or map: as an expression would have it."""
    name = type_name(value)
    if name == "string":
        return quote(value)
    if name == "bytes":
        return f"b{quote(text_of(value))}"
    if name in {"timestamp", "duration"}:
        return f"{name}({quote(text_of(value))})"
    if name == "double":
        if math.isfinite(value):
            return f"{value:.{_DEFAULT_PRECISION}f}"
        return quote({math.inf: "+Inf", -math.inf: "-Inf"}.get(value, "NaN"))
    if name not in _ALL:
        raise CelError(f"no formatting function for {name}")
    return text_of(value)


def _key(value: Any) -> str:  # noqa: ANN401
    name = type_name(value)
    if name not in {"string", "bool", "int", "uint"}:
        raise CelError(f"no formatting function for map key of type {name}")
    return _inner(value)
