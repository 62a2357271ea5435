"""The log of one container, in CRI's format.

    2026-11-22T12:00:00.123456789Z stdout F text

P instead of F: the line goes on in the next entry. `reopen` opens the file again, after it
has given the old one another name.
"""

import os
import time
from typing import Final

PIECE_BYTES_MAX: Final = 16 * 1024
"""Longer lines are written in pieces."""
_STREAMS: Final = {1: b"stdout", 2: b"stderr"}


class Splitter:
    """Turns what one stream writes into log entries."""

    def __init__(self, stream: int) -> None:
        """stream: 1 for output, 2 for errors."""
        self._name = _STREAMS[stream]
        self._rest = b""

    def feed(self, data: bytes, now_ns: int) -> bytes:
        """Return the entries that are whole now."""
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        head = stamp(now_ns) + b" " + self._name
        out = bytearray()
        for line in lines:
            *pieces, last = _pieces(line)
            for piece in pieces:
                out += head + b" P " + piece + b"\n"
            out += head + b" F " + last + b"\n"
        while len(self._rest) >= PIECE_BYTES_MAX:
            out += head + b" P " + self._rest[:PIECE_BYTES_MAX] + b"\n"
            self._rest = self._rest[PIECE_BYTES_MAX:]
        return bytes(out)

    def end(self, now_ns: int) -> bytes:
        """Return the entry of a last line that nothing ended."""
        rest, self._rest = self._rest, b""
        return stamp(now_ns) + b" " + self._name + b" P " + rest + b"\n" if rest else b""


def _pieces(line: bytes) -> list[bytes]:
    return [line[at : at + PIECE_BYTES_MAX] for at in range(0, len(line), PIECE_BYTES_MAX)] or [b""]


def stamp(now_ns: int) -> bytes:
    """Return a time as entries begin with it; now_ns: since 1970."""
    seconds, nanoseconds = divmod(now_ns, 1_000_000_000)
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{nanoseconds:09}Z".encode()


class LogFile:
    """One log; entries are written whole."""

    def __init__(self, path: str) -> None:
        """Open a log; existing contents are kept."""
        self._path = path
        self._splitters = {1: Splitter(1), 2: Splitter(2)}
        self._file = self._open()

    def add(self, stream: int, data: bytes) -> None:
        """Add what a stream wrote."""
        self._write(self._splitters[stream].feed(data, time.time_ns()))

    def reopen(self) -> None:
        """Go on in a new file."""
        fresh = self._open()
        os.close(self._file)
        self._file = fresh

    def close(self) -> None:
        """Write the last, unfinished lines."""
        for each in self._splitters.values():
            self._write(each.end(time.time_ns()))
        os.close(self._file)

    def _write(self, entries: bytes) -> None:
        while entries:
            entries = entries[os.write(self._file, entries) :]

    def _open(self) -> int:
        # Pods with a hostPath of the logs could put links there.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(self._path, flags, 0o640)
