"""What a save costs without its sync: 1000 entries of 300 bytes, and reading them back."""

from pytest_benchmark.fixture import BenchmarkFixture

from kvstore.raft.model import Entry
from kvstore.storage.wal.record import ENTRY, SegmentReader, encode_crc, encode_records
from kvstore.wire.raft_codec import encode_entry

ENTRIES = [Entry(0, 7, 1_000_000 + at, bytes((at % 251,)) * 300) for at in range(1000)]
BODIES = [encode_entry(entry) for entry in ENTRIES]
SEGMENT = encode_crc(1) + encode_records(ENTRY, BODIES, 1)[0]


def test_encode_entries_and_records(benchmark: BenchmarkFixture) -> None:
    data, _ = benchmark(lambda: encode_records(ENTRY, map(encode_entry, ENTRIES), 1))
    assert SEGMENT.endswith(data)


def test_encode_records(benchmark: BenchmarkFixture) -> None:
    data, _ = benchmark(encode_records, ENTRY, BODIES, 1)
    assert SEGMENT.endswith(data)


def test_read_records(benchmark: BenchmarkFixture) -> None:
    records = benchmark(lambda: list(SegmentReader(SEGMENT, len(SEGMENT), 0)))
    assert [body for _, _, body in records[1:]] == BODIES
