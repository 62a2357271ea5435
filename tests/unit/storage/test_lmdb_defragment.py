"""Defragmentation: the swap under crashes at every step, the journal, a copy that fails."""

import errno
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import lmdb.verify
import pytest

from kvstore.backend import Row, Table
from kvstore.errors import DefragmentError, StorageFatalError
from kvstore.storage.lmdb.backend import LmdbBackend
from kvstore.storage.lmdb.file_copy import FileCopy
from kvstore.storage.lmdb.journal import Journal
from kvstore.storage.memory_backend import MemoryBackend

ROOT = Path(__file__).parents[3]
EVENTS_MAX = 100
KILLED_AT_EVENT = """
import os, signal, sys
from pathlib import Path
from kvstore.backend import Table
from kvstore.storage.lmdb.backend import LmdbBackend

backend = LmdbBackend(Path(sys.argv[1]))
backend.delete(Table.KEY, b"k0001")
backend.start_defragment()
last, seen = int(sys.argv[2]), 0

def watch(event, args):
    global seen
    if event in ("os.rename", "os.mkdir", "os.rmdir", "os.remove", "open", "shutil.rmtree"):
        seen += 1
        if seen == last:
            os.kill(os.getpid(), signal.SIGKILL)

backend.put(Table.META, b"m", b"2")
sys.addaudithook(watch)
while not backend.step_defragment():
    pass
backend.close()
"""


def key(number: int) -> bytes:
    return number.to_bytes(8, "big") + b"_" + bytes(8)


def fill(backend: LmdbBackend, first: int, last: int, value: bytes = b"v" * 100) -> None:
    backend.append(Table.KEY, [(key(number), value) for number in range(first, last)])
    backend.commit()


def run_to_the_end(backend: LmdbBackend) -> int:
    steps = 1
    while not backend.step_defragment():
        steps += 1
    return steps


def everything(backend: LmdbBackend) -> list[list[Row]]:
    return [backend.scan(table, b"", None, 1_000_000) for table in Table]


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_a_kill_at_any_step_of_the_swap_loses_nothing(tmp_path: Path) -> None:
    outcomes = set()
    for event in range(1, EVENTS_MAX):
        directory = tmp_path / str(event)
        backend = LmdbBackend(directory)
        backend.append(Table.KEY, [(b"k%04d" % n, b"v%d" % n) for n in range(300)])
        backend.put(Table.META, b"m", b"1")
        backend.close()
        command = [sys.executable, "-c", KILLED_AT_EVENT, str(directory), str(event)]
        done = subprocess.run(command, check=False, cwd=ROOT, timeout=60)
        assert done.returncode in (0, -signal.SIGKILL)
        outcomes.add(tuple(sorted(names(directory))))
        backend = LmdbBackend(directory)
        assert names(directory) == {"lmdb", "lmdb.lock"}
        rows = backend.scan(Table.KEY, b"", None, 1000)
        assert rows == [(b"k%04d" % n, b"v%d" % n) for n in range(300) if n != 1]
        assert backend.get(Table.META, b"m") in (b"1", b"2")
        backend.put(Table.META, b"m", b"3")
        backend.close()
        assert lmdb.verify.verify(str(directory / "lmdb" / "data.mdb")) == []
        if done.returncode == 0:
            break
    else:
        pytest.fail("the child was killed at every event: EVENTS_MAX is too small")
    assert ("lmdb", "lmdb.defrag", "lmdb.lock") in outcomes  # before the swap
    assert ("lmdb.defrag", "lmdb.lock", "lmdb.old") in outcomes  # between the renames
    assert ("lmdb", "lmdb.lock", "lmdb.old") in outcomes  # after them


class FailingRename:
    """Makes os.rename of one directory fail, by the interpreter's own audit events."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        sys.addaudithook(self._watch)  # stays for good, and lets everything pass by default

    def _watch(self, event: str, arguments: tuple[object, ...]) -> None:
        if event == "os.rename" and self.names and Path(str(arguments[0])).name in self.names:
            raise OSError(errno.EIO, "no renaming today")


RENAMES = FailingRename()


@pytest.mark.parametrize("failing", ["lmdb", "lmdb.defrag"])
def test_a_rename_that_fails_is_undone(tmp_path: Path, failing: str) -> None:
    backend = LmdbBackend(tmp_path)
    fill(backend, 0, 100)
    backend.start_defragment()
    RENAMES.names = {failing}
    try:
        with pytest.raises(DefragmentError, match=r"stays in use: .*no renaming today"):
            run_to_the_end(backend)
    finally:
        RENAMES.names = set()
    assert names(tmp_path) == {"lmdb", "lmdb.lock"}
    fill(backend, 100, 110)
    backend.close()
    backend = LmdbBackend(tmp_path)
    assert len(backend.scan(Table.KEY, b"", None, 1000)) == 110
    backend.close()


def test_a_rename_that_cannot_be_undone_is_fatal(tmp_path: Path) -> None:
    backend = LmdbBackend(tmp_path)
    fill(backend, 0, 100)
    backend.start_defragment()
    RENAMES.names = {"lmdb.defrag", "lmdb.old"}
    try:
        with pytest.raises(StorageFatalError, match=r"cannot be moved back: .*no renaming today"):
            run_to_the_end(backend)
    finally:
        RENAMES.names = set()
    with pytest.raises(StorageFatalError, match="no call is accepted after a failure"):
        backend.get(Table.KEY, key(1))
    backend.close()
    backend = LmdbBackend(tmp_path)
    assert len(backend.scan(Table.KEY, b"", None, 1000)) == 100
    backend.close()


def test_a_swap_that_cannot_be_leaves_the_old_file_in_use(tmp_path: Path) -> None:
    backend = LmdbBackend(tmp_path)
    fill(backend, 0, 100)
    backend.start_defragment()
    (tmp_path / "lmdb.old" / "in the way").mkdir(parents=True)
    backend.put(Table.META, b"m", b"1")
    with pytest.raises(DefragmentError, match="the old file stays in use"):
        run_to_the_end(backend)
    assert backend.get(Table.META, b"m") == b"1"
    fill(backend, 100, 110)
    assert not backend.defragmenting()
    backend.start_defragment()
    run_to_the_end(backend)
    assert len(backend.scan(Table.KEY, b"", None, 1000)) == 110
    backend.close()
    assert names(tmp_path) == {"lmdb", "lmdb.lock"}


def test_no_room_for_the_copy_is_reported_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = LmdbBackend(tmp_path)
    fill(backend, 0, 100)
    monkeypatch.setattr("kvstore.storage.lmdb.backend.free_bytes", lambda path: 4096)
    with pytest.raises(DefragmentError, match=r"the copy needs \d+ bytes, .* has 4096"):
        backend.start_defragment()
    assert not backend.defragmenting()
    fill(backend, 100, 110)
    backend.close()


def test_a_disk_that_fills_up_during_the_copy(tmp_path: Path) -> None:
    backend = LmdbBackend(tmp_path)
    fill(backend, 0, 20_000)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))  # lmdb.defrag/data.mdb fails
    try:
        backend.start_defragment()
        with pytest.raises(DefragmentError, match=r"the old file stays in use: .*too large"):
            run_to_the_end(backend)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names(tmp_path) == {"lmdb", "lmdb.lock"}
    fill(backend, 20_000, 20_010)
    backend.start_defragment()
    run_to_the_end(backend)
    assert len(backend.scan(Table.KEY, b"", None, 100_000)) == 20_010
    backend.close()


def test_more_changes_than_can_be_remembered_end_it(tmp_path: Path) -> None:
    backend = LmdbBackend(tmp_path, journal_keys_max=50)
    fill(backend, 0, 1000)

    def churn() -> None:
        for number in range(60):
            backend.put(Table.KEY, key(number), b"changed")

    def churn_to_the_end() -> None:
        for _ in range(100):
            churn()
            backend.step_defragment()

    backend.start_defragment()
    with pytest.raises(DefragmentError, match="more than 50 rows changed in each of 3 attempts"):
        churn_to_the_end()
    assert backend.get(Table.KEY, key(59)) == b"changed"
    backend.start_defragment()
    churn()  # one overflow is not the end: the copy begins anew
    run_to_the_end(backend)
    backend.close()
    backend = LmdbBackend(tmp_path)
    assert backend.get(Table.KEY, key(59)) == b"changed"
    assert len(backend.scan(Table.KEY, b"", None, 10_000)) == 1000
    backend.close()


def test_close_in_mid_copy_keeps_the_old_file(tmp_path: Path) -> None:
    backend = LmdbBackend(tmp_path)
    fill(backend, 0, 20_000)
    backend.start_defragment()
    backend.put(Table.META, b"m", b"1")
    backend.close()
    assert names(tmp_path) == {"lmdb", "lmdb.lock"}
    backend = LmdbBackend(tmp_path)
    assert backend.get(Table.META, b"m") == b"1"
    backend.close()


def test_a_large_store_is_copied_while_it_changes(tmp_path: Path) -> None:
    backend = LmdbBackend(tmp_path)
    fill(backend, 0, 30_000)
    backend.delete_many(Table.KEY, [key(n) for n in range(0, 30_000, 2)])
    backend.commit()
    before_bytes = backend.size_bytes()
    backend.start_defragment()
    number = 30_000
    while True:
        backend.append(Table.KEY, [(key(number + n), b"v" * 200) for n in range(30)])
        backend.delete_many(Table.KEY, [key(number - 29_999 + 2 * n) for n in range(10)])
        backend.put(Table.META, b"consistent_index", b"%d" % number)
        number += 30
        state = everything(backend)
        if backend.step_defragment():
            break
        assert number < 600_000
    assert everything(backend) == state
    assert backend.size_in_use_bytes() < before_bytes
    backend.close()
    assert lmdb.verify.verify(str(tmp_path / "lmdb" / "data.mdb")) == []
    backend = LmdbBackend(tmp_path)
    assert everything(backend) == state
    backend.close()


def test_values_of_megabytes_are_caught_up_with_in_small_slices() -> None:
    original, copy, journal = MemoryBackend(), MemoryBackend(), Journal(1000)
    rows = [(key(number), bytes(1_000_000)) for number in range(100)]
    original.append(Table.KEY, rows)
    journal.append(Table.KEY, rows)
    for number in range(20):
        original.put(Table.AUTH, b"%d" % number, bytes(2_000_000))
        journal.touch(Table.AUTH, b"%d" % number)
    most, held = 0, 0
    while True:
        done = journal.catch_up(original, copy)
        now = len(copy.scan(Table.KEY, b"", None, 1000)) + len(copy.scan(Table.AUTH, b"", None, 99))
        most, held = max(most, now - held), now
        if done:
            break
    assert held == 120
    assert most <= 2  # what a step may copy, and the row that exceeds it


def test_the_journal_empties_under_any_load() -> None:
    original, copy, journal = MemoryBackend(), MemoryBackend(), Journal(1_000_000)
    number = 0

    def write(count: int) -> None:
        nonlocal number
        rows = [(key(number + n), b"v") for n in range(count)]
        original.append(Table.KEY, rows)
        journal.append(Table.KEY, rows)
        number += count

    write(10_000)
    for _ in range(100):
        if journal.catch_up(original, copy):
            break
        write(3000)  # more than a step takes by itself
    else:
        pytest.fail("the copy never catches up")
    assert copy.scan(Table.KEY, b"", None, number) == original.scan(Table.KEY, b"", None, number)


def copy_of(source: Callable[[int], None], path: Path) -> FileCopy:
    copy = FileCopy(source, path)
    copy.join()
    assert not copy.running()
    return copy


def test_a_file_copy_is_what_the_source_wrote(tmp_path: Path) -> None:
    data = os.urandom(1 << 20) * 6 + b"end"

    def source(fd: int) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]

    assert copy_of(source, tmp_path / "copy").error() is None
    assert (tmp_path / "copy").read_bytes() == data


def test_a_file_copy_hands_over_what_went_wrong(tmp_path: Path) -> None:
    def fails(fd: int) -> None:
        os.write(fd, b"half")
        raise lmdb.CorruptedError("rotten")

    assert isinstance(copy_of(fails, tmp_path / "a").error(), lmdb.CorruptedError)
    (tmp_path / "b").write_bytes(b"mine")
    error = copy_of(lambda fd: None, tmp_path / "b").error()
    assert isinstance(error, FileExistsError)
    assert (tmp_path / "b").read_bytes() == b"mine"


def test_a_cancelled_file_copy_stops_its_source(tmp_path: Path) -> None:
    started = threading.Event()

    def endless(fd: int) -> None:
        while True:
            os.write(fd, bytes(65536))
            started.set()

    copy = FileCopy(endless, tmp_path / "copy")
    started.wait()
    copy.cancel()
    copy.join()
    error = copy.error()
    assert isinstance(error, OSError)
    assert error.errno == errno.ECANCELED
