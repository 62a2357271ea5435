"""Streams the database to clients: Maintenance.Snapshot outside the node.

    start ──► waiting ──► writing (a child process) ──► sending (32 KiB at a time) ──► end
                │            │ fails, too long              │ no progress for too long
                └────────────┴──────────────────────────────┴──► end with an error

    message: 0a header | 10 remaining bytes | 1a blob | 22 storage version
    last:    the SHA-256 of all blobs as blob, remaining bytes 0

The state is written to a temporary file by `kvstore.storage.snapshots.writer` and read here, a few
pages per turn and never more than BACKLOG_BYTES_MAX ahead of the client. The file is unlinked as
soon as it is open, so it is removed with the stream, however that ends.

The writer reads the last commit of the state: commit before `start`, or the file may be older than
its header. While `active()` is above zero the driver should not sleep longer than PUMP_INTERVAL_S
between turns: a finished child or a drained stream does not wake it.

Limits: STREAMS_MAX files at once, WAITING_MAX waiting streams, then RESOURCE_EXHAUSTED. All methods
are called in the thread of the turn.
"""

import json
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from kvstack.component.metrics.histograms import NANOSECOND_S, Histogram, exponential
from kvstore.errors import Code
from kvstore.wire.varint import varint

BLOB_BYTES: Final = 32 << 10
BACKLOG_BYTES_MAX: Final = 2 << 20
STREAMS_MAX: Final = 4
WAITING_MAX: Final = 16
WRITE_SECONDS_MAX: Final = 600
STALL_SECONDS_MAX: Final = 600
PUMP_INTERVAL_S: Final = 0.01
ERROR_TEXT_BYTES_MAX: Final = 2048

Delivery = tuple[int, bytes, bytes]  # (stream id, head, tail)
End = tuple[int, int, bytes]  # (stream id, gRPC code, error text)

_PACKAGE_ROOT: Final = Path(__file__).resolve().parents[2]
_FILE_PREFIX: Final = "snapshot-"
_FILE_SUFFIX: Final = ".db"
_NANOSECONDS: Final = 1_000_000_000


class RefusedStreams:
    """Used instead of `SnapshotStreams` where the state is in memory."""

    def __init__(self) -> None:
        self._refused: list[int] = []
        self.write_seconds = Histogram(exponential(0.01, 2, 17))

    def start(self, stream_id: int, header: bytes) -> None:
        """Refuse a stream, at the next pump."""
        del header
        self._refused.append(stream_id)

    def pump(self, backlog: Mapping[int, int]) -> tuple[list[Delivery], list[End]]:
        """Return the ends of the refused streams."""
        del backlog
        refused, self._refused = self._refused, []
        text = b"etcdserver: a member in memory has no snapshot"
        return [], [(stream_id, Code.UNIMPLEMENTED, text) for stream_id in refused]

    def cancel(self, stream_id: int) -> None:
        """Drop a stream whose client has left; other ids are ignored."""
        self._refused = [each for each in self._refused if each != stream_id]

    def active(self) -> int:
        """Return how many streams still need a pump."""
        return len(self._refused)

    def writers(self) -> int:
        """Return how many children are reading the database."""
        return 0

    def close(self) -> None:
        """Do nothing: there are no children."""


class SnapshotStreams:
    """All snapshot streams of the process."""

    def __init__(
        self,
        member_dir: Path,
        tmp_dir: Path,
        *,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        write_seconds_max: float = WRITE_SECONDS_MAX,
        stall_seconds_max: float = STALL_SECONDS_MAX,
    ) -> None:
        """Stream the state under member_dir through files in tmp_dir; removes leftover files.

        OSError if tmp_dir cannot be made or cleared.
        """
        self._member_dir = member_dir.absolute()
        self._tmp_dir = tmp_dir.absolute()
        self._clock_ns = clock_ns
        self._write_ns_max = int(write_seconds_max * _NANOSECONDS)
        self._stall_ns_max = int(stall_seconds_max * _NANOSECONDS)
        self._waiting: deque[tuple[int, bytes]] = deque()  # (stream id, encoded header)
        self._writing: dict[int, _Writing] = {}
        self._sending: dict[int, _Sending] = {}
        self._ended: list[End] = []  # reported by the next pump
        self._killed: list[_Writing] = []  # not yet reaped
        self.write_seconds = Histogram(exponential(0.01, 2, 17))
        self._tmp_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        for leftover in self._tmp_dir.glob(f"{_FILE_PREFIX}*{_FILE_SUFFIX}"):
            leftover.unlink()

    def start(self, stream_id: int, header: bytes) -> None:
        """Start a stream; header is an encoded ResponseHeader, b"" for none (as etcd sends)."""
        if len(self._writing) + len(self._sending) < STREAMS_MAX and not self._waiting:
            self._spawn(stream_id, header)
        elif len(self._waiting) < WAITING_MAX:
            self._waiting.append((stream_id, header))
        else:
            text = f"etcdserver: too many snapshot streams: {STREAMS_MAX} run, {WAITING_MAX} wait"
            self._ended.append((stream_id, Code.RESOURCE_EXHAUSTED, text.encode()))

    def pump(self, backlog: Mapping[int, int]) -> tuple[list[Delivery], list[End]]:
        """Return the messages and ends to send now; backlog is stream id → unsent bytes."""
        if not (self._writing or self._sending or self._waiting or self._ended or self._killed):
            return [], []
        now_ns = self._clock_ns()
        deliveries: list[Delivery] = []
        for stream_id in list(self._writing):
            self._check_writing(stream_id, now_ns)
        for stream_id in list(self._sending):
            self._send(stream_id, backlog.get(stream_id, 0), now_ns, deliveries)
        while self._waiting and len(self._writing) + len(self._sending) < STREAMS_MAX:
            self._spawn(*self._waiting.popleft())
        self._killed = [writing for writing in self._killed if not writing.reap()]
        ends, self._ended = self._ended, []
        return deliveries, ends

    def cancel(self, stream_id: int) -> None:
        """Drop a stream whose client has left; other ids are ignored."""
        writing = self._writing.pop(stream_id, None)
        sending = self._sending.pop(stream_id, None)
        if writing is not None:
            self._kill(writing)
        elif sending is not None:
            sending.close()
        elif any(waiting == stream_id for waiting, _ in self._waiting):
            self._waiting = deque(entry for entry in self._waiting if entry[0] != stream_id)

    def active(self) -> int:
        """Return how many streams and dropped children still need a pump."""
        streams = len(self._waiting) + len(self._writing) + len(self._sending)
        return streams + len(self._ended) + len(self._killed)

    def writers(self) -> int:
        """Return how many children are reading the database."""
        return len(self._writing)

    def close(self) -> None:
        """Drop every stream, end every child and wait for it, remove every file."""
        for stream_id in [*self._writing, *self._sending]:
            self.cancel(stream_id)
        self._waiting.clear()
        self._ended.clear()
        for writing in self._killed:
            writing.process.wait()
            writing.reap()
        self._killed.clear()

    def _spawn(self, stream_id: int, header: bytes) -> None:
        path = self._tmp_dir / f"{_FILE_PREFIX}{stream_id}{_FILE_SUFFIX}"
        command = [sys.executable, "-m", "kvstore.storage.snapshots.writer"]
        try:
            process = subprocess.Popen(
                [*command, str(self._member_dir), str(path)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=_PACKAGE_ROOT,  # where -m finds the package if it is not installed
            )
        except OSError as error:
            self._fail(stream_id, f"the snapshot writer cannot be started: {error}")
            return
        deadline_ns = self._clock_ns() + self._write_ns_max
        self._writing[stream_id] = _Writing(process, path, header, deadline_ns)

    def _check_writing(self, stream_id: int, now_ns: int) -> None:
        """Check whether a child has ended or timed out."""
        writing = self._writing[stream_id]
        if writing.process.poll() is not None:
            del self._writing[stream_id]
            began_ns = writing.deadline_ns - self._write_ns_max
            self.write_seconds.add((now_ns - began_ns) * NANOSECOND_S)
            self._start_sending(stream_id, writing, now_ns)
        elif now_ns > writing.deadline_ns:
            del self._writing[stream_id]
            self._kill(writing)
            limit_s = self._write_ns_max / _NANOSECONDS
            self._fail(stream_id, f"writing the snapshot took longer than {limit_s:g} s")

    def _start_sending(self, stream_id: int, writing: "_Writing", now_ns: int) -> None:
        """Send the file of a child that has ended; an error if it failed."""
        output, errors = writing.process.communicate()  # it has ended: does not block
        if writing.process.returncode != 0:
            writing.path.unlink(missing_ok=True)
            text = errors.decode("utf-8", "replace").strip() or "no reason given"
            code = writing.process.returncode
            self._fail(stream_id, f"the snapshot writer ended with {code}: {text}")
            return
        try:
            result = json.loads(output)
            self._sending[stream_id] = _Sending(
                writing.path,
                writing.header,
                size=int(result["size"]),
                sha256=bytes.fromhex(result["sha256"]),
                version=str(result["version"]),
                now_ns=now_ns,
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            writing.path.unlink(missing_ok=True)
            self._fail(stream_id, f"the written snapshot cannot be used: {error!r}")

    def _send(
        self, stream_id: int, backlog_bytes: int, now_ns: int, deliveries: list[Delivery]
    ) -> None:
        sending = self._sending[stream_id]
        room = BACKLOG_BYTES_MAX - backlog_bytes
        if room > 0:
            sending.progress_ns = now_ns
        elif now_ns - sending.progress_ns > self._stall_ns_max:
            limit_s = self._stall_ns_max / _NANOSECONDS
            text = f"the client read nothing of the snapshot for {limit_s:g} s"
            self._drop(stream_id, Code.DEADLINE_EXCEEDED, text)
            return
        try:
            while room > 0 and sending.remaining:
                message = sending.next_message()
                deliveries.append((stream_id, *message))
                room -= len(message[1])
        except OSError as error:
            self._drop(stream_id, Code.INTERNAL, f"the written snapshot cannot be read: {error}")
            return
        if not sending.remaining and room > 0:
            deliveries.append((stream_id, *sending.last_message()))
            self._sending.pop(stream_id).close()
            self._ended.append((stream_id, Code.OK, b""))

    def _drop(self, stream_id: int, code: Code, text: str) -> None:
        self._sending.pop(stream_id).close()
        self._ended.append((stream_id, code, f"etcdserver: {text}".encode()))

    def _fail(self, stream_id: int, text: str) -> None:
        encoded = f"etcdserver: {text}".encode()[:ERROR_TEXT_BYTES_MAX]
        self._ended.append((stream_id, Code.INTERNAL, encoded))

    def _kill(self, writing: "_Writing") -> None:
        writing.process.kill()
        self._killed.append(writing)


class _Writing:
    """A stream whose file is being written."""

    __slots__ = ("deadline_ns", "header", "path", "process")

    def __init__(
        self, process: "subprocess.Popen[bytes]", path: Path, header: bytes, deadline_ns: int
    ) -> None:
        self.process = process
        self.path = path
        self.header = header
        self.deadline_ns = deadline_ns

    def reap(self) -> bool:
        """Remove the file of a killed child; False while it has not ended."""
        if self.process.poll() is None:
            return False
        self.process.communicate()
        self.path.unlink(missing_ok=True)
        return True


class _Sending:
    """A stream whose file is complete: open, and already unlinked."""

    __slots__ = (
        "_at",
        "_descriptor",
        "_header_field",
        "_sha256",
        "_version_field",
        "progress_ns",
        "remaining",
    )

    def __init__(
        self, path: Path, header: bytes, *, size: int, sha256: bytes, version: str, now_ns: int
    ) -> None:
        self._descriptor = os.open(path, os.O_RDONLY)
        try:
            path.unlink()
        except OSError:
            os.close(self._descriptor)
            raise
        self._header_field = b"\x0a" + varint(len(header)) + header if header else b""
        text = version.encode()
        self._version_field = b"\x22" + varint(len(text)) + text if text else b""
        self._sha256 = sha256
        self._at = 0
        self.remaining = size
        self.progress_ns = now_ns

    def next_message(self) -> tuple[bytes, bytes]:
        """Return (head, tail) of the message with the next blob."""
        want = min(BLOB_BYTES, self.remaining)
        blob = os.pread(self._descriptor, want, self._at)
        if len(blob) != want:
            raise OSError(f"the file ends after {self._at + len(blob)} bytes")
        self._at += want
        self.remaining -= want
        return self._message(blob)

    def last_message(self) -> tuple[bytes, bytes]:
        """Return (head, tail) of the message with the digest."""
        return self._message(self._sha256)

    def close(self) -> None:
        """Close the file, which frees its space."""
        os.close(self._descriptor)

    def _message(self, blob: bytes) -> tuple[bytes, bytes]:
        remaining = b"\x10" + varint(self.remaining) if self.remaining else b""
        head = self._header_field + remaining + b"\x1a" + varint(len(blob))
        return head, blob + self._version_field
