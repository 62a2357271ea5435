"""Other processes read a commit while this one goes on writing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvstore.backend import Table
from kvstore.errors import DataDirError
from kvstore.storage.lmdb.backend import LmdbBackend
from kvstore.storage.lmdb.readers import open_reader

ROOT = Path(__file__).parents[3]
READER = """
import sys
from pathlib import Path
from kvstore.backend import Table
from kvstore.storage.lmdb.readers import open_reader
with open_reader(Path(sys.argv[1])) as snapshot:
    print("open", flush=True)
    sys.stdin.readline()
    print(sum(1 for _ in snapshot.scan(Table.KEY)), flush=True)
    print([k for k, _ in snapshot.scan(Table.META, b"m")], flush=True)
    sys.stdin.readline()
"""


def key(number: int) -> bytes:
    return number.to_bytes(8, "big") + b"_" + bytes(8)


class Child:
    """A reading process, led line by line."""

    def __init__(self, directory: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", READER, str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


def fill(backend: LmdbBackend, first: int, last: int) -> None:
    for number in range(first, last):
        backend.append(Table.KEY, [(key(number), b"v" * 100)])
        backend.put(Table.META, b"m%d" % (number % 2), b"%d" % number)
        backend.commit()


def test_a_reader_sees_one_commit_and_is_listed(tmp_path: Path) -> None:
    backend = LmdbBackend(tmp_path)
    fill(backend, 0, 10)
    backend.append(Table.KEY, [(key(10), b"not committed")])
    child = Child(tmp_path)
    assert child.line() == "open"
    backend.commit()
    fill(backend, 11, 40)
    slot = backend.oldest_reader()
    assert slot is not None
    assert slot.pid == child.process.pid
    assert slot.commits_behind == 30
    child.go_on()
    assert child.line() == "10"
    assert child.line() == "[b'm0', b'm1']"
    child.go_on()
    child.process.communicate()
    assert backend.readers() == []
    backend.close()


def test_a_dead_reader_does_not_pin_pages(tmp_path: Path) -> None:
    backend = LmdbBackend(tmp_path)
    fill(backend, 0, 10)
    child = Child(tmp_path)
    assert child.line() == "open"
    child.end()
    assert [slot.pid for slot in backend.readers()] == [child.process.pid]
    assert backend.clear_dead_readers() == 1
    assert backend.oldest_reader() is None
    backend.close()


def test_dead_readers_are_cleared_as_commits_go_by(tmp_path: Path) -> None:
    backend = LmdbBackend(tmp_path)
    fill(backend, 0, 10)
    child = Child(tmp_path)
    assert child.line() == "open"
    child.end()
    fill(backend, 10, 80)
    assert backend.readers() == []
    backend.close()


def test_a_reader_outlives_the_swap_of_a_defragmentation(tmp_path: Path) -> None:
    backend = LmdbBackend(tmp_path)
    fill(backend, 0, 50)
    child = Child(tmp_path)
    assert child.line() == "open"
    backend.delete_many(Table.KEY, [key(number) for number in range(45)])
    backend.start_defragment()
    while not backend.step_defragment():
        pass
    fill(backend, 50, 60)
    late = Child(tmp_path)
    assert late.line() == "open"
    child.go_on()
    late.go_on()
    assert child.line() == "50"
    assert late.line() == "15"
    assert [slot.pid for slot in backend.readers()] == [late.process.pid]
    child.end()
    late.end()
    backend.close()


def test_no_state_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvstore.storage.lmdb.readers.READER_RETRY_S", 0.0)
    with pytest.raises(DataDirError, match="cannot be opened"), open_reader(tmp_path):
        pass
    assert not os.listdir(tmp_path)


def test_the_servers_own_process_cannot_be_a_reader(tmp_path: Path) -> None:
    backend = LmdbBackend(tmp_path)
    with pytest.raises(DataDirError, match="already open in this process"), open_reader(tmp_path):
        pass
    fill(backend, 0, 3)
    backend.close()
