"""Receives a snapshot from a request's body: the message first, then the database into a file.

    length u64BE | raftpb.Message | database to the end     ──► tmp file ──► import

The import makes a state of the file beside the current one, while the file grows and the node goes
on. The message is given to the node only when the import is complete. A truncated body leaves
no state. The file is always removed, so it is not synced: nothing needs it after a crash.
"""

import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, Protocol

from kvstack.component.logger import Logger
from kvstore.peers.http_client import PeerRequestError
from kvstore.raft.model import Message
from kvstore.wire.raft_codec import decode_message
from kvstore.wire.varint import WireError

MESSAGE_BYTES_MAX: Final = 64 << 20
RECEIVING_MAX: Final = 2
_PREFIX: Final = "tmp"  # etcd's; such files are removed at the start
_HEAD_BYTES: Final = 8


class DatabaseImport(Protocol):
    """The import of a file that is still growing; methods raise KvstoreError or OSError."""

    def report_growth(self, size_bytes: int) -> None:
        """Report the size of the file."""
        ...

    def finish(self, size_bytes: int) -> None:
        """Report that the file is complete; return when the state is complete and durable."""
        ...


BeginImport = Callable[[int, Path], AbstractContextManager[DatabaseImport]]  # (index, file)


class SnapshotReceiver:
    """Receives snapshots, a few at a time."""

    def __init__(self, directory: Path, begin_import: BeginImport, logger: Logger) -> None:
        """Write the files into directory while they are received."""
        self._directory = directory
        self._begin_import = begin_import
        self._logger = logger
        self._slots = threading.BoundedSemaphore(RECEIVING_MAX)

    def read_message(self, pieces: Iterator[bytes]) -> tuple[Message, bytes]:
        """Return (message, the bytes of the database that came with it).

        WireError if it is not a message, EOFError if the body is too short.
        """
        head = bytearray()
        end = 0
        for piece in pieces:
            head += piece
            if not end and len(head) >= _HEAD_BYTES:
                end = _HEAD_BYTES + int.from_bytes(head[:_HEAD_BYTES], "big")
                if end > _HEAD_BYTES + MESSAGE_BYTES_MAX:
                    raise WireError("error limit exceeded")
            if end and len(head) >= end:
                return decode_message(bytes(head[_HEAD_BYTES:end])), bytes(head[end:])
        raise EOFError("unexpected EOF")

    def save(self, message: Message, first: bytes, rest: Iterable[bytes]) -> int:
        """Import the database; return its size in bytes.

        PeerRequestError if RECEIVING_MAX are being received already; errors of the import;
        OSError.
        """
        if not self._slots.acquire(blocking=False):
            raise PeerRequestError(f"too many snapshots are being received, limit {RECEIVING_MAX}")
        try:
            return self._save(message, first, rest)
        finally:
            self._slots.release()

    def _save(self, message: Message, first: bytes, rest: Iterable[bytes]) -> int:
        assert message.snapshot is not None
        index = message.snapshot.metadata.index
        fields = {"remote_peer_id": f"{message.from_:x}", "snapshot_index": index}
        self._logger.info("receiving database snapshot", **fields)
        descriptor, name = tempfile.mkstemp(prefix=_PREFIX, dir=self._directory)
        path = Path(name)
        try:
            with (
                os.fdopen(descriptor, "wb", buffering=0),
                self._begin_import(index, path) as database,
            ):
                size_bytes = _write(descriptor, first)
                for piece in rest:
                    size_bytes += _write(descriptor, piece)
                    database.report_growth(size_bytes)
                self._logger.info("received database snapshot", bytes=size_bytes, **fields)
                database.finish(size_bytes)
        finally:
            path.unlink(missing_ok=True)
        return size_bytes


def _write(descriptor: int, data: bytes) -> int:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
    return len(data)
