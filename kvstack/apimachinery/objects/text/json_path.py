"""JSONPath templates as kubectl and printer columns have them, taken apart.

    parse("{.spec.containers[0].name}")
    → [[Field("spec"), Field("containers"), Slice(0, 1, None), Field("name")]]

A template is text with actions in braces; each action is a list of steps from the current object.
Values are found elsewhere.
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from kvstack.apimachinery.objects.text.go_numbers import NumberError, atoi


class JsonPathError(ValueError):
    """A template cannot be understood; the message is Kubernetes'."""


class Text(NamedTuple):
    """A literal text."""

    text: str


class Field(NamedTuple):
    """A member of an object."""

    name: str


class Wildcard(NamedTuple):
    """All members or items."""


class Recursive(NamedTuple):
    """Everything below, in any depth."""


class Identifier(NamedTuple):
    """A keyword such as `range` or `end`."""

    name: str


class Literal(NamedTuple):
    """A number or truth value."""

    value: bool | int | float


class Slice(NamedTuple):
    """Items of a list, `[start:end:step]`; None: absent. A single item has end = start + 1."""

    start: int | None
    end: int | None
    step: int | None


class Union(NamedTuple):
    """Several choices of items, one after the other."""

    choices: "list[list[Step]]"


class Filter(NamedTuple):
    """The items for which a comparison holds; the operator `exists` has no right side."""

    left: "list[Step]"
    right: "list[Step]"
    operator: str


Step = Text | Field | Wildcard | Recursive | Identifier | Literal | Slice | Union | Filter

_TERMINATORS: Final = frozenset(" \t\r\n.,[]$@{}")
_QUOTED_KEY: Final = re.compile(r"'([^']*)'", re.DOTALL)
_SLICE: Final = re.compile(r"(-?[0-9]*)(:-?[0-9]*)?(:-?[0-9]*)?")
_COMPARISON: Final = re.compile(r"([^!<>=]+)([!<>=]+)(.+)")
_NUMBER: Final = re.compile(r"[+-]?[.\d]*")
_FLOAT: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)", re.ASCII)
_DIGITS: Final = {"x": 2, "u": 4, "U": 8}
_ESCAPES: Final = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
}
_CODE_MAX: Final = 0x10FFFF


def parse(template: str) -> list[Text | list[Step]]:
    """Return the texts and actions of a template; raises JsonPathError."""
    parts: list[Text | list[Step]] = []
    position = 0
    while (brace := template.find("{", position)) >= 0:
        if brace > position:
            parts.append(Text(template[position:brace]))
        action = _Action(template, brace + 1)
        parts.append(action.read())
        position = action.position
    if position < len(template):
        parts.append(Text(template[position:]))
    return parts


def _action(text: str) -> list[Step]:
    """Return the steps of an action without its braces."""
    return _Action(f"{text}}}", 0).read()


class _Action:
    """One action, from behind its brace on."""

    def __init__(self, text: str, position: int) -> None:
        self._text = text
        self.position = position
        self._steps: list[Step] = []

    def read(self) -> list[Step]:
        """Return its steps; `position` is then behind its end."""
        while not self._text.startswith("}", self.position):
            self._step()
        self.position += 1
        return self._steps

    def _step(self) -> None:
        text, position = self._text, self.position
        if text.startswith("[?(", position):
            self._filter()
        elif text.startswith("..", position):
            self._recursive()
        elif position >= len(text) or text[position] in "\r\n":
            raise JsonPathError("unclosed action")
        else:
            self._token(text[position])

    def _token(self, first: str) -> None:
        if first in " @$":
            self.position += 1
        elif first in _READERS:
            _READERS[first](self)
        elif first in "+-" or first.isdecimal():
            self._number()
        elif first == "_" or first.isalpha():
            self._word()
        else:
            shown = f" '{first}'" if first.isprintable() else ""
            raise JsonPathError(f"unrecognized character in action: U+{ord(first):04X}{shown}")

    def _until_terminator(self, *, is_escaped: bool) -> str:
        text, end = self._text, self.position
        while end < len(text) and text[end] not in _TERMINATORS:
            end += 2 if is_escaped and text[end] == "\\" else 1
        found = text[self.position : end]
        self.position = min(end, len(text))
        return found

    def _word(self) -> None:
        word = self._until_terminator(is_escaped=False)
        is_bool = word in {"true", "false"}
        self._steps.append(Literal(word == "true") if is_bool else Identifier(word))

    def _field(self) -> None:
        self.position += 1
        self._name()

    def _name(self) -> None:
        name = self._until_terminator(is_escaped=True)
        self._steps.append(Wildcard() if name == "*" else Field(name.replace("\\", "")))

    def _recursive(self) -> None:
        if self._steps and isinstance(self._steps[-1], Recursive):
            raise JsonPathError("invalid multiple recursive descent")
        self.position += 2
        self._steps.append(Recursive())
        following = self._text[self.position : self.position + 1]
        if following == "_" or following.isalpha() or following.isdecimal():
            self._name()

    def _number(self) -> None:
        match = _NUMBER.match(self._text, self.position)
        assert match is not None
        text = match[0]
        self.position = match.end()
        try:
            self._steps.append(Literal(atoi(text)))
        except NumberError:
            if not _FLOAT.fullmatch(text):
                raise JsonPathError(f"cannot parse number {text}") from None
            self._steps.append(Literal(float(text)))

    def _array(self) -> None:
        end = self._text.find("]", self.position)
        line = self._text.find("\n", self.position)
        if end < 0 or 0 <= line < end:
            raise JsonPathError("unterminated array")
        inside = self._text[self.position + 1 : end]
        self.position = end + 1
        choices = inside.split(",")
        if len(choices) > 1:
            self._steps.append(Union([_action(f"[{each.strip(' ')}]") for each in choices]))
        elif key := _QUOTED_KEY.fullmatch(inside):
            self._steps += _action(f".{key[1]}")
        else:
            self._steps.append(_slice(":" if inside == "*" else inside))

    def _filter(self) -> None:
        start = self.position + len("[?(")
        end = self._filter_end(start)
        if self._text[end + 1 : end + 2] != "]":
            raise JsonPathError("unclosed array expect ]")
        inside = self._text[start:end]
        self.position = end + 2
        match = _COMPARISON.fullmatch(inside)
        if match is None:
            self._steps.append(Filter(_action(inside), [], "exists"))
        else:
            self._steps.append(Filter(_action(match[1]), _action(match[3]), match[2]))

    def _filter_end(self, start: int) -> int:
        """Return the position of a filter's closing parenthesis; it may have one pair of quotes."""
        text, quote, is_closed = self._text, "", False
        for position in range(start, len(text)):
            character = text[position]
            if character == "\n":
                break
            if character in "\"'":
                if not quote:
                    quote = character
                elif character == quote and text[position - 1] != "\\":
                    is_closed = True
            elif character == ")" and bool(quote) == is_closed:
                return position
        raise JsonPathError("unterminated filter")

    def _quoted(self) -> None:
        text, start = self._text, self.position
        end = start + 1
        while end < len(text) and text[end] != "\n":
            if text[end] == text[start] and text[end - 1] != "\\":
                break
            end += 1
        else:
            raise JsonPathError("unterminated quoted string")
        self.position = end + 1
        self._steps.append(Text(_unquoted(text[start : end + 1])))


_READERS: Final[dict[str, Callable[[_Action], None]]] = {
    "[": _Action._array,  # noqa: SLF001
    '"': _Action._quoted,  # noqa: SLF001
    "'": _Action._quoted,  # noqa: SLF001
    ".": _Action._field,  # noqa: SLF001
}


def _slice(text: str) -> Slice:
    match = _SLICE.fullmatch(text)
    if match is None:
        raise JsonPathError(f"invalid array index {text}")
    start, end, step = (_bound(each) for each in match.groups())
    if match[2] is None:
        end = (start or 0) + 1
    return Slice(start, end, step)


def _bound(text: str | None) -> int | None:
    digits = (text or "").removeprefix(":")
    if not digits:
        return None
    try:
        return atoi(digits)
    except NumberError:
        raise JsonPathError(f"array index {digits} is not a number") from None


def _unquoted(quoted: str) -> str:
    """Return the contents of a quoted text, with either kind of quotes."""
    quote, text = quoted[0], quoted[1:-1]
    pieces: list[str] = []
    position = 0
    while position < len(text):
        length, piece = _character(text, position, quote)
        if not length:
            raise JsonPathError(f"unquote string {quoted} error invalid syntax")
        pieces.append(piece)
        position += length
    return "".join(pieces)


def _character(text: str, position: int, quote: str) -> tuple[int, str]:
    """Return how many characters of the text make the next one, and that; 0: none."""
    if text[position] != "\\":
        return (0, "") if text[position] == quote else (1, text[position])
    escape = text[position + 1 : position + 2]
    if escape in _ESCAPES:
        return 2, _ESCAPES[escape]
    if escape and escape == quote:
        return 2, escape
    if escape in _DIGITS:
        return _code(text[position + 2 : position + 2 + _DIGITS[escape]], _DIGITS[escape], 16, 2)
    if escape and escape in "01234567":
        length, piece = _code(text[position + 1 : position + 4], 3, 8, 1)
        return (0, "") if length and ord(piece) > 0xFF else (length, piece)
    return 0, ""


def _code(digits: str, length: int, base: int, before: int) -> tuple[int, str]:
    allowed = "0123456789abcdefABCDEF" if base == 16 else "01234567"
    if len(digits) < length or digits.strip(allowed):
        return 0, ""
    code = int(digits, base)
    return (before + length, chr(code)) if code <= _CODE_MAX else (0, "")
