"""The most frequent calls, recognized a batch at a time: plain puts, swaps and gets.

    calls ──► recognize ──┬─► runs    puts, or swaps, that follow one another: their entries' data
                          ├─► gets    (call id, key)
                          └─► the first call that is none of these, for the Router

A call is recognized if every decision about it is the same for the whole batch.
PYTHON is the reference; the crate recognizes the same calls, except for unusual encodings, which
the Router then handles with the same result (tests/property/test_plain_calls.py).
"""

from typing import Final, NamedTuple, Protocol, TypeAlias

from google.protobuf.message import DecodeError

from kvstack.component import crate
from kvstore.apply.compare_and_put import Swap, plan
from kvstore.apply.plain_requests import plain_get, plain_put
from kvstore.apply.quota import KEY_OVERHEAD_BYTES
from kvstore.raft.model import Entry, EntryType
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.internal import Field, unwrap_request, wrap
from kvstore.wire.varint import WireError

Call: TypeAlias = tuple[int, int, bytes]
RECOGNIZED: Final = frozenset({rpc.PUT, rpc.RANGE, rpc.TXN})  # methods

_ID_SUFFIX_MASK: Final = (1 << 48) - 1


class RunColumns(NamedTuple):
    """Writes of one kind that follow one another."""

    field: int  # Field.PUT or Field.TXN
    call_ids: list[int]
    bodies: list[bytes]
    datas: list[bytes]  # of their entries
    keys: "list[bytes] | list[Swap]"  # of puts their keys, of transactions the swaps
    values: list[bytes]


Get: TypeAlias = tuple[int, bytes]  # (call id, key)
Recognized: TypeAlias = tuple[int, list[RunColumns], list[Get], list[Get]]
"""(position of the first call that is left, runs, gets, serializable gets)"""


class PlainCalls(Protocol):
    """Recognizes plain calls."""

    def recognize(
        self,
        calls: list[Call],
        start: int,
        limits: tuple[int, int],
        last_id: tuple[int, int],
    ) -> Recognized:
        """Recognize calls from start on, up to the first other one.

        limits: a write that costs so much or more is not recognized, nor is one whose entry takes
        more bytes than that. The ids of entries come after the last one; see RequestIds.last.
        """
        ...

    def puts_of_entries(self, entries: list[Entry], start: int) -> tuple[list[bytes], list[bytes]]:
        """Return keys and values of the plain puts in entries from start on, up to another one."""
        ...


class PythonPlainCalls:
    """PlainCalls without the crate."""

    def recognize(
        self,
        calls: list[Call],
        start: int,
        limits: tuple[int, int],
        last_id: tuple[int, int],
    ) -> Recognized:
        """See PlainCalls."""
        room_bytes, data_bytes_max = limits
        id_prefix, id_suffix = last_id
        runs: list[RunColumns] = []
        gets: list[Get] = []
        local_gets: list[Get] = []
        for at in range(start, len(calls)):
            call_id, method, body = calls[at]
            if method == rpc.RANGE:
                get = plain_get(body)
                if get is None:
                    return at, runs, gets, local_gets
                (local_gets if get[1] else gets).append((call_id, get[0]))
                continue
            write = _write_of(method, body)
            if write is None or write[3] >= room_bytes:
                return at, runs, gets, local_gets
            field, key, value, _ = write
            data = wrap(field, body, id_prefix | id_suffix + 1 & _ID_SUFFIX_MASK)
            if len(data) > data_bytes_max:
                return at, runs, gets, local_gets
            id_suffix += 1
            if not runs or runs[-1].field != field:
                runs.append(RunColumns(field, [], [], [], [], []))
            run = runs[-1]
            run.call_ids.append(call_id)
            run.bodies.append(body)
            run.datas.append(data)
            run.keys.append(key)  # type: ignore[arg-type]  # of the run's kind
            run.values.append(value)
        return len(calls), runs, gets, local_gets

    def puts_of_entries(self, entries: list[Entry], start: int) -> tuple[list[bytes], list[bytes]]:
        """See PlainCalls."""
        keys: list[bytes] = []
        values: list[bytes] = []
        for at in range(start, len(entries)):
            entry = entries[at]
            if entry.type != EntryType.NORMAL or not entry.data:
                break
            try:
                field, body = unwrap_request(entry.data)
            except WireError:
                break
            put = plain_put(body) if field == Field.PUT else None
            if put is None:
                break
            keys.append(put[0])
            values.append(put[1])
        return keys, values


def _write_of(method: int, body: bytes) -> tuple[int, "bytes | Swap", bytes, int] | None:
    """Return (field, key or swap, value, the estimated growth of the store) of a write."""
    if method == rpc.PUT:
        put = plain_put(body)
        # The cost is at most the body's size and the overhead.
        return put and (int(Field.PUT), *put, len(body) + KEY_OVERHEAD_BYTES)
    if method != rpc.TXN:
        return None
    try:
        planned = plan(pb.TxnRequest.FromString(body))
    except DecodeError:
        return None
    if planned is None:
        return None
    swap, value = planned
    return int(Field.TXN), swap, value, len(swap[4]) + len(value) + KEY_OVERHEAD_BYTES


def _crate_calls() -> PlainCalls | None:
    if crate.PlainCalls is None:
        return None
    put, txn = (rpc.PUT, int(Field.PUT)), (rpc.TXN, int(Field.TXN))
    return crate.PlainCalls(put, rpc.RANGE, txn, KEY_OVERHEAD_BYTES)


PYTHON: Final[PlainCalls] = PythonPlainCalls()
PLAIN_CALLS: Final[PlainCalls] = _crate_calls() or PYTHON
