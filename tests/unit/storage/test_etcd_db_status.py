"""Status and digest of a database file, as etcd's tools compute them."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import google_crc32c
import pytest

from kvstore.backend import Row
from kvstore.errors import CorruptionError
from kvstore.storage.etcd_db.digest import append_digest, check_digest, digest, has_digest
from kvstore.storage.etcd_db.status import status, status_of
from tests.support.disks.etcd_db_files import put_row, revision, sample, write


def test_status_counts_live_keys_and_hashes_every_row_in_order(tmp_path: Path) -> None:
    buckets = sample(3000)
    path = write(tmp_path / "db", buckets)
    crc = 0
    for name in sorted(buckets):
        crc = google_crc32c.extend(crc, name)
        for row in buckets[name]:
            crc = google_crc32c.extend(crc, b"".join(row))
    assert status(path) == (crc, 3002, 2999, path.stat().st_size, "3.7.0")


class LargeRows:
    """A state of a few rows of a megabyte."""

    path = Path("large")
    size_bytes = 1 << 30

    def buckets(self) -> list[bytes]:
        return [b"lease"]

    def scan(self, bucket: bytes) -> Iterator[Row]:
        for number in range(10):
            yield b"%08d" % number, bytes(1 << 20)


def test_large_rows_are_hashed_one_by_one() -> None:
    read_bytes: list[int] = []
    status_of(LargeRows(), read_bytes.append)
    assert read_bytes == [8 + (1 << 20)] * 10 + [0]


def test_status_takes_a_bumped_revision_for_a_record_of_the_empty_key(tmp_path: Path) -> None:
    """What `etcdutl snapshot restore --bump-revision` leaves."""
    path = write(tmp_path / "db", {b"key": [put_row(2, b"a"), (revision(1002), b"")], b"meta": []})
    assert status(path)[1:3] == (1002, 2)
    assert status(path).version == ""


@pytest.mark.parametrize("row", [(b"short", b""), (revision(2), b"\x0a\x50k"), (b"x" * 19, b"")])
def test_status_refuses_records_that_are_none(tmp_path: Path, row: tuple[bytes, bytes]) -> None:
    path = write(tmp_path / "db", {b"key": [row]})
    with pytest.raises(CorruptionError, match="bucket key: "):
        status(path)


def test_a_snapshot_file_ends_in_its_digest(tmp_path: Path) -> None:
    path = write(tmp_path / "db", sample(10))
    body = path.read_bytes()
    assert not has_digest(path)
    with pytest.raises(CorruptionError, match="carries no digest"):
        check_digest(path)
    assert append_digest(path) == hashlib.sha256(body).digest() == path.read_bytes()[len(body) :]
    assert has_digest(path)
    check_digest(path)
    assert status(path).total_keys == 9  # the digest is no part of the database


@pytest.mark.parametrize("at", [0, 5000, -1])
def test_a_flipped_byte_is_seen_by_the_digest(tmp_path: Path, at: int) -> None:
    path = write(tmp_path / "db", sample(10))
    append_digest(path)
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptionError, match="is not that of the content"):
        check_digest(path)


def test_a_digest_of_more_bytes_than_there_are_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "db", {})
    with pytest.raises(CorruptionError, match="ends 1 bytes before"):
        digest(path, path.stat().st_size + 1)
