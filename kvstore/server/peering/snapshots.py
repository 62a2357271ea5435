"""Database files of snapshots: made for members that need one, taken from the leader.

    SNAP message ──► child process writes the last commit as an etcd database, names its position
    first ──► a message that names that position ──► the links send what is written, as it is

    a file being received ──► child process makes a state of what has come, beside the current one

The children are `kvstore.storage.snapshots.peer_writer` and `taker`: the turn shares no
interpreter with them. What the writer reads may be a commit later than the one the message was made
at, so position, configuration and member list come from that commit itself.
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

from kvstore.errors import KvstoreError
from kvstore.peers.snapshot_sender import PIECE_BYTES, OpenSnapshot
from kvstore.raft.model import Message, Snapshot
from kvstore.storage.snapshots.arrival import PipeArrival, is_due, word
from kvstore.storage.snapshots.peer_head import snapshot_of
from kvstore.wire.varint import WireError

RUN_SECONDS_MAX: Final = 1200
_END_SECONDS_MAX: Final = 10
_PACKAGE_ROOT: Final = Path(__file__).resolve().parents[3]
_PREFIX: Final = "peer-snapshot-"
_COMPLAINT_CHARACTERS_MAX: Final = 2000


class SnapshotError(KvstoreError):
    """A database file could not be made, or no state of one."""


class DatabaseFiles:
    """Runs the processes; removes the files."""

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
        """Have the state written as it is committed, at message's position or after it."""
        path = self._tmp_dir / f"{_PREFIX}{next(self._numbers)}"
        arguments = ["peer_writer", str(self._member_dir), str(path)]
        try:
            with self._child("writing the snapshot", arguments) as child:
                child.limit_time()
                snapshot = child.read_position()
                with FileIO(path) as file:
                    path.unlink()  # the room is free again as soon as both ends have closed it
                    _check_position(snapshot, message)
                    named = Message(
                        message.type, message.to, message.from_, message.term, snapshot=snapshot
                    )
                    yield OpenSnapshot(named, child.read_file(file))
        finally:
            path.unlink(missing_ok=True)

    @contextmanager
    def take(self, index: int, path: Path) -> Iterator["Taking"]:
        """Have a state made, beside the current one, of a database that came with a snapshot.

        The snapshot stands at index; the file at path is still growing. Raises SnapshotError.
        """
        arguments = ["taker", str(self._member_dir), str(index), str(path)]
        with self._child("taking the snapshot", arguments) as child:
            yield Taking(child)

    def stop(self) -> None:
        """End the processes under way, and begin no other."""
        with self._lock:
            self._is_stopping = True
            running = list(self._running)
        for child in running:
            child.kill()

    @contextmanager
    def _child(self, doing: str, arguments: Sequence[str]) -> Iterator["_Child"]:
        """Run a module of the storage room until the end of the block."""
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


class Taking:
    """A state being made of a file that grows; for one thread."""

    def __init__(self, child: "_Child") -> None:
        self._child = child
        self._told_bytes = 0

    def grown(self, size_bytes: int) -> None:
        """Tell that the file has so many bytes now; SnapshotError if it is of no use."""
        if is_due(size_bytes, self._told_bytes):
            self._told_bytes = size_bytes
            self._child.tell(word(size_bytes))

    def finish(self, size_bytes: int) -> None:
        """Tell that the file is whole; return when the state is complete and durable."""
        self._child.limit_time()
        self._child.tell(word(size_bytes, is_whole=True))
        self._child.check()


class _Child:
    """One process of ours."""

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
        self._is_late = False

    def limit_time(self) -> None:
        """Kill it if it runs for RUN_SECONDS_MAX from now on."""
        self._timer = threading.Timer(RUN_SECONDS_MAX, self._be_late)
        self._timer.daemon = True
        self._timer.start()

    def kill(self) -> None:
        """End it from any thread; what waits for it is let go."""
        self._process.kill()

    def end(self) -> None:
        """Have it end, if it has not, and let go of all that belongs to it.

        Without its pipes it gives up and clears up after itself; if it does not, it is killed.
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

    def tell(self, data: bytes) -> None:
        """Write to its standard input."""
        try:
            _pipe(self._process.stdin).write(data)
        except BrokenPipeError:
            self.check()
            raise

    def read_position(self) -> Snapshot:
        """Return what a writer says first: where its state stands."""
        length = int.from_bytes(self._read(4), "big")
        try:
            return snapshot_of(self._read(length))
        except WireError as error:
            text = f"{self._doing}: it names no position: {error}"
            raise SnapshotError(text) from error

    def read_file(self, file: FileIO) -> Iterator[bytes]:
        """Yield the file as it is written; SnapshotError if the writer gives up."""
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
        self._wait(arrival, size_bytes + 1)  # its last word
        self.check()

    def check(self) -> None:
        """Wait for its end; SnapshotError says what it complained of."""
        complaint = _pipe(self._process.stderr).read() or b""
        code = self._process.wait()
        if self._is_late:
            raise SnapshotError(f"{self._doing} took longer than {RUN_SECONDS_MAX} s")
        if code != 0:
            text = complaint.decode("utf-8", "replace").strip() or "no reason given"
            text = text[-_COMPLAINT_CHARACTERS_MAX:]
            raise SnapshotError(f"{self._doing} failed with exit code {code}: {text}")

    def _wait(self, arrival: PipeArrival, size_bytes: int) -> int:
        try:
            return arrival.wait(size_bytes)
        except KvstoreError:
            self.check()
            raise

    def _read(self, size_bytes: int) -> bytes:
        data = b""
        while len(data) < size_bytes:
            piece = _pipe(self._process.stdout).read(size_bytes - len(data))
            if not piece:
                self.check()
                raise SnapshotError(f"{self._doing}: it ended without a word")
            data += piece
        return data

    def _be_late(self) -> None:
        if self._process.poll() is None:
            self._is_late = True
            self._process.kill()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


def _check_position(snapshot: Snapshot, message: Message) -> None:
    index = snapshot.metadata.index
    asked = message.snapshot.metadata.index if message.snapshot is not None else 0
    if index < asked:
        raise SnapshotError(f"the state on disk is at index {index}, before {asked}")
