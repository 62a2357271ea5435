"""The lines of a container log, in CRI's format, that a reader selects.

    2026-11-22T12:00:00.123456789Z stdout F text

P instead of F: the line goes on in the next entry.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kvstack.apimachinery.objects.times import Moment, parse_time


@dataclass(frozen=True, slots=True)
class Selection:
    """The part of a log that a reader requests."""

    tail_lines: int | None = None
    since_ns: int = 0
    """Since 1970; 0: from the beginning."""
    limit_bytes: int | None = None
    has_timestamps: bool = False


class Reader:
    """Turns log entries into what a reader sees."""

    def __init__(self, selection: Selection) -> None:
        """Start at the beginning of a line."""
        self._selection = selection
        self._left = selection.limit_bytes
        self._is_line_start = True

    @property
    def is_full(self) -> bool:
        """Whether the limit is reached."""
        return self._left is not None and self._left <= 0

    def read(self, entries: Iterable[bytes]) -> bytes:
        """Return what is shown of entries, given without their newlines."""
        out = bytearray()
        for entry in entries:
            if self.is_full:
                break
            stamp, _, rest = entry.partition(b" ")
            _, _, rest = rest.partition(b" ")
            tag, _, text = rest.partition(b" ")
            if self._selection.since_ns and _nanoseconds(stamp) < self._selection.since_ns:
                continue
            shown = text if tag.startswith(b"P") else text + b"\n"
            if self._selection.has_timestamps and self._is_line_start:
                shown = stamp + b" " + shown
            self._is_line_start = shown.endswith(b"\n")
            if self._left is not None:
                shown = shown[: self._left]
                self._left -= len(shown)
            out += shown
        return bytes(out)


def tail(entries: list[bytes], count: int | None) -> Iterator[bytes]:
    """Give the last entries; None: all."""
    return iter(entries if count is None else entries[max(0, len(entries) - count) :])


def _nanoseconds(stamp: bytes) -> int:
    moment: Moment = parse_time(stamp.decode("ascii", "replace"))
    return moment.seconds * 1_000_000_000 + moment.nanoseconds
