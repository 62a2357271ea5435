"""Checksums of rows: both implementations, databases with and without them, damage."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.component.crate import ROW_SUMS
from kvstore.backend import BUCKETS, Row, Table, scan_all
from kvstore.errors import CorruptionError, DefragmentError, StorageFatalError
from kvstore.mvcc.revision import revision_key
from kvstore.storage.lmdb.backend import LmdbBackend
from kvstore.storage.lmdb.readers import open_reader
from kvstore.storage.row_sums import PYTHON_SUMS, UNSUMMED, RowSums, first_damaged
from tests.support.older_format import MAP_BYTES, write_older_format

ZEROS = bytes(64)
MANY = 300
Read = Callable[[LmdbBackend, bytes], object]

needs_crate = pytest.mark.skipif(ROW_SUMS is None, reason="the crate is not built")
SUMS = [
    pytest.param(PYTHON_SUMS, id="python"),
    pytest.param(ROW_SUMS, id="crate", marks=needs_crate),
]
ROWS = st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=300)), max_size=20)


@pytest.mark.parametrize("sums", SUMS)
@given(rows=ROWS)
def test_rows_come_back_as_they_were(sums: RowSums, rows: list[Row]) -> None:
    sealed = list(sums.seal(rows))
    keys, stored = [key for key, _ in sealed], [each for _, each in sealed]
    values = [value for _, value in rows]
    assert sealed == list(PYTHON_SUMS.seal(rows))
    assert sums.rows(sealed) == rows
    assert sums.values(keys, stored) == values
    assert [sums.value(*row) for row in sealed] == values
    fields = sums.fields(keys, stored, b"head", b"tail")
    assert fields == UNSUMMED.fields(keys, values, b"head", b"tail")
    assert first_damaged(keys, stored) == -1


@pytest.mark.parametrize("sums", SUMS)
@given(rows=ROWS.filter(bool), data=st.data())
def test_any_flipped_bit_is_found(sums: RowSums, rows: list[Row], data: st.DataObject) -> None:
    sealed = list(sums.seal(rows))
    at = data.draw(st.integers(0, len(rows) - 1))
    key, stored = sealed[at]
    whole = bytearray(key + stored)
    spot = data.draw(st.integers(0, len(whole) - 1))
    whole[spot] ^= 1 << data.draw(st.integers(0, 7))
    sealed[at] = bytes(whole[: len(key)]), bytes(whole[len(key) :])
    keys, found = [each for each, _ in sealed], [each for _, each in sealed]
    assert sums.rows(sealed) is None
    assert sums.values(keys, found) is None
    assert sums.fields(keys, found, b"", b"") is None
    assert sums.value(*sealed[at]) is None
    assert first_damaged(keys, found) == at


@pytest.mark.parametrize("sums", SUMS)
def test_a_value_under_another_key_is_damage(sums: RowSums) -> None:
    (_, first), (_, second) = sums.seal([(b"a", b"1"), (b"b", b"2")])
    assert sums.values([b"a", b"b"], [second, first]) is None


@pytest.mark.parametrize("sums", SUMS)
def test_keys_and_rows_of_different_numbers_are_refused(sums: RowSums) -> None:
    with pytest.raises(ValueError, match=r"."):
        sums.values([b"a"], [])


@needs_crate
def test_fields_are_a_range_response() -> None:
    assert ROW_SUMS is not None
    sealed = ROW_SUMS.seal([(b"%d" % size, b"\n" + bytes(size)) for size in (1, 126, 127, 20_000)])
    keys, stored = [key for key, _ in sealed], [each for _, each in sealed]
    fields = ROW_SUMS.fields(keys, stored, b"", b"\x20\x04")
    assert fields == UNSUMMED.fields(keys, [each[:-4] for each in stored], b"", b"\x20\x04")


# Damage in a database.


def value_of(number: int) -> bytes:
    return random.Random(number).randbytes(100 if number % 7 else 20_000)  # a few on own pages


@pytest.fixture
def damaged(tmp_path: Path) -> tuple[Path, bytes, int]:
    """Return a member directory, the key of a row with 64 zeroed bytes, and its page."""
    return make_damaged(tmp_path, number=101)


def make_damaged(directory: Path, number: int) -> tuple[Path, bytes, int]:
    backend = LmdbBackend(directory)
    backend.append(Table.KEY, [(revision_key(n), value_of(n)) for n in range(2, MANY)])
    backend.put(Table.ALARM, b"alarm", b"")
    backend.close()
    file = directory / "lmdb" / "data.mdb"
    data = file.read_bytes()
    at = data.find(value_of(number))
    assert at > 0
    file.write_bytes(data[: at + 10] + ZEROS + data[at + 10 + len(ZEROS) :])
    return directory, revision_key(number), at // 4096


READS: dict[str, Read] = {
    "get": lambda backend, key: backend.get(Table.KEY, key),
    "get_many": lambda backend, key: backend.get_many(Table.KEY, [revision_key(5), key]),
    "get_fields": lambda backend, key: backend.get_fields(Table.KEY, [key], b"", b""),
    "scan": lambda backend, _: backend.scan(Table.KEY, b"", None, MANY),
    "scan to an end": lambda backend, _: backend.scan(Table.KEY, b"", b"\xff", MANY),
}


@pytest.mark.parametrize("sums", SUMS)
@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("number", [101, 105], ids=["in a leaf", "on pages of its own"])
def test_reading_a_damaged_row_is_fatal_and_names_it(
    tmp_path: Path, read: str, sums: RowSums, number: int
) -> None:
    directory, key, page = make_damaged(tmp_path, number)
    backend = LmdbBackend(directory)
    backend.use_checksums_of(sums)
    assert backend.get(Table.KEY, revision_key(100)) == value_of(100)
    with pytest.raises(CorruptionError) as caught:
        READS[read](backend, key)
    text = str(caught.value)
    assert str(directory / "lmdb" / "data.mdb") in text
    assert f"page {page}:" in text
    assert f"table key: row {key.hex()} (revision {number}, change 0)" in text
    assert "--rebuild-from-peers" in text
    with pytest.raises(StorageFatalError, match="no call is accepted after a failure"):
        backend.commit()
    backend.abandon()


def test_the_greatest_row_is_checked(tmp_path: Path) -> None:
    directory, key, _ = make_damaged(tmp_path, MANY - 1)
    backend = LmdbBackend(directory)
    with pytest.raises(CorruptionError, match=key.hex()):
        backend.last(Table.KEY)
    backend.abandon()


@pytest.mark.parametrize("views", [False, True])
def test_a_reader_in_another_process_checks(
    damaged: tuple[Path, bytes, int], *, views: bool
) -> None:
    directory, key, page = damaged
    with open_reader(directory, views=views) as snapshot:
        assert list(snapshot.scan(Table.ALARM)) == [(b"alarm", b"")]
        with pytest.raises(CorruptionError, match=rf"page {page}: .*{key.hex()}"):
            list(snapshot.scan(Table.KEY))
        if views:
            with pytest.raises(CorruptionError, match=key.hex()):
                list(snapshot.views(Table.KEY))
            sizes = [len(value) for _, value in snapshot.views(Table.KEY, check=False)]
            assert sizes == [len(value_of(n)) for n in range(2, MANY)]


# Databases of the older format.


def older_rows() -> dict[Table, list[Row]]:
    return {
        Table.KEY: [(revision_key(n), value_of(n)) for n in range(2, MANY)],
        Table.META: [(b"consistent_index", bytes(8))],
        Table.ALARM: [(b"alarm", b"")],
    }


def all_rows(backend: LmdbBackend) -> dict[Table, list[Row]]:
    found = {table: list(scan_all(backend, table)) for table in Table}
    return {table: rows for table, rows in found.items() if rows}


def test_a_database_of_the_older_format_is_read_and_written_as_it_is(tmp_path: Path) -> None:
    write_older_format(tmp_path, older_rows())
    backend = LmdbBackend(tmp_path)
    backend.use_checksums_of(PYTHON_SUMS)
    assert not backend.has_checksums
    assert all_rows(backend) == older_rows()
    backend.put(Table.META, b"new", b"value")
    assert backend.get(Table.META, b"new") == b"value"
    backend.start_defragment()
    while not backend.step_defragment():
        pass
    assert not backend.has_checksums
    backend.close()
    with open_reader(tmp_path) as snapshot:
        assert not snapshot.has_checksums
        assert dict(snapshot.scan(Table.META))[b"new"] == b"value"


def test_checksums_are_added_once(tmp_path: Path) -> None:
    write_older_format(tmp_path, older_rows())
    backend = LmdbBackend(tmp_path)
    assert backend.add_checksums() == sum(map(len, older_rows().values()))
    assert backend.has_checksums
    assert all_rows(backend) == older_rows()
    assert backend.add_checksums() == 0
    backend.put(Table.META, b"new", b"value")
    backend.close()
    again = LmdbBackend(tmp_path)
    assert again.has_checksums
    assert again.get(Table.META, b"new") == b"value"
    again.close()
    data = (tmp_path / "lmdb" / "data.mdb").read_bytes()
    assert data.find(dict(PYTHON_SUMS.seal([(b"new", b"value")]))[b"new"]) > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lmdb", "lmdb.lock"]


def test_without_room_for_the_copy_the_older_format_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_older_format(tmp_path, older_rows())
    backend = LmdbBackend(tmp_path)
    monkeypatch.setattr("kvstore.storage.lmdb.backend.free_bytes", lambda _: 4096)
    with pytest.raises(DefragmentError, match="has 4096"):
        backend.add_checksums()
    assert not backend.has_checksums
    assert all_rows(backend) == older_rows()
    backend.close()


def test_a_received_state_brings_its_own_format(tmp_path: Path) -> None:
    write_older_format(tmp_path, older_rows())
    other = LmdbBackend(tmp_path / "other")
    other.put(Table.META, b"theirs", b"1")
    other.close()
    (tmp_path / "other" / "lmdb").rename(tmp_path / f"lmdb.received.{7:016x}")
    backend = LmdbBackend(tmp_path)
    assert not backend.has_checksums
    assert backend.take_received(7)
    assert backend.has_checksums
    assert all_rows(backend) == {Table.META: [(b"theirs", b"1")]}
    backend.close()


def change_main_table(directory: Path, change: Callable[[Any], object]) -> None:
    path = str(directory / "lmdb")
    environment = lmdb.open(path, map_size=MAP_BYTES, max_dbs=len(BUCKETS))
    with environment as env, env.begin(write=True) as txn:
        change(txn)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda txn: txn.delete(b"kvstore.row-checksum"), "mark of checksums is missing"),
        (lambda txn: txn.put(b"kvstore.row-checksum", b"crc64"), "is b'crc64', not b'crc32c'"),
        (
            lambda txn: txn.put(b"kvstore", msgpack.packb({"format": 1, "created_by": "3.7.1"})),
            "format is 1, and the mark of checksums exists",
        ),
    ],
)
def test_marks_that_disagree_are_damage(
    tmp_path: Path, change: Callable[[Any], object], text: str
) -> None:
    LmdbBackend(tmp_path).close()
    change_main_table(tmp_path, change)
    with pytest.raises(CorruptionError, match=text):
        LmdbBackend(tmp_path)
