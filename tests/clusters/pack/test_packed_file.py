"""Packed files: the same bytes of the same contents, and damage that is named."""

import asyncio
import hashlib
import json
import os
import random
import zipfile
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.clusters.contents import Contents, History, LeftOut, Origin
from kvstack.clusters.pack import packed_file
from kvstack.clusters.pack.packed_file import PackError, read_about, read_pack, write_pack
from kvstack.clusters.sources.packed import PackSource
from kvstack.clusters.sources.source import ReadOptions, Silent, SourceError
from kvstack.clusters.sources.state_files import StateFileSource
from kvstore.client.values import KeyValue
from tests.clusters.support.snapshots import real_snapshot

NUMBERS = st.integers(1, 1 << 62)
KEYS = st.binary(max_size=20).map(lambda end: b"/registry/" + end)
ROWS = st.builds(KeyValue, KEYS, st.binary(max_size=50), NUMBERS, NUMBERS, NUMBERS, NUMBERS)


def real_contents(directory: Path) -> Contents:
    source = StateFileSource(real_snapshot(directory))
    return asyncio.run(source.read(ReadOptions(), Silent()))


def test_what_is_packed_comes_out_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_file, "SEGMENT_RECORDS", 50)
    contents = real_contents(tmp_path)
    path = tmp_path / "a.kvs"
    write_pack(path, contents, None)
    found = read_pack(path, 1000)
    assert found.history is not None
    assert found == contents
    about = read_about(path)
    assert about["objects"] == len(contents.rows)
    assert about["kinds"]["pods"] == 9
    assert about["secrets"] == "kept"
    assert len([each for each in about["segments"] if each["name"].startswith("objects/")]) == 6
    assert path.stat().st_mode & 0o777 == 0o600
    write_pack(tmp_path / "b.kvs", contents, None)
    assert path.read_bytes() == (tmp_path / "b.kvs").read_bytes()


@settings(deadline=None, max_examples=50)
@given(
    st.lists(ROWS, unique_by=lambda kv: kv.key, max_size=8),
    st.lists(ROWS, max_size=4),
    st.integers(1, 1 << 62),
    st.text(max_size=10),
)
def test_any_contents(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[KeyValue],
    old: list[KeyValue],
    revision: int,
    text: str,
) -> None:
    path = tmp_path_factory.mktemp("pack") / "x.kvs"
    contents = Contents(
        sorted(rows, key=lambda kv: kv.key),
        revision,
        Origin(text, text, text),
        1_700_000_000.0,
        [LeftOut(text, text, 3)],
        History(1, sorted(old, key=lambda kv: (kv.mod_revision, kv.key))) if old else None,
        frozenset((GroupResource("", "pods"), GroupResource("g.io", text))),
        {7: 60},
    )
    write_pack(path, contents, {"secret values": 1})
    assert read_pack(path, 100) == contents


def test_sources_of_packed_files(tmp_path: Path) -> None:
    path = tmp_path / "shop.kvs"
    contents = real_contents(tmp_path)
    write_pack(path, contents, None)
    source = PackSource(path)
    assert source.name == "shop"
    whole = asyncio.run(source.read(ReadOptions(), Silent()))
    assert whole.rows == contents.rows
    options = ReadOptions(namespaces=("shop",), has_events=False)
    some = asyncio.run(source.read(options, Silent()))
    assert 0 < len(some.rows) < len(whole.rows)
    assert some.history is not None
    assert whole.history is not None
    assert len(some.history.records) < len(whole.history.records)
    with pytest.raises(SourceError, match="at most 10 are read"):
        asyncio.run(source.read(ReadOptions(objects_max=10), Silent()))
    with pytest.raises(SourceError, match="as it was packed"):
        asyncio.run(source.read(ReadOptions(at="5"), Silent()))


def rewritten(path: Path, **members: Any) -> Path:
    """Write a file again with other members; None: without it."""
    with zipfile.ZipFile(path) as old:
        found = {name: old.read(name) for name in old.namelist()}
    for name, data in members.items():
        found[name.replace("__", "/").replace("_json", ".json").replace("_mp", ".msgpack")] = data
    other = path.with_name("other.kvs")
    with zipfile.ZipFile(other, "w") as new:
        for name, data in found.items():
            if data is not None:
                new.writestr(name, data)
    return other


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    path = tmp_path / "a.kvs"
    rows = [KeyValue(b"/registry/a/%d" % n, os.urandom(300), 2, 2, 1, 0) for n in range(20)]
    rows.sort(key=lambda kv: kv.key)
    write_pack(path, Contents(rows, 9, Origin("test", "x")), None)
    return path


SEGMENT = "objects__00000_mp"


def test_damage_is_named(packed: Path) -> None:
    assert len(read_pack(packed, 100).rows) == 20
    about = json.loads(zipfile.ZipFile(packed).read("about.json"))
    rows = [[b"k", b"", 1, 1, 1, 0]]
    members: tuple[tuple[dict[str, Any], str], ...] = (
        ({SEGMENT: b"x"}, r"segment objects/00000\.msgpack is damaged: its"),
        ({SEGMENT: None}, r"objects/00000\.msgpack is missing"),
        ({"about_json": None}, r"about\.json is missing"),
        ({"about_json": b"{"}, r"about\.json: "),
        ({"about_json": b"{}"}, "not a packed cluster"),
        ({"about_json": json.dumps({**about, "version": 2})}, "this program reads"),
        ({"about_json": json.dumps({**about, "revision": None})}, r"about\.json"),
        ({"about_json": json.dumps({**about, "segments": [1]})}, r"about\.json"),
    )
    for changed, message in members:
        with pytest.raises(PackError, match=message):
            read_pack(rewritten(packed, **changed), 100)
    for data in (b"\xc1", msgpack.packb(rows * 2), msgpack.packb([[1, 2]]), msgpack.packb(3)):
        segment = {
            **about["segments"][0],
            "sha256": hashlib.sha256(data).hexdigest(),
        }
        text = json.dumps({**about, "segments": [segment]})
        with pytest.raises(PackError, match=r"segment objects/00000\.msgpack|comes after"):
            read_pack(rewritten(packed, **{"about_json": text, SEGMENT: data}), 100)


def test_any_byte_may_be_another_and_any_end_may_be_missing(packed: Path) -> None:
    """Nothing but a PackError comes of it, and never other rows."""
    data = packed.read_bytes()
    rows = read_pack(packed, 100).rows
    rng = random.Random(7)
    other = packed.with_name("other.kvs")
    for _ in range(300):
        torn = bytearray(data)
        torn[rng.randrange(len(torn))] ^= 1 << rng.randrange(8)
        other.write_bytes(torn[: rng.choice((len(torn), rng.randrange(len(torn))))])
        found = _read(other)
        assert found == rows or str(other) in str(found)


def _read(path: Path) -> object:
    try:
        return read_pack(path, 100).rows
    except PackError as error:
        return error


def test_sizes_are_limited_before_anything_is_unpacked(
    packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_file, "SEGMENT_BYTES_MAX", 1000)
    with pytest.raises(PackError, match=r"objects/00000\.msgpack has more than 1000 bytes"):
        read_pack(packed, 100)
    monkeypatch.setattr(packed_file, "ABOUT_BYTES_MAX", 100)
    with pytest.raises(PackError, match=r"about\.json has more than 100 bytes"):
        read_pack(packed, 100)


def test_nothing_half_made_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.kvs"
    path.write_bytes(b"before")
    contents = Contents([KeyValue(b"/registry/a", b"", 1, 1, 1, 0)], 9, Origin("test", "x"))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(packed_file, "_add", full)
    with pytest.raises(PackError, match=r"a\.kvs: No space left on device"):
        write_pack(path, contents, None)
    assert os.listdir(tmp_path) == ["a.kvs"]
    assert path.read_bytes() == b"before"
    with pytest.raises(PackError, match="none/a"):
        write_pack(tmp_path / "none" / "a.kvs", contents, None)
