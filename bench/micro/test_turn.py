"""What one turn of puts costs, from request bytes to reply bytes: the node without a transport.

    turn, synced      log and database as in production: one sync of the log a turn
    turn, unsynced    the log is written and not synced: what is left is this program's own work
    apply             of that, the applying alone: store, index and response, no log

`pytest bench/micro/test_turn.py` prints the table. A real Node on real files, as `server.assemble`
builds it; the clock stands still, so the database is committed by the number of rows alone.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from kvstack.component.clock import SystemClock
from kvstack.component.line_log.line_logger import LineLogger
from kvstore.apply.entry_context import EntryContext
from kvstore.auth.tokens import NO_CREDENTIAL
from kvstore.batch import Inbox
from kvstore.config.initial_cluster import initial_members
from kvstore.config.parse import configure
from kvstore.config.sources import read_command_line
from kvstore.node.parts import Parts
from kvstore.node.turn import Node
from kvstore.server.boot.assemble import build
from kvstore.server.boot.bootstrap import Founding, boot
from kvstore.server.boot.data_dir import prepare
from kvstore.server.boot.state import snapshot_files
from kvstore.storage.files import Files, OsFiles, UnsyncedFiles
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.internal import Field
from kvstore.wire.rpc import PUT

ROUNDS = 10
VALUE = b"v" * 256
NOW_NS = 1_000_000_000
Call = tuple[int, int, bytes]


@contextmanager
def member(data_dir: Path, files: Files) -> Iterator[tuple[Node, Parts]]:
    """Run a member that has joined, and close it."""
    config = configure(read_command_line([f"--data-dir={data_dir}"]), {})
    logger, clock = LineLogger([], "info"), SystemClock()
    paths = prepare(data_dir, None, logger)
    founding = Founding(
        config.name,
        lambda: initial_members(config, socket.gethostbyname),
        config.initial_cluster_token,
        is_new=True,
    )
    booted = boot(paths, founding, logger, files=files)
    try:
        parts = build(
            config, booted, snapshot_files(config, booted, paths, logger, files), clock, logger
        )
        node = Node(parts)
        while not node.is_ready:
            node.turn(Inbox(now_ns=NOW_NS, wall_ms=1))
        yield node, parts
    finally:
        booted.backend.close()
        booted.wal.close()


def put_body(number: int) -> bytes:
    key = (number * 0x9E3779B97F4A7C15 & 0x7FFFFFFFFFFFFFFF).to_bytes(8, "big")
    return pb.PutRequest(key=key, value=VALUE).SerializeToString()


@pytest.mark.parametrize("puts", [1, 10, 100, 1000])
@pytest.mark.parametrize("files", [OsFiles(), UnsyncedFiles()], ids=["synced", "unsynced"])
def test_turn(benchmark: BenchmarkFixture, tmp_path: Path, files: Files, puts: int) -> None:
    ids = count(1)

    def inbox() -> tuple[tuple[Inbox], dict[str, object]]:
        numbers = [next(ids) for _ in range(puts)]
        calls: list[Call] = [(each, PUT, put_body(each)) for each in numbers]
        return (Inbox(now_ns=NOW_NS, wall_ms=1, calls=calls),), {}

    with member(tmp_path / "data", files) as (node, parts):
        out = benchmark.pedantic(node.turn, setup=inbox, rounds=ROUNDS, warmup_rounds=1)
        assert [code for _, code, _ in out.replies] == [0] * puts
        assert parts.state.store.key_count == next(ids) - 1


def test_apply_1000(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    ids = count(1)

    def bodies() -> tuple[tuple[list[bytes]], dict[str, object]]:
        return ([put_body(next(ids)) for _ in range(1000)],), {}

    with member(tmp_path / "data", UnsyncedFiles()) as (_, parts):

        def apply_all(puts: list[bytes]) -> None:
            apply = parts.state.applier.apply
            context = EntryContext(NO_CREDENTIAL, 0, NOW_NS)
            for body in puts:
                assert apply(Field.PUT, body, context)
            parts.state.store.flush()
            parts.state.applier.take_events()

        benchmark.pedantic(apply_all, setup=bodies, rounds=ROUNDS, warmup_rounds=1)
        assert parts.state.store.key_count == next(ids) - 1
