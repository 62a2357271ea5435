"""What the checksums of rows cost a range of 1,000 keys, of 256 bytes each.

    counted    calls of the checksums for one range: one, over all rows
    range      the turn that answers it, from request bytes to reply bytes
    fields     of that, joining the rows and checking them: the most that the checks can cost

`pytest bench/micro/test_row_sums.py` prints the table; the count is checked in every run.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from typing_extensions import override

from bench.turns import NOW_NS, VALUE, member
from kvstack.component import crate
from kvstore.apply.entry_context import EntryContext
from kvstore.auth.tokens import NO_CREDENTIAL
from kvstore.backend import Row
from kvstore.batch import Inbox
from kvstore.node.parts import Parts
from kvstore.node.turn import Node
from kvstore.storage.files import UnsyncedFiles
from kvstore.storage.lmdb.backend import LmdbBackend
from kvstore.storage.row_sums import PYTHON_SUMS, PythonSums, RowSums
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.internal import Field
from kvstore.wire.rpc import RANGE

ROWS = 1000
ROUNDS = 200
SUMS: RowSums = crate.ROW_SUMS or PYTHON_SUMS
BODY = pb.RangeRequest(key=b"\0", range_end=b"\0").SerializeToString()


class Counted(PythonSums):
    """Checksums that note what they are asked for; `fields` is the one that is measured."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []
        self.arguments: tuple[Sequence[bytes], Sequence[bytes], bytes, bytes] | None = None

    @override
    def value(self, key: bytes, stored: bytes) -> bytes | None:
        self.calls.append(("value", 1))
        return super().value(key, stored)

    @override
    def values(self, keys: Sequence[bytes], stored: Sequence[bytes]) -> list[bytes] | None:
        self.calls.append(("values", len(keys)))
        return super().values(keys, stored)

    @override
    def rows(self, rows: Sequence[Row]) -> list[Row] | None:
        self.calls.append(("rows", len(rows)))
        return super().rows(rows)

    @override
    def fields(
        self, keys: Sequence[bytes], stored: Sequence[bytes], head: bytes, tail: bytes
    ) -> bytes | None:
        self.calls.append(("fields", len(keys)))
        self.arguments = keys, stored, head, tail
        return SUMS.fields(keys, stored, head, tail)


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[tuple[Node, Parts]]:
    with member(tmp_path / "data", UnsyncedFiles()) as (node, parts):
        context = EntryContext(NO_CREDENTIAL, 0, NOW_NS)
        for number in range(ROWS):
            body = pb.PutRequest(key=b"%08d" % number, value=VALUE).SerializeToString()
            assert parts.state.applier.apply(Field.PUT, body, context)
        parts.state.store.flush()
        parts.state.applier.take_events()
        yield node, parts


def answer(node: Node) -> bytes:
    out = node.turn(Inbox(now_ns=NOW_NS, wall_ms=1, calls=[(1, RANGE, BODY)]))
    ((_, code, body),) = out.replies
    assert code == 0
    return bytes(body)


def counting(parts: Parts) -> Counted:
    backend = parts.state.backend
    assert isinstance(backend, LmdbBackend)
    counted = Counted()
    backend.use_checksums_of(cast("RowSums", counted))  # has them by its __getattr__
    return counted


def test_a_range_is_checked_in_one_call(filled: tuple[Node, Parts]) -> None:
    node, parts = filled
    counted = counting(parts)
    assert pb.RangeResponse.FromString(answer(node)).count == ROWS
    assert counted.calls == [("fields", ROWS)]


def test_range(benchmark: BenchmarkFixture, filled: tuple[Node, Parts]) -> None:
    node, parts = filled
    backend = parts.state.backend
    assert isinstance(backend, LmdbBackend)
    backend.use_checksums_of(SUMS)
    benchmark.pedantic(answer, args=(node,), rounds=ROUNDS, warmup_rounds=3)


def test_fields(benchmark: BenchmarkFixture, filled: tuple[Node, Parts]) -> None:
    node, parts = filled
    counted = counting(parts)
    answer(node)
    assert counted.arguments is not None
    assert benchmark.pedantic(SUMS.fields, args=counted.arguments, rounds=ROUNDS, warmup_rounds=3)
