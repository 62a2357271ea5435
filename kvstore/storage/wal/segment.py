"""Segment files of the log: their names, their order, their bytes.

    0000000000000001-0000000000000053.wal      sequence 1, first index 0x53
    0.tmp, 1.tmp                                the next segment, preallocated, not yet in use
    *.wal.broken                                copies left by repairs

Sequences rise by one. The first index is that of the first entry a segment may hold, so the log
after index i begins in the last segment whose first index is at most i. Files of other names are
ignored. This module does not look at records.
"""

import re
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from kvstore.errors import CorruptionError
from kvstore.storage.files import Files

SUFFIX: Final = ".wal"
BROKEN_SUFFIX: Final = ".broken"
TEMPORARY_SUFFIX: Final = ".tmp"

_BLOCK_BYTES: Final = 1 << 16
_ZEROS: Final = bytes(_BLOCK_BYTES)
_NAME: Final = re.compile(r"([0-9a-f]{16})-([0-9a-f]{16})\.wal")


class SegmentFile(NamedTuple):
    """One segment by name."""

    path: Path
    sequence: int
    first_index: int


def segment_path(directory: Path, sequence: int, first_index: int) -> Path:
    """Return the path of a segment."""
    return directory / f"{sequence:016x}-{first_index:016x}{SUFFIX}"


def list_segments(files: Files, directory: Path) -> list[SegmentFile]:
    """Return the segments of a directory in the order of their sequence; none if it is missing."""
    if not files.exists(directory):
        return []
    found: list[SegmentFile] = []
    for name in files.list_directory(directory):
        match = _NAME.fullmatch(name)
        if match is not None:
            found.append(SegmentFile(directory / name, int(match[1], 16), int(match[2], 16)))
    return found


def check_sequence(segments: list[SegmentFile]) -> None:
    """Raise CorruptionError unless the sequences rise by one."""
    for before, after in pairwise(segments):
        if after.sequence != before.sequence + 1:
            raise CorruptionError(
                f"{after.path}: expected segment {before.sequence + 1} after "
                f"{before.path.name}, found {after.sequence}"
            )


def read_segment(files: Files, handle: int) -> tuple[bytes, int]:
    """Return (the bytes of a segment without the zeros at its end, its length in bytes)."""
    end = files.data_end(handle)
    if end <= _BLOCK_BYTES:
        return files.read(handle, 0, end).rstrip(b"\0"), files.size_bytes(handle)
    return files.read(handle, 0, _nonzero_end(files, handle, end)), files.size_bytes(handle)


def _nonzero_end(files: Files, handle: int, end: int) -> int:
    """Return the end of the last byte that is not zero before `end`.

    Not every file system reports preallocated room as a hole: on tmpfs a log of a few KiB is
    64 MB of data. Such a segment is read from its end, block by block, and never held as a whole.
    """
    while end > 0:
        start = max(end - _BLOCK_BYTES, 0)
        block = files.read(handle, start, end - start)
        if not _ZEROS.startswith(block):
            return start + len(block.rstrip(b"\0"))
        end = start
    return 0
