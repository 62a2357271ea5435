"""A progress line for long work, shown if standard error is a terminal.

    with bar("importing", state.size_bytes) as advance:  advance(bytes done since the last call)

    importing   42 %    512.0 of 1219.0 MiB   85.3 MiB/s

Without a terminal the calls do nothing. The line is erased at the end.
"""

import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TextIO

from kvstore.backend import Row

Advance = Callable[[int], None]
REPORT_BYTES: Final = 1 << 20

_REDRAW_S: Final = 0.1
_MIB: Final = 1 << 20
_ERASE: Final = "\r\x1b[K"


class ProgressLine:
    """One line of a terminal that is redrawn."""

    def __init__(
        self,
        description: str,
        total_bytes: int,
        terminal: TextIO,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create the bar; seconds: the clock."""
        self._description = description
        self._total_bytes = max(total_bytes, 1)
        self._terminal = terminal
        self._seconds = seconds
        self._begin_s = self._drawn_s = seconds()
        self._done_bytes = 0

    def advance(self, count: int) -> None:
        """Add bytes that are done; draws at most ten times a second."""
        self._done_bytes += count
        now_s = self._seconds()
        if now_s - self._drawn_s >= _REDRAW_S:
            self.draw(now_s)

    def draw(self, now_s: float) -> None:
        """Draw the line."""
        self._drawn_s = now_s
        self._write(_ERASE + self._text(now_s)[: shutil.get_terminal_size().columns - 1])

    def erase(self) -> None:
        """Erase the line."""
        self._write(_ERASE)

    def _text(self, now_s: float) -> str:
        done = min(self._done_bytes, self._total_bytes)
        rate = self._done_bytes / _MIB / max(now_s - self._begin_s, _REDRAW_S)
        return (
            f"{self._description}  {100 * done // self._total_bytes:3} %  "
            f"{done / _MIB:8.1f} of {self._total_bytes / _MIB:.1f} MiB  {rate:.1f} MiB/s"
        )

    def _write(self, text: str) -> None:
        self._terminal.write(text)
        self._terminal.flush()


@contextmanager
def bar(description: str, total_bytes: int) -> Iterator[Advance]:
    """Show the progress towards about total_bytes."""
    if not sys.stderr.isatty():
        yield _nothing
        return
    line = ProgressLine(description, total_bytes, sys.stderr)
    line.draw(time.monotonic())
    try:
        yield line.advance
    finally:
        line.erase()


def tracked(rows: Iterable[Row], advance: Advance) -> Iterator[Row]:
    """Yield rows, calling advance with their bytes."""
    if advance is _nothing:
        yield from rows
        return
    unreported_bytes = 0
    for row in rows:
        unreported_bytes += len(row[0]) + len(row[1])
        if unreported_bytes >= REPORT_BYTES:
            advance(unreported_bytes)
            unreported_bytes = 0
        yield row
    advance(unreported_bytes)


def _nothing(count: int) -> None:
    """Show nothing."""
