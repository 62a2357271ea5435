"""What LMDB holds after a process was killed, and what the backend does when the disk fails."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb.verify
import pytest

from kvstore.backend import Table
from kvstore.errors import CorruptionError, DataDirError, KvstoreError, StorageFatalError
from kvstore.storage.lmdb.backend import LmdbBackend
from kvstore.storage.lmdb.environment import FORMAT_KEY
from tests.support.disks.file_limits import files_limited_to

ROOT = Path(__file__).parents[3]
PRELUDE = """
import os, signal, sys
from pathlib import Path
from kvstore.backend import Table
from kvstore.storage.lmdb.backend import LmdbBackend
def key(n): return n.to_bytes(8, "big") + b"_" + bytes(8)
backend = LmdbBackend(Path(sys.argv[1]))
"""


def key(number: int) -> bytes:
    return number.to_bytes(8, "big") + b"_" + bytes(8)


def run_child(directory: Path, script: str) -> int:
    command = [sys.executable, "-c", PRELUDE + script, str(directory)]
    return subprocess.run(command, check=False, cwd=ROOT, timeout=60).returncode


@contextmanager
def reopened(directory: Path) -> Iterator[LmdbBackend]:
    backend = LmdbBackend(directory)
    try:
        yield backend
    finally:
        backend.close()


def assert_sound(directory: Path) -> None:
    """Walk every page of the file without LMDB."""
    assert lmdb.verify.verify(str(directory / "lmdb" / "data.mdb")) == []


@pytest.mark.parametrize("death", ["os._exit(9)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_kill_in_mid_transaction_leaves_the_last_commit(tmp_path: Path, death: str) -> None:
    status = run_child(
        tmp_path,
        f"""
backend.append(Table.KEY, [(key(n), b"v%d" % n) for n in range(500)])
backend.put(Table.META, b"consistent_index", b"500")
backend.commit()
backend.append(Table.KEY, [(key(n), b"lost" * 1000) for n in range(500, 900)])
backend.delete_many(Table.KEY, [key(n) for n in range(100)])
backend.put(Table.META, b"consistent_index", b"900")
{death}
""",
    )
    assert status in (9, -signal.SIGKILL)
    assert_sound(tmp_path)
    with reopened(tmp_path) as backend:
        assert backend.get(Table.META, b"consistent_index") == b"500"
        found = backend.scan(Table.KEY, b"", None, 1000)
        assert found == [(key(n), b"v%d" % n) for n in range(500)]


def test_a_kill_right_after_the_commit_loses_nothing(tmp_path: Path) -> None:
    status = run_child(
        tmp_path,
        """
for round in range(20):
    backend.append(Table.KEY, [(key(round * 10 + n), b"v") for n in range(10)])
    backend.put(Table.META, b"consistent_index", b"%d" % round)
    backend.commit()
os.kill(os.getpid(), signal.SIGKILL)
""",
    )
    assert status == -signal.SIGKILL
    assert_sound(tmp_path)
    with reopened(tmp_path) as backend:
        assert backend.get(Table.META, b"consistent_index") == b"19"
        assert len(backend.scan(Table.KEY, b"", None, 1000)) == 200


def test_close_commits(tmp_path: Path) -> None:
    with reopened(tmp_path) as backend:
        backend.put(Table.META, b"m", b"1")
    with reopened(tmp_path) as backend:
        assert backend.get(Table.META, b"m") == b"1"


def test_a_second_process_is_refused_by_name(tmp_path: Path) -> None:
    with reopened(tmp_path) as backend:
        backend.put(Table.META, b"m", b"1")
        script = "from kvstore.errors import DataDirError\n" + PRELUDE.replace(
            "backend = LmdbBackend(Path(sys.argv[1]))",
            "try:\n    LmdbBackend(Path(sys.argv[1]))\nexcept DataDirError as e:\n    print(e)",
        )
        command = [sys.executable, "-c", script, str(tmp_path)]
        done = subprocess.run(command, check=True, cwd=ROOT, timeout=60, capture_output=True)
        assert f"data directory {tmp_path} is in use by another process" in done.stdout.decode()
        with pytest.raises(DataDirError, match="is in use"):
            LmdbBackend(tmp_path)
        backend.commit()
    with reopened(tmp_path) as backend:
        assert backend.get(Table.META, b"m") == b"1"


def test_a_newer_format_is_refused_with_both_versions(tmp_path: Path) -> None:
    reopened_once = LmdbBackend(tmp_path)
    reopened_once.close()
    import msgpack

    with lmdb.open(str(tmp_path / "lmdb"), max_dbs=16) as env, env.begin(write=True) as txn:
        txn.put(FORMAT_KEY, msgpack.packb({"format": 7, "created_by": "9.9.9"}))
    with pytest.raises(DataDirError, match=r"format 7 .*version 9\.9\.9.*version 3\.7\.1.* to 2"):
        LmdbBackend(tmp_path)
    with lmdb.open(str(tmp_path / "lmdb"), max_dbs=16) as env, env.begin(write=True) as txn:
        txn.put(FORMAT_KEY, b"\xc1")
    with pytest.raises(CorruptionError, match="format record"):
        LmdbBackend(tmp_path)


def test_the_environment_of_another_program_is_refused(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path / "lmdb")) as env, env.begin(write=True) as txn:
        txn.put(b"theirs", b"data")
    with pytest.raises(DataDirError, match="of another program"):
        LmdbBackend(tmp_path)
    with lmdb.open(str(tmp_path / "lmdb")) as env, env.begin() as txn:
        assert txn.get(b"theirs") == b"data"


def test_an_environment_that_was_never_written_is_taken(tmp_path: Path) -> None:
    lmdb.open(str(tmp_path / "lmdb")).close()
    with reopened(tmp_path) as backend:
        assert backend.last(Table.KEY) is None


def test_a_file_that_is_not_lmdb_is_corruption(tmp_path: Path) -> None:
    (tmp_path / "lmdb").mkdir()
    (tmp_path / "lmdb" / "data.mdb").write_bytes(b"junk" * 5000)
    with pytest.raises(CorruptionError, match=r"data\.mdb: offset 0: not an LMDB file"):
        LmdbBackend(tmp_path)


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DataDirError, match="cannot be used"):
        LmdbBackend(tmp_path / "file")


def test_a_truncated_file_is_an_error_and_no_bus_error(tmp_path: Path) -> None:
    with reopened(tmp_path) as backend:
        backend.append(Table.KEY, [(key(n), b"v" * 1000) for n in range(2000)])
    data_path = tmp_path / "lmdb" / "data.mdb"
    os.truncate(data_path, data_path.stat().st_size // 2)
    status = run_child(
        tmp_path,
        """
from kvstore.errors import CorruptionError
try:
    rows = backend.scan(Table.KEY, b"", None, 10000)
    sys.exit(5 if len(rows) == 2000 else 6)
except CorruptionError as error:
    assert "data.mdb" in str(error), error
    sys.exit(7)
""",
    )
    assert status in (1, 7)  # 1: refused when it was opened


def test_a_failed_commit_is_fatal_and_final(tmp_path: Path) -> None:
    backend = LmdbBackend(tmp_path)
    backend.put(Table.META, b"m", b"kept")
    backend.commit()
    limit_bytes = (tmp_path / "lmdb" / "data.mdb").stat().st_size + 100_000
    backend.append(Table.KEY, [(key(n), b"v" * 1000) for n in range(500)])
    with files_limited_to(limit_bytes), pytest.raises(StorageFatalError, match="commit failed"):
        backend.commit()
    for call in (
        lambda: backend.get(Table.META, b"m"),
        lambda: backend.put(Table.META, b"m", b"2"),
        lambda: backend.append(Table.KEY, [(key(999), b"v")]),
        lambda: backend.scan(Table.KEY, b"", None, 1),
        backend.commit,
        backend.start_defragment,
    ):
        with pytest.raises(
            StorageFatalError, match=r"no call is accepted after a failure: .*commit fail"
        ):
            call()
    backend.close()
    assert_sound(tmp_path)
    with reopened(tmp_path) as backend:
        assert backend.get(Table.META, b"m") == b"kept"
        assert backend.last(Table.KEY) is None


def test_every_failing_write_leaves_a_commit_boundary(tmp_path: Path) -> None:
    """Cut the file off at many sizes: the commit happened or it did not, never in part."""
    for size_bytes in range(8192, 120_000, 8192):
        directory = tmp_path / str(size_bytes)
        committed = 0
        backend = None
        with files_limited_to(size_bytes):
            try:
                backend = LmdbBackend(directory)
                for number in range(100):
                    backend.append(Table.KEY, [(key(number), b"v" * 1500)])
                    backend.put(Table.META, b"consistent_index", b"%d" % number)
                    backend.commit()
                    committed = number + 1
            except KvstoreError as error:
                assert isinstance(error, (StorageFatalError, DataDirError)), error  # noqa: PT017
        if backend is not None:
            backend.close()
        with reopened(directory) as backend:
            rows = backend.scan(Table.KEY, b"", None, 1000)
            index = backend.get(Table.META, b"consistent_index")
            assert len(rows) == (0 if index is None else int(index) + 1)
            assert len(rows) == committed
        assert_sound(directory)


def test_the_map_grows_between_transactions(tmp_path: Path) -> None:
    backend = LmdbBackend(tmp_path, map_size_bytes=1 << 20)
    for number in range(100):
        backend.append(Table.KEY, [(key(number), b"v" * 100_000)])
        backend.commit()
    assert backend.size_bytes() > 10_000_000
    assert len(backend.get_many(Table.KEY, [key(n) for n in range(100)])) == 100
    backend.close()
    with reopened(tmp_path) as backend:
        assert len(backend.scan(Table.KEY, b"", None, 1000)) == 100
    backend = LmdbBackend(tmp_path, map_size_bytes=1 << 20)  # smaller than the file by now
    backend.append(Table.KEY, [(key(100), b"v" * 100_000)])
    backend.close()


def test_a_transaction_larger_than_the_map_names_the_limit(tmp_path: Path) -> None:
    backend = LmdbBackend(tmp_path, map_size_bytes=1 << 20)
    with pytest.raises(StorageFatalError, match="rest of the map of 1048576 bytes"):
        backend.append(Table.KEY, [(key(n), b"v" * 100_000) for n in range(20)])
    with pytest.raises(StorageFatalError, match="no call is accepted after a failure"):
        backend.get(Table.KEY, key(0))
    backend.close()


def test_free_pages_are_used_again(tmp_path: Path) -> None:
    with reopened(tmp_path) as backend:
        sizes = []
        for round_number in range(60):
            first = round_number * 100
            backend.append(Table.KEY, [(key(first + n), b"v" * 500) for n in range(100)])
            backend.delete_many(
                Table.KEY, [key(n) for n in range(max(0, first - 300), first - 200)]
            )
            for n in range(50):
                backend.put(Table.LEASE, b"%d" % n, b"l" * (round_number * 7 % 500))
            backend.commit()
            sizes.append(backend.size_bytes())
        assert max(sizes[20:]) <= sizes[19] * 1.3
    assert_sound(tmp_path)
