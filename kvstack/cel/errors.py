"""The errors of an expression: it does not compile, or its evaluation fails.

format_issues("foo", [Issue(0, "undeclared reference to 'foo' (in container '')")])
→ ERROR: <input>:1:1: undeclared reference to 'foo' (in container '')
   | foo
   | ^
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

_ISSUES_MAX: Final = 100
_SNIPPET_MAX: Final = 16384


class Issue(NamedTuple):
    """One error of compilation."""

    offset: int
    """The offset of the character it is about; negative: none."""
    message: str


class CompileError(ValueError):
    """An expression that does not compile; the message holds all issues."""


class EvaluationError(Exception):
    """An evaluation that failed; the message is what users see."""


class CelError(EvaluationError):
    """One that operators absorb: `false && 1 / 0 == 1` is false."""


class NoSuchOverloadError(CelError):
    """A function that is not there for values of these types."""

    def __init__(self) -> None:
        """Say so."""
        super().__init__("no such overload")


class CostError(EvaluationError):
    """An evaluation that cost more than it may."""

    def __init__(self) -> None:
        """Say so."""
        super().__init__("operation cancelled: actual cost limit exceeded")


def format_issues(source: str, issues: Iterable[Issue]) -> str:
    """Return issues as one text, in the order of where they are, each with its line."""
    positions = [(*_line_and_column(source, each.offset), each.message) for each in issues]
    total = len(positions)
    del positions[_ISSUES_MAX:]
    positions.sort(key=lambda each: each[:2])
    lines = source.split("\n")
    texts = [_one(lines, *each) for each in positions]
    if total > _ISSUES_MAX:
        texts.append(f"{total - _ISSUES_MAX} more errors were truncated")
    return "\n".join(texts)


def _line_and_column(source: str, offset: int) -> tuple[int, int]:
    """Return the line from 1 and the column from 0."""
    if offset < 0 or not source:
        return 1, -1
    before = source[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1)


def _one(lines: list[str], line: int, column: int, message: str) -> str:
    text = f"ERROR: <input>:{line}:{column + 1}: {message}"
    snippet = lines[line - 1].replace("\t", " ") if line <= len(lines) else ""
    if lines == [""] or len(snippet) > _SNIPPET_MAX:
        return text
    marks = "".join("." if each.isascii() else "\uff0e" for each in snippet[: max(column, 0)])
    under = snippet[max(column, 0) : max(column, 0) + 1]
    return f"{text}\n | {snippet}\n | {marks}{'^' if under.isascii() else chr(0xFF3E)}"
