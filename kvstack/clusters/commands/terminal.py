"""Output of commands: progress on a terminal, results, and errors.

with Terminal() as terminal:
    terminal.say("reading: 812 objects")      one line, written over; nothing in a pipe
    terminal.print("fork …")                  to standard output
    terminal.note("left out: …")              to standard error
"""

import os
import sys
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from kvstack.component.errors import ComponentError
from kvstack.component.process.program import FAILED
from kvstack.component.process.standard_streams import discard_output

if TYPE_CHECKING:
    from kvstack.clusters.contents import LeftOut

_CLEAR: Final = "\r\x1b[K"
_WIDTH: Final = 100
_NAMES_MAX: Final = 8
_LINES_MAX: Final = 20
INTERRUPTED: Final = 130


class Terminal:
    """The streams of a command."""

    def __init__(self) -> None:
        """Show progress if standard error is a terminal."""
        self._shows_progress: Final = sys.stderr.isatty()
        self._is_begun = False

    def say(self, text: str) -> None:
        """Replace the line of progress."""
        if self._shows_progress:
            width = min(_columns(), _WIDTH)
            line = text if len(text) < width else f"{text[: width - 2]}…"
            sys.stderr.write(f"{_CLEAR}{line}")
            sys.stderr.flush()
            self._is_begun = True

    def print(self, text: str) -> None:
        """Write a result."""
        self.clear()
        sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
        sys.stdout.flush()

    def note(self, text: str) -> None:
        """Write a message that is not a result."""
        self.clear()
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    def clear(self) -> None:
        """Remove the line of progress."""
        if self._is_begun:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
            self._is_begun = False

    def __enter__(self) -> Self:
        """Return the terminal."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the line of progress."""
        self.clear()


def run(body: Callable[[Terminal], int], *, failed: int = FAILED) -> int:
    """Run a command; return its exit code, `failed` for errors that users can fix."""
    with Terminal() as terminal:
        try:
            return body(terminal)
        except ComponentError as error:
            terminal.note(f"Error: {error}")
            return failed
        except KeyboardInterrupt:
            terminal.note("interrupted")
            return INTERRUPTED
        except BrokenPipeError:
            discard_output(sys.stdout)
            return failed


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or _WIDTH
    except OSError:
        return _WIDTH


def left_out_lines(left_out: Iterable["LeftOut"]) -> list[str]:
    """Return what was left out, one line per reason."""
    by_reason: dict[str, list[str]] = {}
    for each in left_out:
        number = f" ({each.number} objects)" if each.number > 1 else ""
        by_reason.setdefault(each.why, []).append(f"{each.what}{number}")
    lines = []
    for why, names in by_reason.items():
        more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
        lines.append(f"{', '.join(names[:_NAMES_MAX])}{more}: {why}")
    if len(lines) > _LINES_MAX:
        lines[_LINES_MAX:] = [f"{len(lines) - _LINES_MAX} more reasons"]
    return lines


def shown_path(path: str) -> str:
    """Return a path as people write it: below ~ where it is."""
    home = os.path.expanduser("~")
    return f"~{path[len(home) :]}" if home != "/" and path.startswith(f"{home}/") else path


def table(rows: list[tuple[str, ...]]) -> str:
    """Return rows as columns; the first row is the heads."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join(lines) + "\n"
