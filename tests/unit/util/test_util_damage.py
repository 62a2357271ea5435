"""Damaged, cut, empty and foreign files: one line that names the file, code 1, nothing changed."""

import os
import shutil
from pathlib import Path
from random import Random

import pytest

from kvstore.raft.model import Entry, EntryType, HardState
from kvstore.storage.etcd_db.digest import append_digest
from kvstore.storage.wal.record import WalSnapshot
from kvstore.storage.wal.wal import Wal
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.internal import Field, wrap
from tests.support.disks.etcd_db_files import sample, write
from tests.support.util_command import Tool, process, snapshot_file

FLIPS = 120
ENTRIES = 40


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str]) -> Tool:
    return Tool(capsys)


@pytest.fixture
def member(tool: Tool, tmp_path: Path) -> Path:
    """An etcd's data directory with a snapshot file, and entries after the snapshot."""
    snapshot = snapshot_file(tmp_path / "s.db", sample(300))
    flags = ("--initial-cluster=default=http://localhost:2380", "--to=etcd")
    tool.done("snapshot", "restore", snapshot, "--data-dir", tmp_path / "d", *flags)
    wal, replay = Wal.open(tmp_path / "d" / "member" / "wal", WalSnapshot(1, 1))
    for index in range(2, 2 + ENTRIES):
        body = pb.PutRequest(key=b"key%d" % index, value=b"v" * 40).SerializeToString()
        entry = Entry(EntryType.NORMAL, 1, index, wrap(Field.PUT, body, index))
        wal.save(HardState(1, replay.hard_state.vote, index - 1), [entry], sync=True)
    wal.close()
    return tmp_path / "d"


def _segment(member: Path) -> Path:
    (path,) = (member / "member" / "wal").glob("*.wal")
    return path


def _flip(path: Path, offset: int, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1 << bit]))


def test_every_flipped_bit_of_the_log_is_found(tool: Tool, member: Path) -> None:
    """All but the padding, which carries nothing, and the length of the tail's last frame."""
    path = _segment(member)
    os.truncate(path, 8192)  # the rest is zeros; a small file is read faster
    used = len(path.read_bytes().rstrip(b"\0"))
    rng = Random(1)
    padding = 0
    for _ in range(FLIPS):
        offset, bit = rng.randrange(used), rng.randrange(8)
        _flip(path, offset, bit)
        said = tool("verify", member)
        if said.code == 0:
            padding += 1  # zeros between a record and the next frame are not part of either
            assert tool.done("dump", "wal", member)
        else:
            assert said.code == 1, (offset, bit, said)
            assert f"{path}: corrupt at offset" in said.out, (offset, bit, said)
            assert said.err == f"Error: {member}: 1 checks failed\n"
            refused = tool("migrate", "--data-dir", member, "--to=kvstore", "--out", f"{member}.x")
            assert refused.code == 1, (offset, bit, refused)
        _flip(path, offset, bit)
    assert padding < FLIPS / 10
    assert not Path(f"{member}.x").exists()
    tool.done("verify", member)


def test_every_cut_of_the_log_is_found(tool: Tool, member: Path, tmp_path: Path) -> None:
    path = _segment(member)
    os.truncate(path, 8192)
    data = path.read_bytes()
    used = len(data.rstrip(b"\0"))
    rng = Random(2)
    for size in (0, 1, 7, 8, 15, *sorted(rng.sample(range(16, used), 40))):
        path.write_bytes(data[:size])
        said = tool("verify", member)
        torn_or_short = said.code == 1 or "torn at offset" in said.out
        last = "last entry 41" not in said.out
        assert torn_or_short or last, (size, said)
        if "torn at offset" in said.out:
            refused = tool.failed(
                "migrate", "--data-dir", member, "--to=kvstore", "--out", tmp_path / "x"
            )
            assert "start the server once" in refused or "corrupt" in refused
        assert path.read_bytes() == data[:size]


def test_a_missing_segment_is_reported(tool: Tool, member: Path) -> None:
    path = _segment(member)
    path.rename(path.with_name("0000000000000000-0000000000000000.wal.broken"))
    assert "no write-ahead log segment here" in tool("verify", member).out
    shutil.copy(path.with_name(path.name + ".broken"), path)
    other = path.with_name("0000000000000005-0000000000000050.wal")
    shutil.copy(path, other)
    assert "expected segment 1 after" in tool("verify", member).out


def test_flipped_bits_of_a_snapshot_file_are_found(tool: Tool, member: Path) -> None:
    (path,) = (member / "member" / "snap").glob("*.snap")
    size = path.stat().st_size
    rng = Random(3)
    for _ in range(40):
        offset, bit = rng.randrange(size), rng.randrange(8)
        _flip(path, offset, bit)
        said = tool("verify", member)
        assert said.code == 1, (offset, bit, said)
        assert f"  {path}: " in said.out, (offset, bit, said)
        _flip(path, offset, bit)
    path.rename(path.with_name("0000000000000001-0000000000000009.snap"))
    assert "expected term 1, index 9 as its name says, found 1 and 1" in tool("verify", member).out


def test_flipped_bits_of_a_database_never_pass_for_another_error(
    tool: Tool, tmp_path: Path
) -> None:
    """The digest finds each; without it what is not inside a value or free space is found."""
    path = write(tmp_path / "db", sample(300))
    data = path.read_bytes()
    expected = tool.done("hashkv", path)
    rng = Random(4)
    seen = 0
    for _ in range(FLIPS):
        offset, bit = rng.randrange(len(data)), rng.randrange(8)
        _flip(path, offset, bit)
        for command in (("snapshot", "status"), ("hashkv",), ("verify",), ("dump", "state")):
            said = tool(*command, path)
            assert said.code in {0, 1}, (offset, bit, said)
            if said.code:
                assert said.err.startswith(f"Error: {path}: "), (offset, bit, said)
        seen += tool("hashkv", path).out != expected
        _flip(path, offset, bit)
        assert path.read_bytes() == data
    assert seen > FLIPS / 3
    append_digest(path)
    for _ in range(10):
        offset, bit = rng.randrange(len(data)), rng.randrange(8)
        _flip(path, offset, bit)
        error = tool.failed("snapshot", "restore", path, "--data-dir", tmp_path / "d")
        assert "is not that of the content" in error
        _flip(path, offset, bit)
    assert not (tmp_path / "d").exists()


def test_files_of_another_kind(tool: Tool, member: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    text = tmp_path / "notes.txt"
    text.write_text("not a database\n" * 1000)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    bare = tmp_path / "bare"
    bare.mkdir()
    missing = tmp_path / "missing"
    for path in (empty, text, pipe, bare, missing, _segment(member)):
        for command in (("snapshot", "status"), ("hashkv",), ("dump", "state")):
            said = tool.failed(*command, path)
            assert said.startswith(f"Error: {path}"), said
            assert "\n" not in said.strip(), said
        said = tool.failed("snapshot", "restore", path, "--skip-hash-check", "--data-dir", bare)
        assert str(path) in said
        assert os.listdir(bare) == []
        assert str(path) in tool.failed("defrag", "--data-dir", path)
    assert "found a file" in tool.failed("defrag", "--data-dir", text)
    assert "neither member/lmdb nor member/snap/db" in tool.failed("snapshot", "status", bare)
    assert "found a data directory" in tool.failed(
        "snapshot", "restore", member, "--data-dir", tmp_path / "new"
    )
    assert "no bucket 'zebra'; there are alarm, auth" in tool.failed(
        "dump", "state", member, "--bucket=zebra"
    )


def test_two_states_in_one_directory_are_refused(tool: Tool, member: Path) -> None:
    (member / "member" / "lmdb").mkdir()
    assert "contains two states" in tool.failed("snapshot", "status", member)


def test_a_row_that_is_not_what_it_should_be_is_named(tool: Tool, tmp_path: Path) -> None:
    buckets = sample(3)
    buckets[b"lease"] = [((7).to_bytes(8), b"\x08\x09\x10\x3c")]
    buckets[b"members"] = [(b"8a", b"{}")]
    said = tool("verify", write(tmp_path / "db", buckets))
    assert said.code == 1
    assert "bucket lease, row 0000000000000007: contains lease 9" in said.out
    assert "bucket members, row 3861: contains member 0" in said.out


def test_a_state_and_a_log_that_do_not_belong_together(
    tool: Tool, member: Path, tmp_path: Path
) -> None:
    db = member / "member" / "snap" / "db"
    for index, text in ((0, "expected 1"), (99, "to 41 (its last entry)")):
        buckets = sample(3)
        buckets[b"meta"] = [(b"consistent_index", index.to_bytes(8))]
        write(db, buckets)
        said = tool("verify", member)
        assert f"consistent_index {index}, expected 1" in said.out
        assert text in said.out
        refused = tool.failed("migrate", "--data-dir", member, "--to=kvstore", "--out", f"{db}.x")
        assert "do not belong together" in refused


@pytest.mark.parametrize("damage", ["cut", "zeros", "meta", "empty"])
def test_a_damaged_lmdb_file_ends_in_a_line_that_names_it(
    tool: Tool, member: Path, tmp_path: Path, damage: str
) -> None:
    ours = tmp_path / "ours"
    tool.done("migrate", "--data-dir", member, "--to=kvstore", "--out", ours)
    path = ours / "member" / "lmdb" / "data.mdb"
    data = path.read_bytes()
    damaged = {
        "cut": data[:8192],
        "zeros": data[:8192] + bytes(len(data) - 8192),
        "meta": b"\xff" * 8192 + data[8192:],
        "empty": b"",
    }[damage]
    for command in (("snapshot", "status"), ("hashkv",)):
        path.write_bytes(damaged)
        done = process(*command, ours)
        assert done.returncode == 1, done
        assert done.stderr.startswith("Error: "), done
        assert "data.mdb" in done.stderr, done
        assert "Traceback" not in done.stderr
