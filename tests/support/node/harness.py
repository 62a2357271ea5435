"""A real Node, turned by hand: no process, no socket, a clock that the test moves.

    harness = Harness(data_dir, disk, flags=["--snapshot-count=10"])
    response = harness.call(rpc.PUT, pb.PutRequest(key=b"k", value=b"v"))
    stream = harness.open(rpc.WATCH); harness.send(stream, request); harness.messages(stream)
    harness.close()

Log, snapshot files and member directory are real files under data_dir. The state is LMDB there, or
a MemoryBackend; both and the files share one Disk, which counts every call that changes anything
and can make the n-th and all later ones fail.
"""

import os
import socket
import time
from pathlib import Path
from typing import Any

from google.protobuf.message import Message
from typing_extensions import override

from kvstack.component.clock import Clock
from kvstack.component.line_log.line_logger import LineLogger
from kvstore.backend import Backend
from kvstore.batch import Inbox, Outbox, messages
from kvstore.config.initial_cluster import initial_members
from kvstore.config.parse import configure
from kvstore.config.sources import read_command_line
from kvstore.errors import KvstoreError, StorageFatalError
from kvstore.node.turn import Node
from kvstore.server.boot.assemble import build
from kvstore.server.boot.bootstrap import Founding, boot
from kvstore.server.boot.data_dir import prepare
from kvstore.server.boot.state import snapshot_files
from kvstore.storage.lmdb.backend import LmdbBackend
from kvstore.storage.memory_backend import MemoryBackend
from kvstore.storage.wal.wal import SEGMENT_BYTES
from kvstore.wire import rpc
from tests.support.disks.fault_files import FaultFiles

TURNS_MAX = 10_000
WAIT_MAX_S = 60.0
TURN_NS = 20_000_000
FIRST_NS = 1_000_000_000


class CallError(Exception):
    """A call was answered with an error."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code
        self.text = text


class Disk(FaultFiles):
    """The files of one member, and its state if that is kept in memory; survives the node.

    It forgets at a restart what was written to the files and not synced: the power was cut.
    """

    def __init__(self, *, in_memory: bool, short_write: bool = False) -> None:
        super().__init__(None, short_write=short_write)
        self.in_memory = in_memory
        self._unsynced: dict[int, list[tuple[int, int, bytes]]] = {}  # (file, offset, before)
        self._memory = FaultyMemoryBackend(self)

    def restart(self, fail_at: int | None = None) -> None:
        """Be what the next process finds."""
        self._lose_unsynced()
        self.calls = []
        self.fail_at = fail_at
        survivor = self._memory.crash()
        self._memory = FaultyMemoryBackend(self)
        vars(self._memory).update(vars(survivor))

    def open_backend(self, directory: Path) -> Backend:
        """Open the state."""
        return self._memory if self.in_memory else FaultyLmdbBackend(directory, self)

    def commit(self) -> None:
        """Count a commit, and let it fail if its time has come."""
        try:
            self._do("commit", lambda: None)
        except OSError as error:
            raise StorageFatalError(f"commit failed: {error}") from error

    @override
    def write(self, handle: int, offset: int, data: bytes) -> int:
        before = os.pread(handle, len(data), offset)
        taken = super().write(handle, offset, data)
        self._unsynced.setdefault(handle, []).append((os.dup(handle), offset, before))
        return taken

    @override
    def allocate(self, handle: int, size_bytes: int) -> None:
        # No blocks: it is faster. A file is never made shorter.
        longer_bytes = max(size_bytes, os.fstat(handle).st_size)
        self._do("allocate", lambda: os.ftruncate(handle, longer_bytes))

    @override
    def sync_data(self, handle: int) -> None:
        super().sync_data(handle)
        self._forget(handle)

    @override
    def sync(self, handle: int) -> None:
        super().sync(handle)
        self._forget(handle)

    def _forget(self, handle: int) -> None:
        for file, _, _ in self._unsynced.pop(handle, []):
            os.close(file)

    def _lose_unsynced(self) -> None:
        for writes in self._unsynced.values():
            for file, offset, before in reversed(writes):
                os.pwrite(file, before, offset)
                os.close(file)
        self._unsynced.clear()


class FaultyMemoryBackend(MemoryBackend):
    """A state in memory whose commits the disk counts."""

    def __init__(self, disk: Disk) -> None:
        super().__init__()
        self._disk = disk

    @override
    def commit(self) -> None:
        if self.pending_ops():
            self._disk.commit()
        super().commit()


class FaultyLmdbBackend(LmdbBackend):
    """A state in LMDB whose commits the disk counts."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        self._disk = disk
        super().__init__(directory)

    @override
    def commit(self) -> None:
        if self._failed is None and self.pending_ops():
            try:
                self._disk.commit()
            except StorageFatalError as error:
                self._failed = error
                raise
        super().commit()


class FakeClock(Clock):
    """A clock that stands still unless it is pushed."""

    def __init__(self) -> None:
        self.now_ns = FIRST_NS

    @override
    def monotonic_ns(self) -> int:
        return self.now_ns

    @override
    def unix_ms(self) -> int:
        return 1_700_000_000_000 + self.now_ns // 1_000_000


class Harness:
    """One member between its start and its end."""

    def __init__(
        self,
        data_dir: Path,
        disk: Disk,
        flags: list[str] | None = None,
        *,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        """Boot and take turns until the member has joined; raises what the boot raises."""
        self.disk = disk
        self.clock = FakeClock()
        config = configure(read_command_line([f"--data-dir={data_dir}", *(flags or [])]), {})
        logger = LineLogger([], "info")
        paths = prepare(data_dir, None, logger)
        founding = Founding(
            config.name,
            lambda: initial_members(config, socket.gethostbyname),
            config.initial_cluster_token,
            is_new=True,
        )
        self._booted = boot(
            paths,
            founding,
            logger,
            files=disk,
            open_backend=disk.open_backend,
            segment_bytes=segment_bytes,
        )
        self._next_id = 1
        self.answers: dict[int, tuple[int, bytes]] = {}
        self.delivered: dict[int, list[bytes]] = {}
        self.ended: dict[int, tuple[int, str]] = {}
        try:
            self.parts = build(
                config,
                self._booted,
                snapshot_files(config, self._booted, paths, logger, disk),
                self.clock,
                logger,
            )
            self.node = Node(self.parts)
            turns = 0
            self.slept_ns = 0  # what a driver would have waited between these turns
            while not self.node.is_ready:
                self.slept_ns += max(self.node.wake_ns - self.clock.now_ns, 0)
                self.turn()
                turns += 1
                assert turns < TURNS_MAX, "the member does not become ready"
        except BaseException:
            self.crash()
            raise

    def turn(self, inbox: Inbox | None = None) -> Outbox:
        """Take one turn TURN_NS after the last; sort what comes out."""
        inbox = inbox or Inbox()
        self.clock.now_ns += TURN_NS
        inbox.now_ns, inbox.wall_ms = self.clock.now_ns, self.clock.unix_ms()
        out = self.node.turn(inbox)
        for call_id, code, body in out.replies:
            assert call_id not in self.answers, f"call {call_id} was answered twice"
            self.answers[call_id] = (code, body)
        for stream_id, head, tail in messages(out.deliveries):
            self.delivered.setdefault(stream_id, []).append(head + tail)
        for stream_id, code, text in out.ends:
            assert stream_id not in self.ended, f"stream {stream_id} was ended twice"
            self.ended[stream_id] = (code, text.decode())
        return out

    def take_id(self) -> int:
        """Return an id for a call or a stream."""
        self._next_id += 1
        return self._next_id

    def start(self, *calls: tuple[int, Message]) -> list[int]:
        """Let calls of one inbox arrive, take that turn, return their ids."""
        arrived = [(self.take_id(), method, body.SerializeToString()) for method, body in calls]
        self.turn(Inbox(calls=arrived))
        return [call_id for call_id, _, _ in arrived]

    def wait(self, call_id: int) -> bytes:
        """Take turns until a call is answered; CallError if with an error."""
        deadline_s = time.monotonic() + WAIT_MAX_S
        while call_id not in self.answers:
            assert time.monotonic() < deadline_s, f"call {call_id} is never answered"
            self.turn()
            if self.parts.state.backend.defragmenting():
                time.sleep(0.0005)  # threads copy; the fake clock does not wait for them
        code, body = self.answers[call_id]
        if code:
            raise CallError(code, body.decode())
        return body

    def call(self, method: int, request: Message) -> Any:
        """Make one call and wait for its response."""
        return rpc.METHODS[method].response.FromString(self.wait(*self.start((method, request))))

    def open(self, method: int) -> int:
        """Open a stream of messages."""
        stream_id = self.take_id()
        self.turn(Inbox(opened=[(stream_id, method)]))
        return stream_id

    def send(self, stream_id: int, request: Message) -> None:
        """Let one message arrive on a stream."""
        self.turn(Inbox(frames=[(stream_id, request.SerializeToString())]))

    def crash(self) -> None:
        """End as the server ends after a fatal error: nothing more is written."""
        self._booted.backend.abandon()
        try:
            self._booted.wal.close()
        except KvstoreError:
            assert self.disk.fail_at is not None

    def close(self) -> None:
        """Stop gracefully."""
        try:
            self.node.close(self.clock.now_ns)
            self._booted.backend.close()
        except BaseException:
            self._booted.backend.abandon()
            raise
        finally:
            self._booted.wal.close()
