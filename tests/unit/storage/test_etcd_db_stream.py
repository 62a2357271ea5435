"""Database files that are written front to back: their layout, and reading them as they arrive."""

import random
from itertools import accumulate, pairwise
from pathlib import Path

import pytest

from kvstore.backend import Row
from kvstore.errors import CorruptionError, DataDirError
from kvstore.storage.etcd_db.layout import leaf_sizes, leaves
from kvstore.storage.etcd_db.reader import EtcdDbReader
from kvstore.storage.etcd_db.stream import plan_db
from kvstore.storage.snapshots.arrival import STEP_S_MAX, PipeArrival, is_report_due, report
from tests.support.disks.etcd_db_files import (
    BRANCH,
    LEAF,
    PAGE,
    Buckets,
    page_headers,
    put_row,
    read,
    sample,
    write_planned,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "db"


@pytest.mark.parametrize("key_count", [0, 1, 40, 41, 5000])
def test_what_is_written_is_read_back(path: Path, key_count: int) -> None:
    buckets = sample(key_count)
    assert read(write_planned(path, buckets)) == buckets


def test_no_bucket_at_all_is_a_file_too(path: Path) -> None:
    assert read(write_planned(path, {})) == {}


@pytest.mark.parametrize("key_bytes", [9, 1300, 2500, 32768])
def test_no_branch_has_a_single_child_whatever_the_number_of_leaves(
    path: Path, key_bytes: int
) -> None:
    """Wide and narrow branches, and every remainder the last page of a level can have."""
    value = b"v" * (-(16 + 16 + key_bytes) % PAGE)  # a row fills its pages: no two share a leaf
    for count in range(1, 40):
        rows = [(b"%08d" % n + b"k" * (key_bytes - 8), value) for n in range(count)]
        write_planned(path, {b"key": rows})
        assert read(path) == {b"key": rows}
        counts = [children for _, flags, children, _ in page_headers(path) if flags == BRANCH]
        assert all(children >= 2 for children in counts)
        assert bool(counts) == (count > 1)


def test_pages_carry_their_own_ids_and_leave_no_gap(path: Path) -> None:
    write_planned(path, sample(30_000))
    ids = [(page_id, overflow) for page_id, _, _, overflow in page_headers(path)]
    assert ids[0][0] == 2
    assert all(after == before + 1 + overflow for (before, overflow), (after, _) in pairwise(ids))


def test_large_rows_share_leaves_that_are_nearly_full(path: Path) -> None:
    rows = [put_row(2 + n, b"k", b"v" * 4096) for n in range(500)]
    write_planned(path, {b"key": rows})
    assert read(path) == {b"key": rows}
    assert path.stat().st_size < 500 * (4096 + 40) * 1.15
    leaf_pages = [1 + overflow for _, flags, _, overflow in page_headers(path) if flags == LEAF]
    assert max(leaf_pages) <= 16


def test_rows_of_any_sizes_are_read_back(path: Path) -> None:
    rng = random.Random(4)
    for _ in range(20):
        sizes = [int(10 ** rng.uniform(0, 5.5)) for _ in range(rng.randrange(60))]
        rows = [put_row(2 + n, b"k", rng.randbytes(size)) for n, size in enumerate(sizes)]
        assert read(write_planned(path, {b"key": rows, b"meta": rows[:3]})) == {
            b"key": rows,
            b"meta": rows[:3],
        }


def test_leaves_end_where_those_of_known_rows_end() -> None:
    rng = random.Random(5)
    for exponent in (1.5, 3.0, 3.5, 5.2):
        sizes = [int(10 ** rng.uniform(0, exponent)) for _ in range(rng.randrange(3000))]
        rows = [put_row(2 + n, b"k", bytes(size)) for n, size in enumerate(sizes)]
        formed = [(leaf.first_key, len(leaf.rows), leaf.used) for leaf in leaves(rows)]
        views = [(memoryview(key), memoryview(value)) for key, value in rows]
        assert list(leaf_sizes(views)) == formed


def test_a_bucket_that_changes_between_the_passes_is_reported() -> None:
    passes = iter([sample(5000)[b"key"], sample(4000)[b"key"]])
    plan = plan_db([(b"key", lambda: next(passes))])
    with pytest.raises(CorruptionError, match="bucket b'key'"):
        list(plan.pieces())


def test_a_row_that_outgrows_its_page_between_the_passes_is_reported() -> None:
    rows = [put_row(2 + n, b"k", b"v" * 3000) for n in range(100)]
    passes = iter([rows, [*rows[:-1], put_row(101, b"k", b"v" * 9000)]])
    plan = plan_db([(b"key", lambda: next(passes))])
    with pytest.raises(CorruptionError, match="bucket b'key' changed"):
        list(plan.pieces())


def test_a_bucket_that_grows_between_the_passes_is_reported() -> None:
    rows = [put_row(2 + n, b"k", b"v" * 3000) for n in range(100)]
    passes = iter([rows[:-1], rows])
    plan = plan_db([(b"key", lambda: next(passes))])
    with pytest.raises(CorruptionError, match="bucket b'key' grew"):
        list(plan.pieces())


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([(b"b", b""), (b"a", b"")], "key 61 does not follow 62"),
        ([(b"", b"")], "key of 0 bytes, allowed are 1 to 32768"),
        ([(b"k" * 32769, b"")], "key of 32769 bytes, allowed are 1 to 32768"),
    ],
)
def test_rows_out_of_order_or_too_large_are_refused(rows: list[Row], complaint: str) -> None:
    with pytest.raises(CorruptionError, match=complaint):
        plan_db([(b"key", rows.__iter__)])


class Front:
    """A file of which as much has arrived as was asked for."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.asked_bytes = 0

    def wait(self, size_bytes: int) -> int:
        self.asked_bytes = max(self.asked_bytes, min(size_bytes, self.size_bytes))
        return self.asked_bytes


def test_rows_are_there_before_the_rest_of_the_file(path: Path) -> None:
    buckets: Buckets = {b"key": [put_row(2 + n, b"k", b"v" * 300) for n in range(20_000)]}
    write_planned(path, buckets)
    front = Front(path.stat().st_size)
    with EtcdDbReader(path, arrival=front) as db:
        rows = db.scan(b"key")
        for expected, beneath in zip(
            buckets[b"key"],
            accumulate(len(key) + len(value) for key, value in buckets[b"key"]),
            strict=True,
        ):
            assert next(rows) == expected
            assert front.asked_bytes < beneath * 1.15 + 16 * PAGE
        db.check_size()


def test_a_file_that_claims_more_than_comes_is_refused(path: Path) -> None:
    write_planned(path, sample(1000))
    cut = path.read_bytes()[: -2 * PAGE]
    path.write_bytes(cut)
    with (
        EtcdDbReader(path, arrival=Front(len(cut))) as db,
        pytest.raises(CorruptionError, match="are in use"),
    ):
        db.check_size()


def test_an_arrival_tells_how_far_a_file_has_come(tmp_path: Path) -> None:
    (tmp_path / "words").write_bytes(report(10) + report(20)[:3])
    with (tmp_path / "words").open("rb") as reading, (tmp_path / "words").open("ab") as writing:
        arrival = PipeArrival(reading.fileno())
        assert arrival.wait(5) == 10
        assert not arrival.is_complete
        writing.write(report(20)[3:] + report(25, is_complete=True))
        writing.flush()
        assert arrival.wait(15) == 25
        assert arrival.is_complete
        assert arrival.wait(1000) == arrival.wait_for_end() == 25


@pytest.mark.parametrize("words", [b"", report(10), report(10) + report(99, is_complete=True)[:7]])
def test_a_file_whose_last_word_never_comes_breaks_off(tmp_path: Path, words: bytes) -> None:
    (tmp_path / "words").write_bytes(words)
    with (tmp_path / "words").open("rb") as reading:
        arrival = PipeArrival(reading.fileno())
        with pytest.raises(DataDirError, match="truncated after"):
            arrival.wait(11)
        with pytest.raises(DataDirError, match="truncated after"):
            arrival.wait_for_end()


def test_a_pipe_has_room_for_all_words() -> None:
    told = words = 0
    for size in range(0, 1 << 44, 1 << 30):
        if is_report_due(size, told):
            told, words = size, words + 1
    assert words * 8 < 64 << 10


def test_a_slow_writer_tells_of_every_bit() -> None:
    gib = 1 << 30
    assert not is_report_due(8 * gib + 1, 8 * gib, STEP_S_MAX / 2)
    assert is_report_due(8 * gib + 1, 8 * gib, STEP_S_MAX)
    assert not is_report_due(8 * gib, 8 * gib, 2 * STEP_S_MAX)
