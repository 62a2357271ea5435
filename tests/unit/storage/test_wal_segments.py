"""Segments are read without the zeros at their end, whatever a file system says of them."""

from pathlib import Path

import pytest
from typing_extensions import override

from kvstore.storage.files import OsFiles
from kvstore.storage.wal.record import METADATA, SegmentReader, encode_crc, encode_records
from kvstore.storage.wal.segment import read_segment

BLOCK = 1 << 16
SEGMENT = 64_000_000


class FilesWithoutHoles(OsFiles):
    """A file system that has data for all of a preallocated file, as tmpfs."""

    def __init__(self) -> None:
        super().__init__()
        self.largest_read = 0

    @override
    def data_end(self, handle: int) -> int:
        return self.size_bytes(handle)

    @override
    def read(self, handle: int, offset: int, size_bytes: int) -> bytes:
        self.largest_read = max(self.largest_read, size_bytes)
        return super().read(handle, offset, size_bytes)


def segment(directory: Path, data: bytes, size_bytes: int) -> tuple[FilesWithoutHoles, int]:
    """Return an open file that begins with data, followed by zeros."""
    path = directory / "segment"
    path.write_bytes(data)
    files = FilesWithoutHoles()
    handle = files.open(path, write=True)
    files.allocate(handle, size_bytes)
    return files, handle


@pytest.mark.parametrize(
    "end", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 3 * BLOCK + 7, 5 * BLOCK + 11]
)
def test_the_data_ends_with_its_last_byte_that_is_not_zero(tmp_path: Path, end: int) -> None:
    data = b"\1" * min(end, 8) + bytes(max(end - 9, 0)) + b"\2" * (end > 8)
    files, handle = segment(tmp_path, data, 5 * BLOCK + 11)

    found = read_segment(files, handle)

    files.close(handle)
    assert found == (data, 5 * BLOCK + 11)
    assert len(data) == end


def test_a_preallocated_segment_is_not_held_as_a_whole(tmp_path: Path) -> None:
    record, crc = encode_records(METADATA, [b"\x08\x01\x10\x02"], 0)
    files, handle = segment(tmp_path, encode_crc(0) + record, SEGMENT)

    data, size_bytes = read_segment(files, handle)

    files.close(handle)
    reader = SegmentReader(data, size_bytes, 0)
    assert [kind for _, kind, _ in reader][1:] == [METADATA]
    assert (reader.fault, reader.crc, size_bytes) == (None, crc, SEGMENT)
    assert files.largest_read <= BLOCK
