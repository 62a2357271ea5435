"""What one turn of puts costs, from request bytes to reply bytes: the node without a transport.

    turn, synced      log and database as in production: one sync of the log a turn
    turn, unsynced    the log is written and not synced: what is left is this program's own work
    apply             of that, the applying alone: store, index and response, no log

`pytest bench/micro/test_turn.py` prints the table.
"""

from itertools import count
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.turns import NOW_NS, member, put_body
from kvstore.apply.entry_context import EntryContext
from kvstore.auth.tokens import NO_CREDENTIAL
from kvstore.batch import Inbox
from kvstore.storage.files import Files, OsFiles, UnsyncedFiles
from kvstore.wire.internal import Field
from kvstore.wire.rpc import PUT

ROUNDS = 10
Call = tuple[int, int, bytes]


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
