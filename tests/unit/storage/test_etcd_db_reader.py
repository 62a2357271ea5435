"""The reader: what it refuses, and that the refusal names file, page and offset."""

import fcntl
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from kvstore.errors import CorruptionError, DataDirError
from kvstore.storage.etcd_db.page import NO_FREELIST, Meta, decode_meta, encode_meta
from kvstore.storage.etcd_db.reader import EtcdDbReader
from tests.support.disks.etcd_db_files import BRANCH, LEAF, PAGE, page_headers, read, sample, write

Damage = Callable[[bytearray, "Shape"], None]


class Shape:
    """Where the pages of interest are in the sample file."""

    def __init__(self, path: Path) -> None:
        headers = page_headers(path)
        self.root = headers[-1][0]
        self.branch = next(page for page, flags, _, _ in headers if flags == BRANCH)
        self.leaves = [page for page, flags, _, _ in headers if flags == LEAF][:-1]
        self.high_water = self.root + 1


def _poke(layout: str, page_offset: int, value: int, *, page: str = "leaf") -> Damage:
    def damage(data: bytearray, shape: Shape) -> None:
        page_id = {"leaf": shape.leaves[1], "branch": shape.branch, "root": shape.root}[page]
        struct.pack_into(layout, data, page_id * PAGE + page_offset, value)

    return damage


def _child(to: Callable[[Shape], int]) -> Damage:
    def damage(data: bytearray, shape: Shape) -> None:
        struct.pack_into("<Q", data, shape.branch * PAGE + 16 + 16 + 8, to(shape))

    return damage


def _keys_at(data: bytearray, page_id: int) -> int:
    return page_id * PAGE + 16 + 16 * struct.unpack_from("<H", data, page_id * PAGE + 10)[0]


def _repeat_key(page: str) -> Damage:
    """Make the second key of a page equal to the first: revision keys have all one length."""

    def damage(data: bytearray, shape: Shape) -> None:
        page_id = shape.leaves[1] if page == "leaf" else shape.branch
        first = _keys_at(data, page_id)
        element = page_id * PAGE + 32
        pos = struct.unpack_from("<I", data, element + (4 if page == "leaf" else 0))[0]
        data[element + pos : element + pos + 17] = data[first : first + 17]

    return damage


def _first_key(main: int) -> Damage:
    def damage(data: bytearray, shape: Shape) -> None:
        struct.pack_into(">Q", data, _keys_at(data, shape.leaves[1]), main)

    return damage


def _metas(data: bytearray, **changes: int) -> None:
    meta = decode_meta(bytes(data[:PAGE]))
    assert isinstance(meta, Meta)
    for page_id in (0, 1):
        data[page_id * PAGE : (page_id + 1) * PAGE] = encode_meta(page_id, meta._replace(**changes))


def _lease_into_key(data: bytearray, shape: Shape) -> None:
    at = data.index(b"lease", shape.root * PAGE) + len(b"lease")
    struct.pack_into("<Q", data, at, shape.leaves[0])


DAMAGES: dict[str, tuple[Damage, str]] = {
    "page id": (_poke("<Q", 0, 77), "page of id 77"),
    "flags": (_poke("<H", 8, 0x10), "flags 0x10"),
    "two flags": (_poke("<H", 8, 0x03), "flags 0x3"),
    "count beyond page": (_poke("<H", 10, 9999), "count 9999 beyond the page"),
    "count one too high": (_poke("<H", 10, 255), "leaf element"),
    "count one too low": (_poke("<H", 10, 1), "leaf element"),
    "overflow beyond file": (_poke("<I", 12, 1 << 31), "overflow 2147483648"),
    "overflow into the next": (_poke("<I", 12, 1), "page is reached twice"),
    "element flags": (_poke("<I", 16, 1), "leaf element of flags 0x1"),
    "element pos": (_poke("<I", 20, 4000), "pos 4000"),
    "key size": (_poke("<I", 24, 70_000), "key size 70000"),
    "key of no bytes": (_poke("<I", 24, 0), "key size 0"),
    "value size": (_poke("<I", 28, 1 << 30), "value size"),
    "order in a leaf": (_repeat_key("leaf"), "does not follow"),
    "order in a branch": (_repeat_key("branch"), "does not follow"),
    "first key below the branch": (_first_key(0), "is below its branch"),
    "first key above its own page": (_first_key(1 << 40), "does not follow"),
    "branch pos": (_poke("<I", 16, 0, page="branch"), "branch element of pos 0"),
    "branch key size": (_poke("<I", 20, 1 << 31, page="branch"), "key size 2147483648"),
    "branch without children": (_poke("<H", 10, 0, page="branch"), "without children"),
    "child 0": (_child(lambda _: 0), "page beyond"),
    "child beyond": (_child(lambda shape: shape.high_water), "page beyond"),
    "child is huge": (_child(lambda _: (1 << 64) - 1), "page beyond"),
    "child is its parent": (_child(lambda shape: shape.branch), "page is reached twice"),
    "child is its sibling": (_child(lambda shape: shape.leaves[0]), "page is reached twice"),
    "child is the root": (_child(lambda shape: shape.root), "page is reached twice"),
    "two children swapped": (_child(lambda shape: shape.leaves[2]), "reaches the next branch"),
    "a page of another bucket": (_lease_into_key, "page is reached twice"),
    "bucket is no bucket": (_poke("<I", 16, 0, page="root"), "leaf element of flags 0x0"),
    "root beyond": (lambda data, _: _metas(data, root=1 << 40), "root page"),
    "root is a meta page": (lambda data, _: _metas(data, root=1), "root page 1"),
    "high water beyond the file": (lambda data, _: _metas(data, high_water=1 << 40), "are in use"),
    "freelist beyond": (lambda data, _: _metas(data, freelist=1 << 40), "freelist page"),
    "freelist is a leaf": (lambda data, _: _metas(data, freelist=2), "of a freelist"),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "db", sample(400))


def _read_all_twice(path: Path) -> None:
    with EtcdDbReader(path) as db:
        for _ in range(2):
            for name in db.buckets():
                for _ in db.scan(name):
                    pass


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_reported_with_file_page_and_offset(path: Path, name: str) -> None:
    damage, text = DAMAGES[name]
    data = bytearray(path.read_bytes())
    damage(data, Shape(path))
    path.write_bytes(data)
    with pytest.raises(CorruptionError, match=text) as caught:
        _read_all_twice(path)
    assert str(caught.value).startswith(f"{path}: page ")
    assert " at offset " in str(caught.value)


@pytest.mark.parametrize("page_id", [0, 1])
@pytest.mark.parametrize(
    ("offset", "value"), [(16, b"????"), (20, b"\3\0\0\0"), (40, b"\1"), (72, b"\0\0"), (79, b"?")]
)
def test_one_sound_meta_page_is_enough(path: Path, page_id: int, offset: int, value: bytes) -> None:
    data = bytearray(path.read_bytes())
    at = page_id * PAGE + offset
    data[at : at + len(value)] = value
    path.write_bytes(data)
    assert read(path) == sample(400)


def test_the_meta_page_with_the_higher_transaction_counts(path: Path) -> None:
    data = bytearray(path.read_bytes())
    old = decode_meta(bytes(data[:PAGE]))
    assert isinstance(old, Meta)
    newer = old._replace(root=Shape(path).leaves[0], txid=old.txid + 1)
    data[PAGE : 2 * PAGE] = encode_meta(1, newer)
    path.write_bytes(data)
    with pytest.raises(CorruptionError, match="leaf element of flags 0x0"):
        EtcdDbReader(path)


def test_a_file_with_both_meta_pages_bad_names_both_reasons(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[16:20] = b"????"
    data[PAGE + 40] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptionError, match=r"0: magic 0x3f3f3f3f .*; 1: .*"):
        EtcdDbReader(path)


@pytest.mark.parametrize("size", [0, 1, 79, 80, PAGE, 3 * PAGE, -1])
def test_a_file_cut_short_is_refused(path: Path, size: int) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:size])
    with pytest.raises(CorruptionError):
        _read_all_twice(path)


def test_bytes_behind_the_pages_in_use_do_not_matter(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"?" * 100_000)
    assert read(path) == sample(400)


def test_a_freelist_page_is_passed_over(path: Path) -> None:
    data = bytearray(path.read_bytes())
    page_id = len(data) // PAGE
    data += struct.pack("<QHHI", page_id, 0x10, 0, 0).ljust(PAGE, b"\0")
    _metas(data, freelist=page_id, high_water=page_id + 1)
    path.write_bytes(data)
    assert read(path) == sample(400)
    with EtcdDbReader(path) as db:
        assert db.meta.freelist == page_id != NO_FREELIST


def test_other_page_sizes_are_read_even_from_the_second_meta_page(tmp_path: Path) -> None:
    size = 16384
    meta = Meta(page_size=size, root=2, freelist=NO_FREELIST, high_water=3, txid=7)
    inline = struct.pack("<QQ", 0, 0) + struct.pack("<QHHI", 0, LEAF, 1, 0)
    inline += struct.pack("<IIII", 0, 16, 1, 1) + b"kv"
    leaf = struct.pack("<QHHIIIII", 2, LEAF, 1, 0, 1, 16, 4, len(inline)) + b"meta" + inline
    pages = encode_meta(0, meta) + encode_meta(1, meta._replace(txid=6)) + leaf.ljust(size, b"\0")
    path = tmp_path / "db"
    for data in (pages, bytes(size) + pages[size:]):
        path.write_bytes(data)
        assert read(path) == {b"meta": [(b"k", b"v")]}


def test_a_running_etcd_is_noticed_at_once(path: Path) -> None:
    with path.open("rb") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(DataDirError, match="in use by another process"):
            EtcdDbReader(path)
        fcntl.flock(holder, fcntl.LOCK_UN)
    with (
        EtcdDbReader(path),
        EtcdDbReader(path),  # readers share
        pytest.raises(DataDirError, match="in use"),
    ):
        EtcdDbReader(path, exclusive=True)


def test_two_scans_may_run_side_by_side(path: Path) -> None:
    with EtcdDbReader(path) as db:
        pairs = list(zip(db.scan(b"key"), db.scan(b"key"), strict=True))
    assert [a for a, _ in pairs] == [b for _, b in pairs] == sample(400)[b"key"]


def test_an_unknown_bucket_is_a_key_error(path: Path) -> None:
    with EtcdDbReader(path) as db, pytest.raises(KeyError):
        db.scan(b"nothing")
