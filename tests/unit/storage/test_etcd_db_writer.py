"""The writer: what it writes is what is read back, in the shape bbolt can go on with."""

import resource
import tracemalloc
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from kvstore.backend import Row
from kvstore.errors import CorruptionError
from kvstore.storage.etcd_db.reader import EtcdDbReader
from kvstore.storage.etcd_db.writer import EtcdDbWriter
from tests.support.disks.etcd_db_files import (
    BRANCH,
    LEAF,
    PAGE,
    page_headers,
    put_row,
    read,
    sample,
    write,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "db"


@pytest.mark.parametrize("key_count", [0, 1, 40, 41, 5000])
def test_what_is_written_is_read_back(path: Path, key_count: int) -> None:
    buckets = sample(key_count)
    assert read(write(path, buckets)) == buckets


def test_no_bucket_at_all_is_a_file_too(path: Path) -> None:
    assert read(write(path, {})) == {}


def test_a_row_larger_than_a_page_gets_overflow_pages(path: Path) -> None:
    buckets = sample(3)
    buckets[b"key"] = [put_row(2, b"a"), put_row(3, b"b", b"B" * 1_500_000), put_row(4, b"c")]
    write(path, buckets)
    assert read(path) == buckets
    assert [
        overflow for _, flags, _, overflow in page_headers(path) if flags == LEAF and overflow
    ] == [1_500_000 // PAGE]


def test_a_row_that_fills_a_page_to_the_byte_needs_no_second_one(path: Path) -> None:
    key = b"k" * 100
    room = PAGE - 16 - 16 - len(key)
    for value_bytes, overflow in ((room, 0), (room + 1, 1)):
        write(path, {b"key": [(key, b"v" * value_bytes)]})
        assert page_headers(path)[0][3] == overflow
        assert read(path)[b"key"] == [(key, b"v" * value_bytes)]


@pytest.mark.parametrize("excess", [0, 1])
def test_a_bucket_is_inline_up_to_a_quarter_page(path: Path, excess: int) -> None:
    rows = [(b"k", b"v" * (PAGE // 4 - 16 - 16 - 1 + excess))]
    write(path, {b"meta": rows})
    assert read(path) == {b"meta": rows}
    assert len(page_headers(path)) == 1 + excess


@pytest.mark.parametrize("key_bytes", [9, 1300, 2500, 32768])
def test_no_branch_has_a_single_child_whatever_the_number_of_leaves(
    path: Path, key_bytes: int
) -> None:
    """Wide and narrow branches, and every remainder the last page of a level can have."""
    value = b"v" * (-(16 + 16 + key_bytes) % PAGE)  # a row fills its pages: no two share a leaf
    for count in range(1, 40):
        rows = [(b"%08d" % n + b"k" * (key_bytes - 8), value) for n in range(count)]
        write(path, {b"key": rows})
        assert read(path) == {b"key": rows}
        counts = [children for _, flags, children, _ in page_headers(path) if flags == BRANCH]
        assert all(children >= 2 for children in counts)
        assert bool(counts) == (count > 1)


def test_pages_carry_their_own_ids_and_leave_no_gap(path: Path) -> None:
    write(path, sample(3000))
    ids = [(page_id, overflow) for page_id, _, _, overflow in page_headers(path)]
    assert ids[0][0] == 2
    assert all(after == before + 1 + overflow for (before, overflow), (after, _) in pairwise(ids))
    with EtcdDbReader(path) as db:
        assert db.size_bytes == path.stat().st_size


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([(b"b", b""), (b"a", b"")], "key 61 does not follow 62"),
        ([(b"a", b""), (b"a", b"")], "key 61 does not follow 61"),
        ([(b"", b"")], "key of 0 bytes, allowed are 1 to 32768"),
        ([(b"k" * 32769, b"")], "key of 32769 bytes, allowed are 1 to 32768"),
        ([(b"%04d" % n, b"v" * 500) for n in range(9)] + [(b"0008", b"")], "does not follow"),
    ],
)
def test_rows_bbolt_could_not_hold_are_refused_and_leave_no_file(
    path: Path, rows: list[tuple[bytes, bytes]], complaint: str
) -> None:
    with pytest.raises(CorruptionError, match=complaint), EtcdDbWriter(path) as db:
        db.write_bucket(b"key", rows)
    assert not path.exists()


def test_buckets_must_ascend(path: Path) -> None:
    with EtcdDbWriter(path) as db:
        db.write_bucket(b"key", [])
        for name in (b"key", b"auth"):
            with pytest.raises(CorruptionError, match="bucket does not follow"):
                db.write_bucket(name, [])


def test_a_disk_that_takes_no_more_leaves_no_file(path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_500_000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            write(path, sample(100, value_bytes=50_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not path.exists()


def test_a_file_without_its_meta_pages_is_no_database(path: Path) -> None:
    """What a crash before the last step leaves."""
    write(path, sample(10))
    with path.open("r+b") as file:
        file.write(bytes(2 * PAGE))
    with pytest.raises(CorruptionError, match="neither meta page can be used"):
        EtcdDbReader(path)


def test_memory_does_not_grow_with_the_file(path: Path) -> None:
    def rows(count: int) -> Iterator[Row]:
        return (put_row(2 + n, b"key", b"v" * 1000) for n in range(count))

    peaks = []
    for count in (2_000, 20_000):
        tracemalloc.start()
        with EtcdDbWriter(path, sync=False) as db:
            db.write_bucket(b"key", rows(count))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 200_000


def test_only_a_row_larger_than_a_page_makes_a_page_overflow(path: Path) -> None:
    rows = [put_row(2 + n, b"key", b"v" * (n * 7 % 501)) for n in range(3000)]
    write(path, {b"key": rows})
    assert read(path) == {b"key": rows}
    assert not any(overflow for _, _, _, overflow in page_headers(path))
