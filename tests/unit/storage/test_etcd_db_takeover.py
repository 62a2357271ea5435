"""Taking over an etcd's data directory: all of it, or nothing changed; and after any crash."""

import fcntl
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from typing_extensions import override

from kvstore.backend import BUCKETS, Row, Table
from kvstore.errors import CorruptionError, DataDirError, KvstoreError
from kvstore.storage import takeover
from kvstore.storage.files import OsFiles
from kvstore.storage.lmdb.backend import LmdbBackend
from kvstore.storage.takeover import TakenOver, copy_rows, take_over
from tests.support.disks.etcd_db_files import Buckets, put_row, sample, write

INDEX = 9  # consistent_index of the sample


@pytest.fixture
def member(tmp_path: Path) -> Path:
    (tmp_path / "member" / "snap").mkdir(parents=True)
    return tmp_path / "member"


def _state(member: Path) -> Buckets:
    backend = LmdbBackend(member)
    try:
        return {BUCKETS[table]: backend.scan(table, b"", None, 1 << 30) for table in Table}
    finally:
        backend.close()


def _names(member: Path) -> set[str]:
    files = {"lmdb.lock", "data.mdb", "lock.mdb"}
    return {str(p.relative_to(member)) for p in member.rglob("*") if p.name not in files}


def test_every_bucket_is_taken_over_row_for_row(member: Path) -> None:
    buckets = sample(3000)
    buckets[b"lease"] = [(b"%08d" % n, b"lease") for n in range(500)]
    size = write(member / "snap" / "db", buckets).stat().st_size
    assert take_over(member, LmdbBackend) == TakenOver(3505 + 1, size, INDEX)
    assert _state(member) == buckets
    assert _names(member) == {"snap", "snap/db.taken-over", "lmdb"}
    assert take_over(member, LmdbBackend) is None


def test_nothing_to_take_over_changes_nothing(member: Path) -> None:
    assert take_over(member, LmdbBackend) is None
    assert take_over(member, LmdbBackend, snapshot_index=77) is None
    assert _names(member) == {"snap"}
    assert not (member / "lmdb.lock").exists()


def test_rows_larger_than_a_batch_and_progress(
    member: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(takeover, "BATCH_BYTES_MAX", 10_000)
    monkeypatch.setattr(takeover, "COMMIT_BYTES", 25_000)
    buckets = sample(50, value_bytes=1500)
    buckets[b"key"].append(put_row(1000, b"large", b"L" * 100_000))
    write(member / "snap" / "db", buckets)
    told: list[tuple[int, int]] = []
    take_over(member, LmdbBackend, progress=lambda done, total: told.append((done, total)))
    assert _state(member) == buckets
    assert len(told) > 5
    assert told == sorted(told)
    assert told[-1][0] == sum(len(k) + len(v) for rows in buckets.values() for k, v in rows)


class Sink:
    """A backend that only notes how much it is given at once."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    def append(self, table: Table, rows: Iterable[Row]) -> None:
        self.batches.append(sum(len(key) + len(value) for key, value in rows))

    def commit(self) -> None:
        self.batches.append(0)


class LargeRows:
    """A state of a few rows as large as requests may be made."""

    path = Path("large")
    size_bytes = 10 * takeover.BATCH_BYTES_MAX

    def buckets(self) -> list[bytes]:
        return [b"key"]

    def scan(self, bucket: bytes) -> Iterator[Row]:
        for number in range(10):
            yield b"%017d" % number, bytes(takeover.BATCH_BYTES_MAX)


def test_bytes_are_counted_from_the_first_row() -> None:
    sink = Sink()
    assert copy_rows(LargeRows(), sink, commit_bytes=3 * takeover.BATCH_BYTES_MAX) == 10
    row_bytes = 17 + takeover.BATCH_BYTES_MAX
    assert sink.batches == [*[row_bytes] * 3, 0] * 3 + [row_bytes]


class PowerCut(Exception):  # noqa: N818  # it is no error of the program
    """The moment the machine stops."""


class CutFiles(OsFiles):
    """A disk whose machine stops before the n-th change."""

    def __init__(self, calls: int) -> None:
        self.calls = calls

    def _count(self) -> None:
        self.calls -= 1
        if self.calls < 0:
            raise PowerCut

    @override
    def rename(self, old: Path, new: Path) -> None:
        self._count()
        super().rename(old, new)

    @override
    def remove_tree(self, path: Path) -> None:
        self._count()
        super().remove_tree(path)

    @override
    def sync_directory(self, path: Path) -> None:
        self._count()
        super().sync_directory(path)


@pytest.mark.parametrize("received", [False, True])
def test_a_crash_at_any_step_is_made_good_at_the_next_start(
    member: Path,
    received: bool,  # noqa: FBT001
) -> None:
    buckets = sample(20)
    snapshot_index = INDEX if received else 0
    cuts = 0
    while True:
        for path in (member / "lmdb", member / "lmdb.tmp"):
            OsFiles().remove_tree(path)
        (member / "snap" / "db.taken-over").unlink(missing_ok=True)
        name = f"{INDEX:016x}.snap.db" if received else "db"
        write(member / "snap" / name, buckets)
        if received:
            old = sample(1)
            old[b"meta"][0] = (b"consistent_index", (3).to_bytes(8))
            write(member / "snap" / "db", old)
        try:
            take_over(member, LmdbBackend, snapshot_index=snapshot_index, files=CutFiles(cuts))
            break
        except PowerCut:
            cuts += 1
        take_over(member, LmdbBackend, snapshot_index=snapshot_index)
        assert _state(member) == buckets
        assert _names(member) == {"snap", "snap/db.taken-over", "lmdb"}
        assert take_over(member, LmdbBackend, snapshot_index=snapshot_index) is None
    assert cuts >= 8


def test_an_import_that_was_cut_off_is_begun_anew(member: Path) -> None:
    buckets = sample(20)
    write(member / "snap" / "db", buckets)
    partial = LmdbBackend(member / "lmdb.tmp")
    partial.put(Table.KEY, b"stale", b"row")
    partial.close()
    take_over(member, LmdbBackend)
    assert _state(member) == buckets


def test_a_received_database_ahead_of_the_current_one_counts(member: Path) -> None:
    current, received = sample(3), sample(5)
    received[b"meta"][0] = (b"consistent_index", (40).to_bytes(8))
    write(member / "snap" / "db", current)
    write(member / "snap" / f"{40:016x}.snap.db", received)
    taken = take_over(member, LmdbBackend, snapshot_index=40)
    assert taken is not None
    assert taken.consistent_index == 40
    assert _state(member) == received


def test_a_received_database_behind_the_current_one_stays_aside(member: Path) -> None:
    write(member / "snap" / "db", sample(3))
    write(member / "snap" / f"{INDEX:016x}.snap.db", sample(5))
    take_over(member, LmdbBackend, snapshot_index=INDEX)
    assert _state(member) == sample(3)


def _with_meta(key: bytes, value: bytes, bucket: bytes = b"meta") -> Buckets:
    buckets = sample(3)
    buckets[bucket] = sorted({**dict(buckets[bucket]), key: value}.items())
    return buckets


REFUSALS: dict[str, tuple[Callable[[], Buckets], int, str]] = {
    "newer storage": (
        lambda: _with_meta(b"storageVersion", b"3.8.0"),
        0,
        r"storageVersion is 3\.8\.0, this is version 3\.7\.1, which reads up to 3\.7",
    ),
    "newer major": (lambda: _with_meta(b"storageVersion", b"4.0.0"), 0, r"is 4\.0\.0"),
    "newer cluster": (
        lambda: _with_meta(b"clusterVersion", b"3.10.0", b"cluster"),
        0,
        r"clusterVersion is 3\.10\.0",
    ),
    "no version": (lambda: _with_meta(b"storageVersion", b"\xff"), 0, "invalid version"),
    "unknown buckets": (
        lambda: {**sample(3), b"extra": [], b"zebra": [(b"k", b"v")]},
        0,
        "cannot store: b'extra', b'zebra'",
    ),
    "not an etcd's": (lambda: {b"key": []}, 0, "no bucket 'meta'"),
    "required snapshot missing": (
        lambda: sample(3),
        500,
        r"at index 9 .* snapshot 500: 00000000000001f4\.snap\.db is required and missing",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_names_the_reason_and_changes_nothing(member: Path, name: str) -> None:
    make, snapshot_index, text = REFUSALS[name]
    path = write(member / "snap" / "db", make())
    before = path.read_bytes()
    with pytest.raises(DataDirError, match=text):
        take_over(member, LmdbBackend, snapshot_index=snapshot_index)
    assert path.read_bytes() == before
    assert _names(member) == {"snap", "snap/db"}


@pytest.mark.parametrize("version", [b"3.5.0", b"3.7.99", None])
def test_versions_up_to_ours_are_taken_over(member: Path, version: bytes | None) -> None:
    buckets = sample(3)
    if version is None:
        buckets[b"meta"] = [row for row in buckets[b"meta"] if row[0] != b"storageVersion"]
    else:
        buckets = _with_meta(b"storageVersion", version)
    write(member / "snap" / "db", buckets)
    take_over(member, LmdbBackend)
    assert _state(member) == buckets


def test_a_damaged_database_is_refused_and_the_half_import_removed(member: Path) -> None:
    path = write(member / "snap" / "db", sample(3000))
    data = bytearray(path.read_bytes())
    data[20 * 4096] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptionError, match=r"snap/db: page 20 at offset 81920"):
        take_over(member, LmdbBackend)
    assert _names(member) == {"snap", "snap/db"}


def test_two_states_are_refused(member: Path) -> None:
    LmdbBackend(member).close()
    write(member / "snap" / "db", sample(3))
    with pytest.raises(DataDirError, match="contains two states"):
        take_over(member, LmdbBackend)


def test_a_running_etcd_keeps_its_directory(member: Path) -> None:
    path = write(member / "snap" / "db", sample(3))
    with path.open("rb") as etcd:
        fcntl.flock(etcd, fcntl.LOCK_EX)
        with pytest.raises(DataDirError, match="in use by another process"):
            take_over(member, LmdbBackend)
    assert _names(member) == {"snap", "snap/db"}


def test_a_running_server_of_ours_keeps_its_directory(member: Path) -> None:
    write(member / "snap" / "db", sample(3))
    with (member / "lmdb.lock").open("w") as server:
        fcntl.flock(server, fcntl.LOCK_EX)
        with pytest.raises(DataDirError, match="in use by another process"):
            take_over(member, LmdbBackend)


class FullDisk(OsFiles):
    @override
    def rename(self, old: Path, new: Path) -> None:
        raise OSError(28, "No space left on device", str(old))


def test_a_name_that_cannot_be_changed_is_a_clear_error(member: Path) -> None:
    write(member / "snap" / "db", sample(3))
    with pytest.raises(KvstoreError, match=r"cannot be taken over: .*No space left"):
        take_over(member, LmdbBackend, files=FullDisk())
    assert take_over(member, LmdbBackend) is not None
    assert _state(member) == sample(3)


def test_a_row_that_no_table_can_hold_is_refused_and_changes_nothing(member: Path) -> None:
    buckets = sample(3)
    buckets[b"authUsers"] = [(b"u" * 512, b"user")]
    write(member / "snap" / "db", buckets)
    with pytest.raises(DataDirError, match="authUsers: a row key of 512 bytes"):
        take_over(member, LmdbBackend)
    assert _names(member) == {"snap", "snap/db"}
