"""Database files of snapshots: written for members that need one, imported from the leader.

    SNAP message ──► child process: reports its position, writes the last commit as a database
                ──► a message with that position, then the file as it is written ──► the links

    a file being received ──► child process: makes a state of it, beside the current one

The children are `kvstore.storage.snapshots.peer_writer` and `importer`, so that the turn does not
share its interpreter with them. The writer may read a later commit than the one the message was
made at, so position, configuration and member list come from that commit.
"""

import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import FileIO
from itertools import count
from pathlib import Path
from typing import IO, Final

from kvstack.component.errors import ComponentError
from kvstore.errors import KvstoreError
from kvstore.peers.snapshots.snapshot_sender import PIECE_BYTES, OpenSnapshot
from kvstore.raft.model import Message, Snapshot
from kvstore.storage.snapshots.arrival import PipeArrival, is_report_due, report
from kvstore.storage.snapshots.peer_head import snapshot_of
from kvstore.wire.varint import WireError

RUN_SECONDS_MAX: Final = 1200
_END_SECONDS_MAX: Final = 10
_PACKAGE_ROOT: Final = Path(__file__).resolve().parents[3]
_PREFIX: Final = "peer-snapshot-"
_ERROR_CHARACTERS_MAX: Final = 2000


class SnapshotError(KvstoreError):
    """A database file could not be written or imported."""


class DatabaseFiles:
    """Runs the child processes and removes their files."""

    def __init__(self, member_dir: Path, tmp_dir: Path) -> None:
        """Write the state under member_dir to files in tmp_dir; removes older such files.

        Raises OSError if tmp_dir cannot be made or cleared.
        """
        self._member_dir = member_dir.absolute()
        self._tmp_dir = tmp_dir.absolute()
        self._numbers = count(1)
        self._lock = threading.Lock()
        self._running: set[_Child] = set()
        self._is_stopping = False
        self._tmp_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        for leftover in self._tmp_dir.glob(f"{_PREFIX}*"):
            leftover.unlink()

    @contextmanager
    def open(self, message: Message) -> Iterator[OpenSnapshot]:
        """Write the last commit, which is at message's position or after it."""
        path = self._tmp_dir / f"{_PREFIX}{next(self._numbers)}"
        arguments = ["peer_writer", str(self._member_dir), str(path)]
        try:
            with self._child("writing the snapshot", arguments) as child:
                child.limit_time()
                snapshot = child.read_position()
                with FileIO(path) as file:
                    path.unlink()  # its space is freed once both processes have closed it
                    _check_position(snapshot, message)
                    positioned = Message(
                        message.type, message.to, message.from_, message.term, snapshot=snapshot
                    )
                    yield OpenSnapshot(positioned, child.read_file(file))
        finally:
            path.unlink(missing_ok=True)

    @contextmanager
    def begin_import(self, index: int, path: Path) -> Iterator["DatabaseImport"]:
        """Make a state, beside the current one, of a database that came with a snapshot.

        index is the snapshot's; the file at path is still growing. Raises SnapshotError.
        """
        arguments = ["importer", str(self._member_dir), str(index), str(path)]
        with self._child("taking the snapshot", arguments) as child:
            yield DatabaseImport(child)

    def stop(self) -> None:
        """End the running processes, and start no others."""
        with self._lock:
            self._is_stopping = True
            running = list(self._running)
        for child in running:
            child.kill()

    @contextmanager
    def _child(self, doing: str, arguments: Sequence[str]) -> Iterator["_Child"]:
        """Run a module of kvstore.storage.snapshots until the end of the block."""
        with self._lock:
            if self._is_stopping:
                raise SnapshotError("this member is stopping")
            child = _Child(doing, arguments)
            self._running.add(child)
        try:
            yield child
        finally:
            child.end()
            with self._lock:
                self._running.discard(child)


class DatabaseImport:
    """The import of a file that is still growing; for one thread."""

    def __init__(self, child: "_Child") -> None:
        self._child = child
        self._reported_bytes = 0

    def report_growth(self, size_bytes: int) -> None:
        """Report the file's size; SnapshotError if the import has failed."""
        if is_report_due(size_bytes, self._reported_bytes):
            self._reported_bytes = size_bytes
            self._child.send(report(size_bytes))

    def finish(self, size_bytes: int) -> None:
        """Report that the file is complete; return when the state is complete and durable."""
        self._child.limit_time()
        self._child.send(report(size_bytes, is_complete=True))
        self._child.check()


class _Child:
    """One child process."""

    def __init__(self, doing: str, arguments: Sequence[str]) -> None:
        self._doing = doing
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"kvstore.storage.snapshots.{arguments[0]}", *arguments[1:]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=_PACKAGE_ROOT,  # where -m finds the package if it is not installed
        )
        self._timer: threading.Timer | None = None
        self._has_timed_out = False

    def limit_time(self) -> None:
        """Kill it if it runs for another RUN_SECONDS_MAX."""
        self._timer = threading.Timer(RUN_SECONDS_MAX, self._time_out)
        self._timer.daemon = True
        self._timer.start()

    def kill(self) -> None:
        """Kill it, from any thread; its waiter gets an error."""
        self._process.kill()

    def end(self) -> None:
        """Make it end, if it has not, and close its pipes.

        Once its pipes are closed it removes its files and ends; if it does not, it is killed.
        """
        process = self._process
        if self._timer is not None:
            self._timer.cancel()
        for pipe in (process.stdin, process.stdout):
            _pipe(pipe).close()
        try:
            process.wait(_END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        _pipe(process.stderr).close()

    def send(self, data: bytes) -> None:
        """Write to its standard input."""
        try:
            _pipe(self._process.stdin).write(data)
        except BrokenPipeError:
            self.check()
            raise

    def read_position(self) -> Snapshot:
        """Return what a writer reports first: the position of its state."""
        length = int.from_bytes(self._read(4), "big")
        try:
            return snapshot_of(self._read(length))
        except WireError as error:
            text = f"{self._doing}: no position was reported: {error}"
            raise SnapshotError(text) from error

    def read_file(self, file: FileIO) -> Iterator[bytes]:
        """Yield the file as it is written; SnapshotError if the writer fails."""
        size_bytes = int.from_bytes(self._read(8), "big")
        arrival = PipeArrival(_pipe(self._process.stdout).fileno())
        sent = 0
        while sent < size_bytes:
            written = self._wait(arrival, sent + 1)
            while sent < written:
                piece = file.read(min(PIECE_BYTES, written - sent))
                if not piece:
                    raise SnapshotError(f"{self._doing}: the file ends before {written} bytes")
                sent += len(piece)
                yield piece
        self._wait(arrival, size_bytes + 1)  # its last report
        self.check()

    def check(self) -> None:
        """Wait for its end; SnapshotError with its error output if it failed."""
        error = _pipe(self._process.stderr).read() or b""
        code = self._process.wait()
        if self._has_timed_out:
            raise SnapshotError(f"{self._doing} took longer than {RUN_SECONDS_MAX} s")
        if code != 0:
            text = error.decode("utf-8", "replace").strip() or "no reason given"
            text = text[-_ERROR_CHARACTERS_MAX:]
            raise SnapshotError(f"{self._doing} failed with exit code {code}: {text}")

    def _wait(self, arrival: PipeArrival, size_bytes: int) -> int:
        try:
            return arrival.wait(size_bytes)
        except ComponentError:
            self.check()
            raise

    def _read(self, size_bytes: int) -> bytes:
        data = b""
        while len(data) < size_bytes:
            piece = _pipe(self._process.stdout).read(size_bytes - len(data))
            if not piece:
                self.check()
                raise SnapshotError(f"{self._doing}: the process ended without a report")
            data += piece
        return data

    def _time_out(self) -> None:
        if self._process.poll() is None:
            self._has_timed_out = True
            self._process.kill()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


def _check_position(snapshot: Snapshot, message: Message) -> None:
    index = snapshot.metadata.index
    asked = message.snapshot.metadata.index if message.snapshot is not None else 0
    if index < asked:
        raise SnapshotError(f"the state on disk is at index {index}, before {asked}")
