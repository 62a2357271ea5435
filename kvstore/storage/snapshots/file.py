"""Raft snapshots on disk, as etcd names and writes them: <term>-<index>.snap, 16 hex digits each.

    08 crc  12 length raftpb.Snapshot         crc = CRC-32C of those bytes alone, never 0

The rows are in the database. A .snap file holds the position in the log, the configuration and, for
older members, the member list (see `v2_store`). etcd 3.7 does not read these files at start; 3.6
starts from them after a downgrade.

A file is written under a temporary name and renamed, so a crash leaves all of it or none. The
database must be durable up to the snapshot before, and the log records the snapshot after.
"""

import re
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from google_crc32c import extend

from kvstore.errors import CorruptionError, StorageFatalError
from kvstore.raft.model import Snapshot
from kvstore.storage.files import EXHAUSTED, FULL, Files, OsFiles, write_file
from kvstore.wire.raft_codec import decode_snapshot, encode_snapshot
from kvstore.wire.varint import WireError, read_field, varint

SUFFIX: Final = ".snap"
_TEMPORARY_PREFIX: Final = "tmp"  # etcd removes such files from this directory at start

_NAME: Final = re.compile(r"([0-9a-f]{16})-([0-9a-f]{16})\.snap")
_OS_FILES: Final = OsFiles()


class SnapshotFile(NamedTuple):
    """One snapshot by name."""

    path: Path
    term: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here


class NotNowError(Exception):
    """No file can be made now: there is no descriptor, or no space on the disk."""

    def __init__(self, text: str, *, needs_space: bool) -> None:
        """needs_space: whether the disk is full."""
        super().__init__(text)
        self.needs_space = needs_space


def encode_snapshot_file(snapshot: Snapshot) -> bytes:
    """Return the bytes of a .snap file."""
    body = encode_snapshot(snapshot)
    return b"\x08" + varint(extend(0, body)) + b"\x12" + varint(len(body)) + body


def decode_snapshot_file(data: bytes) -> Snapshot:
    """Return the snapshot of the bytes of a .snap file, or raise WireError."""
    crc = at = 0
    body = b""
    while at < len(data):
        field, _, value, at = read_field(data, at)
        if field == 1 and isinstance(value, int):
            crc = value
        elif field == 2 and isinstance(value, bytes):
            body = value
    if not body or crc == 0:
        raise WireError("no snapshot in it")
    computed = extend(0, body)
    if computed != crc:
        raise WireError(f"crc mismatch: expected {crc:08x}, computed {computed:08x}")
    return decode_snapshot(body)


def write_snapshot_file(directory: Path, snapshot: Snapshot, files: Files = _OS_FILES) -> Path:
    """Write a snapshot under its name, durably; return the path.

    Raises ValueError for a snapshot at index 0, StorageFatalError if the disk fails, and
    NotNowError if there is no descriptor or no space: nothing is lost, as the log does not name the
    file yet, and it may be tried again.
    """
    index, term = snapshot.metadata.index, snapshot.metadata.term
    if index == 0:
        raise ValueError("a snapshot at index 0 is empty")
    path = directory / f"{term:016x}-{index:016x}{SUFFIX}"
    temporary = directory / f"{_TEMPORARY_PREFIX}{path.name}"
    try:
        data = encode_snapshot_file(snapshot)
        write_file(files, temporary, data, len(data))
        files.rename(temporary, path)
        files.sync_directory(directory)
    except OSError as error:
        for each in (temporary, path):  # the log names neither
            with suppress(OSError):  # the first error is the one to report
                files.remove(each)
        text = f"cannot write snapshot {path}: {error.strerror or error}"
        if error.errno in EXHAUSTED | FULL:
            raise NotNowError(text, needs_space=error.errno in FULL) from error
        raise StorageFatalError(text) from error
    return path


def read_snapshot_file(path: Path, files: Files = _OS_FILES) -> Snapshot:
    """Return the snapshot in a file; CorruptionError if it has none, OSError if it is missing."""
    handle = files.open(path)
    try:
        data = files.read(handle, 0, files.size_bytes(handle))
    finally:
        files.close(handle)
    try:
        return decode_snapshot_file(data)
    except WireError as error:
        raise CorruptionError(f"{path}: no readable snapshot: {error}") from error


def list_snapshot_files(directory: Path, files: Files = _OS_FILES) -> list[SnapshotFile]:
    """Return the snapshots of a directory, oldest first (by term, then index)."""
    found: list[SnapshotFile] = []
    for name in files.list_directory(directory):
        match = _NAME.fullmatch(name)
        if match is not None:
            found.append(SnapshotFile(directory / name, int(match[1], 16), int(match[2], 16)))
    return found


def purge_snapshot_files(
    directory: Path, max_snapshots: int, files: Files = _OS_FILES
) -> list[Path]:
    """Remove the oldest snapshots beyond max_snapshots (0: none); return what was removed."""
    if max_snapshots <= 0:
        return []
    removed: list[Path] = []
    for snapshot in list_snapshot_files(directory, files)[:-max_snapshots]:
        files.remove(snapshot.path)
        removed.append(snapshot.path)
    return removed
