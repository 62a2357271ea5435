"""Calls recognized by the crate and by its twin: the same runs, gets and entries.

The crate recognizes messages in the usual encoding only, which is what the protobuf library writes.
Of any other bytes it may leave more to the Router, never less.
"""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kvstack.component import crate
from kvstore.node import plain_calls
from kvstore.node.plain_calls import PYTHON, Call, PlainCalls, Recognized
from kvstore.raft.model import Entry, EntryType
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.internal import Field, unwrap, wrap

pytestmark = pytest.mark.skipif(crate.PlainCalls is None, reason="the crate was not built")

# The same examples in every run, and no deadline on a busy machine.
QUICK = settings(derandomize=True, deadline=None, max_examples=300)

KEYS = st.sampled_from([b"", b"k", b"other", b"k" * 127, b"k" * 128])
VALUES = st.binary(max_size=200)
PUTS = st.builds(
    pb.PutRequest,
    key=KEYS,
    value=VALUES,
    lease=st.sampled_from([0, 0, 0, 7]),
    prev_kv=st.sampled_from([False, False, False, True]),
)
RANGES = st.builds(
    pb.RangeRequest,
    key=KEYS,
    range_end=st.sampled_from([b"", b"", b"", b"z"]),
    serializable=st.booleans(),
    limit=st.sampled_from([0, 0, 0, 1]),
)
NUMBERS = st.integers(-1, 5) | st.integers(-(2**63), 2**63 - 1)
COMPARES = st.builds(
    lambda key, target, result, end, number: pb.Compare(
        key=key, target=target, result=result, range_end=end, **number
    ),
    KEYS,
    st.sampled_from([0, 1, 2, 3, 9]),
    st.sampled_from([0, 1, 2, 3, 9]),
    st.sampled_from([b"", b"", b"", b"z"]),
    st.fixed_dictionaries({})
    | st.fixed_dictionaries({"version": NUMBERS})
    | st.fixed_dictionaries({"create_revision": NUMBERS})
    | st.fixed_dictionaries({"mod_revision": NUMBERS}),
)
TXNS = st.builds(
    pb.TxnRequest,
    compare=st.lists(COMPARES, min_size=1, max_size=2) | COMPARES.map(lambda each: [each]),
    success=PUTS.map(lambda put: [pb.RequestOp(request_put=put)]),
    failure=st.just([]) | RANGES.map(lambda each: [pb.RequestOp(request_range=each)]),
)
OTHER_TARGET = pb.TxnRequest(
    compare=[pb.Compare(key=b"k", target=pb.Compare.VERSION, mod_revision=0)],
    success=[pb.RequestOp(request_put=pb.PutRequest(key=b"k"))],
).SerializeToString()
METHODS = [(rpc.PUT, PUTS), (rpc.RANGE, RANGES), (rpc.TXN, TXNS), (rpc.LEASE_GRANT, PUTS)]
REQUESTS = st.one_of(
    *[
        st.tuples(st.just(method), messages.map(lambda each: each.SerializeToString()))
        for method, messages in METHODS
    ]
)
CALLS = st.lists(REQUESTS, max_size=12).map(
    lambda found: [(at - 2, method, body) for at, (method, body) in enumerate(found)]
)


def of_crate() -> PlainCalls:
    found = plain_calls.PLAIN_CALLS
    assert found is not PYTHON
    return found


def recognized(
    calls: PlainCalls, found: list[Call], start: int, room: int, size: int, suffix: int
) -> list[object]:
    end, runs, gets, local_gets = calls.recognize(found, start, (room, size), (5 << 48, suffix))
    return [end, [tuple(run) for run in runs], gets, local_gets]


@QUICK
@given(
    CALLS,
    st.integers(0, 3),
    st.sampled_from([1, 300, 400, 1 << 62]),
    st.sampled_from([20, 100, 1 << 20]),
    st.sampled_from([0, 100, (1 << 48) - 2]),
)
@example([(1, rpc.TXN, OTHER_TARGET)], 0, 1 << 62, 1 << 20, 0)
def test_what_the_library_writes_is_recognized_alike(
    calls: list[Call], start: int, room_bytes: int, data_bytes_max: int, suffix: int
) -> None:
    limits = (min(start, len(calls)), room_bytes, data_bytes_max, suffix)
    expected = recognized(PYTHON, calls, *limits)
    found = recognized(of_crate(), calls, *limits)
    if _has_large_numbers(calls):  # written in ten bytes
        assert found[0] <= expected[0]  # type: ignore[operator]
    else:
        assert found == expected


def _has_large_numbers(calls: list[Call]) -> bool:
    for _, method, body in calls:
        if method == rpc.TXN:
            for compare in pb.TxnRequest.FromString(body).compare:
                if min(compare.version, compare.create_revision, compare.mod_revision) < 0:
                    return True
    return False


@QUICK
@given(
    st.lists(REQUESTS, min_size=1, max_size=3),
    st.integers(0, 500),
    st.binary(max_size=4),
    st.integers(0, 8),
)
def test_of_any_bytes_it_recognizes_no_more(
    requests: list[tuple[int, bytes]], at: int, written: bytes, removed: int
) -> None:
    for method, body in requests:
        damaged = body[:at] + written + body[at + removed :]
        call = [(1, method, damaged)]
        found = of_crate().recognize(call, 0, (1 << 62, 1 << 20), (0, 0))
        if found[0]:
            expected = PYTHON.recognize(call, 0, (1 << 62, 1 << 20), (0, 0))
            assert _plain(found) == _plain(expected)


def _plain(found: Recognized) -> object:
    end, runs, gets, local_gets = found
    return end, [tuple(run) for run in runs], gets, local_gets


@QUICK
@given(
    st.lists(
        st.tuples(st.sampled_from([0, 0, 0, 0, 1, 2]), st.sampled_from([4, 4, 4, 5]), PUTS),
        max_size=6,
    ),
    st.integers(0, 2),
    st.binary(max_size=3),
)
def test_entries(found: list[tuple[int, int, pb.PutRequest]], start: int, junk: bytes) -> None:
    entries = [
        Entry(EntryType(kind), 1, at, wrap(field, put.SerializeToString(), 1 << 40 | at))
        for at, (kind, field, put) in enumerate(found, 1)
    ]
    start = min(start, len(entries))
    expected = PYTHON.puts_of_entries(entries, start)
    assert of_crate().puts_of_entries(entries, start) == expected
    entries.insert(start, Entry(EntryType.NORMAL, 1, 1, junk))
    assert of_crate().puts_of_entries(entries, start) == ([], [])


def test_a_run_ends_where_another_kind_begins() -> None:
    put = pb.PutRequest(key=b"k", value=b"v").SerializeToString()
    absent = pb.Compare(key=b"k", target=pb.Compare.MOD, mod_revision=0)
    swap = pb.TxnRequest(
        compare=[absent], success=[pb.RequestOp(request_put=pb.PutRequest(key=b"k", lease=7))]
    ).SerializeToString()
    get = pb.RangeRequest(key=b"k").SerializeToString()
    calls = [
        (1, rpc.PUT, put), (2, rpc.RANGE, get), (3, rpc.PUT, put), (4, rpc.TXN, swap),
        (5, rpc.PUT, put), (6, rpc.STATUS, b""), (7, rpc.PUT, put),
    ]  # fmt: skip
    for each in (of_crate(), PYTHON):
        end, runs, gets, local_gets = each.recognize(calls, 0, (1 << 62, 1 << 20), (1 << 48, 9))
        assert (end, gets, local_gets) == (5, [(2, b"k")], [])
        assert [(run[0], run[1]) for run in runs] == [
            (Field.PUT, [1, 3]), (Field.TXN, [4]), (Field.PUT, [5])
        ]  # fmt: skip
        assert runs[1][4] == [(b"k", 1, 0, 0, b"k", 7, b"")]
        assert [unwrap(data) for run in runs for data in run[3]] == [
            (Field.PUT, put, 1 << 48 | 10),
            (Field.PUT, put, 1 << 48 | 11),
            (Field.TXN, swap, 1 << 48 | 12),
            (Field.PUT, put, 1 << 48 | 13),
        ]
