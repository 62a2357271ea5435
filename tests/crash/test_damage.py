"""Damaged files: torn, flipped, zeroed, cut. Nothing is lost silently.

What was never damaged is there, or the server refuses with an error that names the place.
"""

import os
import random
import re
import shutil
import signal
from pathlib import Path

import grpc
import pytest

from kvstore.errors import CorruptionError, DataDirError
from kvstore.storage.wal.record import ENTRY, SegmentReader, frame_word
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.node.harness import Disk, Harness
from tests.support.rpc_client import Client
from tests.support.servers import Server, ours, running
from tests.support.waiting import wait_for

SEED = int(os.environ.get("KVSTORE_TEST_SEED", "1"))
PUTS = 120
SECTOR_BYTES = 512
PAGE_BYTES = 4096
LEFT_BY_A_KILL = {"log": ["--backend-batch-interval=1h"], "database": []}


def value(number: int) -> bytes:
    return b"%d " % number * (1 + number * 7 % 90)


@pytest.fixture(scope="module", params=sorted(LEFT_BY_A_KILL))
def left(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the data directory of a killed server; its state is in the log, or in both."""
    data_dir: Path = tmp_path_factory.mktemp("left") / "data"
    with running(ours(data_dir, extra=LEFT_BY_A_KILL[request.param])) as server:
        with Client(server.endpoint) as client:
            for number in range(PUTS):
                assert client.put(b"key%03d" % number, value(number)) == number + 2
            if request.param == "database":
                for _ in client.server_stream(rpc.SNAPSHOT, b""):
                    pass  # a snapshot begins with a commit
        server.kill()
    shorten(data_dir)
    return data_dir


def shorten(data_dir: Path) -> None:
    """Take away most of what is preallocated: copies are faster so."""
    for unused in (data_dir / "member" / "wal").glob("*.tmp"):
        unused.unlink()
    segment = segment_of(data_dir)
    os.truncate(segment, entry_ends(segment)[1] + 100 * SECTOR_BYTES)


@pytest.fixture
def copy(left: Path, tmp_path: Path) -> Path:
    return copied(left, tmp_path / "data")


def copied(source: Path, target: Path) -> Path:
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(source, target)
    return target


def segment_of(data_dir: Path) -> Path:
    return max((data_dir / "member" / "wal").glob("*.wal"))


def entry_ends(segment: Path) -> tuple[list[int], int]:
    """Return where each entry's record ends, and where the data ends."""
    data = segment.read_bytes()
    reader = SegmentReader(data, len(data), 0)
    spots = list(reader)
    starts = [offset for offset, _, _ in spots] + [reader.offset]
    return [
        end for (_, kind, _), end in zip(spots, starts[1:], strict=True) if kind == ENTRY
    ], reader.offset


def opened(data_dir: Path) -> list[int]:
    """Open the directory; return the numbers of the keys that are there, all of them whole."""
    harness = Harness(data_dir, Disk(in_memory=False))
    found = harness.call(rpc.RANGE, pb.RangeRequest(key=b"key", range_end=b"kez"))
    assert isinstance(found, pb.RangeResponse)
    harness.crash()
    for kv in found.kvs:
        assert kv.value == value(int(kv.key[3:]))
        assert kv.mod_revision == int(kv.key[3:]) + 2
    return [int(kv.key[3:]) for kv in found.kvs]


def opened_or_refused(data_dir: Path, segment: Path) -> list[int] | None:
    """Open the directory; None if it is refused: for the log, or for a database ahead of it."""
    try:
        return opened(data_dir)
    except CorruptionError as error:
        text = str(error)
    except DataDirError as error:
        text = str(error)
        assert re.search(r"is at index \d+, the log .* ends at \d+", text)
        return None
    assert str(segment) in text
    assert re.search(r"offset \d+", text)
    return None


def test_a_log_cut_anywhere(left: Path, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    ends, data_end = entry_ends(segment_of(left))
    puts = ends[-PUTS:]
    for spot in [0, 1, 7, *sorted(rng.randrange(data_end) for _ in range(12)), puts[-1] - 1]:
        segment = segment_of(data_dir := copied(left, tmp_path / "data"))
        os.truncate(segment, spot)
        found = opened_or_refused(data_dir, segment)
        if found is not None:
            assert found == list(range(sum(end <= spot for end in puts))), f"cut at {spot}"


def test_a_bit_flipped_anywhere_in_the_log_is_found(left: Path, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    ends, data_end = entry_ends(segment_of(left))
    tail = ends[-2]
    spots = [rng.randrange(data_end) for _ in range(14)]
    spots += [rng.randrange(tail, data_end) for _ in range(10)]
    refused = 0
    for spot in spots:
        segment = segment_of(data_dir := copied(left, tmp_path / "data"))
        flip(segment, spot, 1 << rng.randrange(8))
        found = opened_or_refused(data_dir, segment)
        # Padding means nothing, and no checksum covers it.
        assert found is None or found == list(range(PUTS)), f"a flip at {spot} of {data_end}"
        refused += found is None
    assert refused > len(spots) * 3 // 4


def test_a_zeroed_sector_of_the_log(left: Path, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    ends, data_end = entry_ends(segment_of(left))
    puts = ends[-PUTS:]
    last = data_end // SECTOR_BYTES
    for sector in [0, *(rng.randrange(last) for _ in range(8)), last - 1, last]:
        spot = sector * SECTOR_BYTES
        segment = segment_of(data_dir := copied(left, tmp_path / "data"))
        overwrite(segment, spot, bytes(SECTOR_BYTES))
        found = opened_or_refused(data_dir, segment)
        if found is not None:
            # Only where everything behind can be one lost write: the rest is all there.
            assert found == list(range(len(found)))
            assert len(found) >= sum(end <= spot for end in puts)
            assert sum(end > spot + SECTOR_BYTES for end in puts) <= 1


def test_a_damaged_log_ends_the_process_with_the_position(copy: Path) -> None:
    segment = segment_of(copy)
    ends, _ = entry_ends(segment)
    flip(segment, ends[len(ends) // 2] + 20, 4)
    code, log = outcome(ours(copy))
    assert code == 1
    assert str(segment) in log
    assert re.search(r"offset \d+", log)
    assert '"level":"fatal"' in log
    assert "Traceback" not in log


def test_a_torn_log_is_repaired_and_logged(left: Path, tmp_path: Path) -> None:
    segment = segment_of(data_dir := copied(left, tmp_path / "data"))
    ends, _ = entry_ends(segment)
    with segment.open("r+b") as file:
        file.truncate(ends[-1])
        file.seek(ends[-1])
        file.write(frame_word(300) + b"\x08\x02\x10")  # the start of one more record
    with running(ours(data_dir)) as server, Client(server.endpoint) as client:
        assert len(client.range(b"key", b"kez").kvs) == PUTS
        assert client.is_alive()
        assert "repaired a torn log" in server.log()
        assert list(segment.parent.glob("*.broken"))


@pytest.mark.slow
def test_a_damaged_database_never_hangs(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    left = tmp_path / "left"
    with running(ours(left)) as server, Client(server.endpoint) as client:
        for number in range(300):
            client.put(b"key%03d" % (number % 90), rng.randbytes(300))
        for _ in client.server_stream(rpc.SNAPSHOT, b""):
            pass
    shorten(left)
    size = (left / "member/lmdb/data.mdb").stat().st_size
    for kind in ["cut", "zero", "zero", "junk", "flips", "meta", "text", "empty"]:
        data_dir = copied(left, tmp_path / "data")
        file = data_dir / "member/lmdb/data.mdb"
        spot = rng.randrange(2, size // PAGE_BYTES) * PAGE_BYTES
        match kind:
            case "cut":
                os.truncate(file, spot)
            case "zero":
                overwrite(file, spot, bytes(PAGE_BYTES))
            case "junk":
                overwrite(file, spot, rng.randbytes(PAGE_BYTES))
            case "flips":
                for _ in range(8):
                    flip(file, rng.randrange(2 * PAGE_BYTES, size), 1 << rng.randrange(8))
            case "meta":
                overwrite(file, 0, rng.randbytes(2 * PAGE_BYTES))
            case "text":
                file.write_bytes(b"this is no database\n" * 1000)
            case _:
                file.write_bytes(b"")
        code, log = outcome(ours(data_dir))
        if code == -signal.SIGABRT:
            assert "mdb.c" in log, kind  # LMDB's own assertion
            assert "storage/lmdb/" in log
        elif code is not None:
            assert code == 1, f"{kind}: {log}"
            assert '"level":"fatal"' in log
            assert "Traceback" not in log
            assert "data.mdb" in log or "table" in log or "lmdb" in log
        assert code is not None or kind not in {"meta", "text"}, kind
        assert code is None or kind != "empty"  # the log holds it all


def outcome(server: Server) -> tuple[int | None, str]:
    """Run a server until it ends or has served a few calls; return its exit code and its log."""
    server.log_path.unlink(missing_ok=True)
    with running(server.start(wait=False)):
        process = server.process
        assert process is not None
        try:
            server.wait_ready()
            with Client(server.endpoint) as client:
                assert client.is_alive()
                assert len(client.range(b"key", b"kez").kvs) <= 90
                client.hash_kv()
                return None, server.log()
        except (AssertionError, grpc.RpcError):
            wait_for(lambda: process.poll() is not None, lambda: f"its end:\n{server.log()}", 10)
            return process.returncode, server.log()


def flip(path: Path, spot: int, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(spot)
        old = file.read(1)[0]
        file.seek(spot)
        file.write(bytes([old ^ bit]))


def overwrite(path: Path, spot: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(spot)
        file.write(data)
