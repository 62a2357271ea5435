"""The space that is reserved beyond the pages of the database."""

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from kvstack.component.line_log.line_logger import LineLogger
from kvstore.backend import Table
from kvstore.storage import allocation
from kvstore.storage.disk_room import DiskRoom
from kvstore.storage.lmdb import ahead as ahead_module
from kvstore.storage.lmdb.ahead import AHEAD_BYTES, STEP_BYTES, AheadBlocks
from kvstore.storage.lmdb.backend import LmdbBackend

if TYPE_CHECKING:
    from kvstore.storage.wal.wal import Wal

BLOCK_BYTES = 512


class Log:
    """A log that has its next segment."""

    preallocation_error = None
    keeps_next = False

    def make_room(self) -> str:
        return ""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data.mdb"
    path.write_bytes(b"x" * 100_000)
    try:
        with path.open("r+b") as opened:
            allocation.reserve(opened.fileno(), 0, 100_000)
    except OSError as error:
        pytest.skip(f"the file system cannot reserve blocks: {error}")
    return path


def allocated_bytes(path: Path) -> int:
    return path.stat().st_blocks * BLOCK_BYTES


def test_blocks_are_reserved_beyond_the_end_and_given_back(file: Path) -> None:
    ahead = AheadBlocks(file)
    assert ahead.is_due(100_000)
    ahead.extend(100_000)
    assert ahead.shortage == ""
    assert file.stat().st_size == 100_000
    assert allocated_bytes(file) >= 100_000 + AHEAD_BYTES
    assert not ahead.is_due(100_000 + STEP_BYTES)
    assert ahead.is_due(100_001 + STEP_BYTES)
    ahead.give_back(100_000)
    assert 100_000 + STEP_BYTES <= allocated_bytes(file) < 100_000 + 2 * STEP_BYTES
    assert ahead.is_due(100_000)
    assert file.read_bytes() == b"x" * 100_000


def full(_descriptor: int, _offset: int, size_bytes: int) -> None:
    if size_bytes > AHEAD_BYTES // 2:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_what_there_is_space_for_is_reserved(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead_module, "reserve", full)
    ahead = AheadBlocks(file)
    ahead.extend(100_000)
    assert "cannot reserve 67108864 bytes beyond the 100000 in use" in ahead.shortage
    assert "No space left on device" in ahead.shortage
    monkeypatch.undo()
    ahead.extend(100_000)
    assert ahead.shortage == ""


def test_a_file_system_that_cannot_reserve_needs_free_space(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_descriptor: int, _offset: int, _size_bytes: int) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(ahead_module, "reserve", refused)
    ahead = AheadBlocks(file)
    monkeypatch.setattr(ahead_module, "free_bytes", lambda _: AHEAD_BYTES)
    ahead.extend(0)
    assert ahead.shortage == ""
    monkeypatch.setattr(ahead_module, "free_bytes", lambda _: AHEAD_BYTES - 1)
    ahead.extend(0)
    assert "Operation not supported" in ahead.shortage


def test_a_database_that_grows_extends_its_reserve(tmp_path: Path, file: Path) -> None:
    backend = LmdbBackend(tmp_path / "state")
    backend.keep_ahead()
    data = tmp_path / "state" / "lmdb" / "data.mdb"
    assert allocated_bytes(data) >= AHEAD_BYTES
    for number in range(4):
        backend.put(Table.META, b"%d" % number, bytes(8 << 20))
        backend.commit()
    assert allocated_bytes(data) >= (32 << 20) + AHEAD_BYTES - STEP_BYTES
    assert backend.make_room() == ""
    backend.start_defragment()
    while not backend.step_defragment():
        pass
    assert allocated_bytes(data) >= (32 << 20) + AHEAD_BYTES
    backend.close()
    assert file.exists()


def test_a_reserve_that_is_not_complete_is_known_with_the_commit(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only at the next check of the disk: a fast client would use up what is left till then."""
    backend = LmdbBackend(tmp_path / "state")
    backend.keep_ahead()
    room = DiskRoom(tmp_path, cast("Wal", Log()), backend, LineLogger([], "fatal"))
    monkeypatch.setattr(ahead_module, "reserve", full)
    backend.put(Table.META, b"k", bytes(2 * STEP_BYTES))
    assert not room.is_short
    backend.commit()
    assert room.is_short
    monkeypatch.undo()
    assert not room.check()
    assert not room.is_short
    backend.close()
    assert file.exists()
