"""Any rows survive the file; any damage ends in a CorruptionError or in rows still in order."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvstore.errors import CorruptionError
from kvstore.storage.etcd_db.reader import EtcdDbReader
from tests.support.disks.etcd_db_files import (
    BRANCH,
    PAGE,
    Buckets,
    page_headers,
    read,
    sample,
    write,
)

ROWS_MAX = 100_000  # of a damaged file: more would be a loop

_sizes = st.one_of(st.integers(0, 300), st.integers(900, 1100), st.integers(4000, 9000))
_keys = st.binary(min_size=1, max_size=40)
_buckets = st.dictionaries(
    st.binary(min_size=1, max_size=30),
    st.dictionaries(_keys, _sizes, max_size=40).map(
        lambda rows: [(key, b"v" * rows[key]) for key in sorted(rows)]
    ),
    max_size=12,
)


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture(scope="module")
def sound(directory: Path) -> bytes:
    """A file with every kind of page: branches on two levels, overflow, inline buckets."""
    buckets = sample(900)
    buckets[b"lease"] = [(b"%08d" % n, b"l" * 20) for n in range(60)]
    buckets[b"members"] = [(b"%02d" % n + b"m" * 1500, b"M" * 5000) for n in range(40)]
    path = write(directory / "sound", buckets)
    flags = [flags for _, flags, _, _ in page_headers(path)]
    assert flags.count(BRANCH) > 3
    return path.read_bytes()


@settings(max_examples=80, deadline=None)
@given(buckets=_buckets)
def test_rows_survive(directory: Path, buckets: Buckets) -> None:
    assert read(write(directory / "rows", buckets)) == buckets


def _read_damaged(path: Path) -> None:
    """Read everything; CorruptionError is fine, another error or rows without order are not."""
    try:
        with EtcdDbReader(path) as db:
            count = 0
            for name in db.buckets():
                previous = b""
                for key, _ in db.scan(name):
                    assert key > previous
                    previous = key
                    count += 1
                    assert count < ROWS_MAX
    except CorruptionError as error:
        if str(path) not in str(error):
            raise


# Half of the hits go to page headers and element tables, where they hurt most.
_places = st.one_of(
    st.tuples(st.integers(0, 1 << 20), st.integers(0, 120)),
    st.tuples(st.integers(0, 1 << 20), st.integers(0, PAGE - 1)),
)


@settings(max_examples=400, deadline=None)
@given(
    hits=st.lists(st.tuples(_places, st.integers(1, 255)), min_size=1, max_size=4),
    cut=st.one_of(st.none(), st.none(), st.integers(0, 1 << 20)),
)
def test_flipped_and_truncated_bytes_are_only_ever_corruption(
    directory: Path, sound: bytes, hits: list[tuple[tuple[int, int], int]], cut: int | None
) -> None:
    data = bytearray(sound)
    pages = len(data) // PAGE
    for (page, offset), flip in hits:
        data[page % pages * PAGE + offset] ^= flip
    path = directory / "damaged"
    path.write_bytes(data if cut is None else data[: cut % len(data)])
    _read_damaged(path)


@settings(max_examples=100, deadline=None)
@given(
    field=st.sampled_from([(0, 8), (8, 2), (10, 2), (12, 4), (16, 4), (20, 4), (24, 8), (28, 4)]),
    page=st.integers(0, 1 << 20),
    value=st.one_of(st.integers(0, 300), st.integers(0, (1 << 64) - 1)),
)
def test_any_number_in_a_header_is_only_ever_corruption(
    directory: Path, sound: bytes, field: tuple[int, int], page: int, value: int
) -> None:
    data = bytearray(sound)
    offset, size = field
    at = page % (len(data) // PAGE) * PAGE + offset
    data[at : at + size] = (value % (1 << 8 * size)).to_bytes(size, "little")
    path = directory / "numbers"
    path.write_bytes(data)
    _read_damaged(path)
