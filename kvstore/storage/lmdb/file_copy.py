"""Copies what a source writes into a file, on threads of its own.

    source ──► pipe ──► writer ──► file, synced now and then and at the end

The pipe is what makes the copy stoppable: with its reading end closed the source fails.
"""

import errno
import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

PIPE_BYTES: Final = 1 << 20
SYNC_EVERY_BYTES: Final = 4 << 20  # small syncs: the log's fsync never waits behind a large one


class BackgroundCall:
    """One call on a thread of its own, for what would make the turn wait."""

    def __init__(self, call: Callable[[], None], name: str) -> None:
        """Begin the call."""
        self._call = call
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    def running(self) -> bool:
        """Return whether the call has not returned yet."""
        return self._thread.is_alive()

    def error(self) -> Exception | None:
        """Return what the finished call raised, or None."""
        return self._error

    def join(self) -> None:
        """Wait until the call has returned."""
        self._thread.join()

    def _run(self) -> None:
        try:
            self._call()
        except Exception as error:  # noqa: BLE001 - the turn's thread asks for it
            self._error = error


class FileCopy:
    """A source that writes into a pipe, and the file at the other end; two threads."""

    def __init__(self, source: Callable[[int], None], path: Path) -> None:
        """Begin to copy; source(fd) writes everything into fd and returns."""
        self._source = source
        self._path = path
        self._cancelled = threading.Event()
        self._read_fd, self._write_fd = os.pipe()
        _widen(self._write_fd)
        self._reader = BackgroundCall(self._run_source, "defragment-read")
        self._writer = BackgroundCall(self._run_writer, "defragment-write")

    def running(self) -> bool:
        """Return whether the copy is still under way."""
        return self._reader.running() or self._writer.running()

    def error(self) -> Exception | None:
        """Return why the finished copy failed, or None if it is complete and synced."""
        return self._writer.error() or self._reader.error()

    def cancel(self) -> None:
        """Ask the threads to stop soon; does not wait."""
        self._cancelled.set()

    def join(self) -> None:
        """Wait until both threads have ended."""
        self._reader.join()
        self._writer.join()

    def _run_source(self) -> None:
        try:
            self._source(self._write_fd)
        finally:
            os.close(self._write_fd)

    def _run_writer(self) -> None:
        try:
            self._write_all()
        finally:
            os.close(self._read_fd)

    def _write_all(self) -> None:
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            unsynced_bytes = 0
            while chunk := os.read(self._read_fd, PIPE_BYTES):
                if self._cancelled.is_set():
                    raise OSError(errno.ECANCELED, os.strerror(errno.ECANCELED))
                _write_chunk(fd, chunk)
                unsynced_bytes += len(chunk)
                if unsynced_bytes >= SYNC_EVERY_BYTES:
                    os.fdatasync(fd)
                    unsynced_bytes = 0
            os.fsync(fd)
        finally:
            os.close(fd)


def _write_chunk(fd: int, chunk: bytes) -> None:
    view = memoryview(chunk)
    while view:
        view = view[os.write(fd, view) :]


def _widen(pipe_fd: int) -> None:
    """Make the pipe hold PIPE_BYTES, so that the threads seldom need the interpreter's lock."""
    try:
        fcntl.fcntl(pipe_fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    except PermissionError:
        return  # the user's limit on pipe memory is reached: this pipe stays small and slower
