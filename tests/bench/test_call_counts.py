"""No change makes what users measure dearer by calls: counts per operation, as they were committed.

`pytest tests/bench/test_call_counts.py --rewrite` writes what they are now; then read the diff. A
count that has fallen must be written, too, or a later change could use it up.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from bench.call_counts import TABLE, CallCounter, Counts, read_table, write_table
from bench.turns import NOW_NS, VALUE, get_body, key_of, member, put_body, swap_body
from kvstack.component import crate
from kvstore.apply.entry_context import EntryContext
from kvstore.auth.tokens import NO_CREDENTIAL
from kvstore.batch import AnyDelivery, Inbox
from kvstore.mvcc.store import Store
from kvstore.node.turn import Node
from kvstore.storage.files import UnsyncedFiles
from kvstore.storage.memory_backend import MemoryBackend
from kvstore.watch.hub import Hub
from kvstore.watch.ranges import Ranges
from kvstore.watch.stream import WatchLimits
from kvstore.wire import internal, rpc, splice
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.models.watch_history import MemoryHistory, create, header_of

WARM_UP = 3  # caches are filled, buffers have their size
KEYS = 100
STREAM = 1 << 20
LEASE = 7
KV = splice.encode_kv(b"/registry/pods/default/web", 5, 7, 3, VALUE, 0)
HEADER = splice.HeaderMaker(2**63 + 1, 2**63 + 2).field(7, 2)
ENTRY = internal.wrap(internal.Field.PUT, put_body(1), 1)

Operation = Callable[[], object]
Prepare = Callable[[], Operation]  # what it does itself is not counted
Case = Callable[[Path], "Iterator[Prepare]"]
CASES: dict[str, Case] = {}
BY_THE_CRATE: set[str] = set()  # what is counted where the crate does its part


def case(name: str, *, by_crate: bool = False) -> Callable[[Case], Case]:
    if by_crate:
        BY_THE_CRATE.add(name)

    def add(made: Case) -> Case:
        CASES[name] = made
        return made

    return add


# Turns.


def turn(node: Node, inbox: Inbox) -> Operation:
    inbox.now_ns, inbox.wall_ms = NOW_NS, 1
    return lambda: node.turn(inbox)


def of_calls(name: str, bodies: Callable[[int], list[tuple[int, bytes]]]) -> None:
    """Add a turn of calls: (method, body) of each, from the revision before."""

    @case(name, by_crate=True)
    def turns(tmp_path: Path) -> Iterator[Prepare]:
        with member(tmp_path / "data", UnsyncedFiles()) as (node, parts):
            puts = [(number, rpc.PUT, put_body(number)) for number in range(1, KEYS + 1)]
            turn(node, Inbox(calls=puts))()
            ids = count(KEYS + 1)

            def prepare() -> Operation:
                of_turn = bodies(parts.state.store.revision)
                calls = [(next(ids), method, body) for method, body in of_turn]
                return turn(node, Inbox(calls=calls))

            yield prepare


of_calls("turn: a put", lambda revision: [(rpc.PUT, put_body(revision))])
of_calls("turn: a put of a known key", lambda _: [(rpc.PUT, put_body(1))])
of_calls("turn: a get", lambda _: [(rpc.RANGE, get_body(1))])
of_calls(
    "turn: a compare-and-put",
    lambda revision: [(rpc.TXN, swap_body(2, 3 if revision == KEYS + 1 else revision))],
)
of_calls(
    "turn: 100 puts",
    lambda revision: [(rpc.PUT, put_body(revision + number)) for number in range(100)],
)
of_calls("turn: 100 gets", lambda _: [(rpc.RANGE, get_body(each)) for each in range(1, KEYS + 1)])
of_calls(
    "turn: a range of 100 keys",
    lambda _: [
        (rpc.RANGE, pb.RangeRequest(key=b"\0", range_end=b"\0", limit=KEYS).SerializeToString())
    ],
)


@case("turn: nothing", by_crate=True)
def nothing(tmp_path: Path) -> Iterator[Prepare]:
    with member(tmp_path / "data", UnsyncedFiles()) as (node, _):
        yield lambda: turn(node, Inbox())


@case("turn: 20 keep-alives", by_crate=True)
def keep_alives(tmp_path: Path) -> Iterator[Prepare]:
    body = pb.LeaseKeepAliveRequest(ID=LEASE).SerializeToString()
    grant = pb.LeaseGrantRequest(ID=LEASE, TTL=1000).SerializeToString()
    with member(tmp_path / "data", UnsyncedFiles()) as (node, _):
        turn(node, Inbox(calls=[(1, rpc.LEASE_GRANT, grant)]))()
        turn(node, Inbox(opened=[(STREAM, rpc.LEASE_KEEP_ALIVE)]))()
        yield lambda: turn(node, Inbox(frames=[(STREAM, body)] * 20))


@case("turn: a put, 1,000 watchers on 10 streams", by_crate=True)
def watched_put(tmp_path: Path) -> Iterator[Prepare]:
    with member(tmp_path / "data", UnsyncedFiles()) as (node, _):
        streams = range(STREAM, STREAM + 10)
        turn(node, Inbox(opened=[(stream, rpc.WATCH) for stream in streams]))()
        watch = create(key=key_of(1))
        turn(node, Inbox(frames=[(stream, watch) for stream in streams for _ in range(100)]))()
        ids = count(1)
        yield lambda: turn(node, Inbox(calls=[(next(ids), rpc.PUT, put_body(1))]))


# Parts of turns.


@case("apply: a put", by_crate=True)
def apply(tmp_path: Path) -> Iterator[Prepare]:
    with member(tmp_path / "data", UnsyncedFiles()) as (_, parts):
        applier, context = parts.state.applier, EntryContext(NO_CREDENTIAL, 0, NOW_NS)
        yield lambda: lambda: applier.apply(internal.Field.PUT, put_body(1), context)


@case("index: 100 puts of new keys")
def new_keys(_: Path) -> Iterator[Prepare]:
    store, numbers = Store(MemoryBackend()), count()

    def prepare() -> Operation:
        keys = [key_of(next(numbers)) for _ in range(100)]
        return lambda: [store.put_one(key, VALUE, 0) for key in keys]

    yield prepare


@case("index: a range of 100 keys")
def index_range(_: Path) -> Iterator[Prepare]:
    store = Store(MemoryBackend())
    for number in range(KEYS):
        store.put_one(key_of(number), VALUE, 0)
    yield lambda: lambda: store.range(b"\0", b"\0", limit=KEYS)


@case("watch: match among 10,000 ranges")
def match(_: Path) -> Iterator[Prepare]:
    ranges: Ranges[int] = Ranges()
    for number in range(10_000):
        ranges.add(b"/%05d/" % number, b"/%05d0" % number, number)
    yield lambda: lambda: ranges.match(b"/05000/key")


def of_fan_out(name: str, streams: int, watchers: int, revisions: int) -> None:
    @case(name)
    def fan_out(_: Path) -> Iterator[Prepare]:
        store, out = MemoryHistory(), list[AnyDelivery]()
        hub = Hub(store, header_of, WatchLimits(backlog_high_bytes=1 << 60), random.Random(1))
        for stream_id in range(streams):
            hub.open(stream_id, 0)
            for _number in range(watchers):
                hub.request(stream_id, create(key=b"key"), 0, out)

        def prepare() -> Operation:
            hub.step(0, {}, 1000, 1 << 20, out)
            out.clear()
            events = [each for _ in range(revisions) for each in store.put(b"key", VALUE)]
            return lambda: hub.publish(events, out)

        yield prepare


of_fan_out("watch: a put to 10 streams of 100", 10, 100, 1)
of_fan_out("watch: 10 puts to 10 streams of 100", 10, 100, 10)
of_fan_out("watch: a put to 1,000 streams", 1_000, 1, 1)


def of_codec(name: str, encode: Operation) -> None:
    @case(name)
    def codec(_: Path) -> Iterator[Prepare]:
        yield lambda: encode


of_codec("encode: KeyValue", lambda: splice.encode_kv(b"key", 5, 7, 3, VALUE, 0))
of_codec("encode: event", lambda: splice.encode_event(splice.PUT, KV, None))
of_codec("encode: range of 50", lambda: splice.range_response(HEADER, [KV] * 50, False, 50))
of_codec("encode: entry", lambda: internal.wrap(internal.Field.PUT, put_body(1), 1))
of_codec("decode: entry", lambda: internal.unwrap(ENTRY))


def counted(prepare: Prepare) -> Counts:
    for _ in range(WARM_UP):
        prepare()()
    operation = prepare()
    with CallCounter() as counter:
        operation()
    return counter.counts


@pytest.mark.parametrize("name", CASES)
def test_the_calls_of_an_operation(name: str, tmp_path: Path, rewrite: bool) -> None:  # noqa: FBT001
    if name in BY_THE_CRATE and crate.KERNELS is None:
        pytest.skip(f"no crate: {crate.MISSING}")
    with contextmanager(CASES[name])(tmp_path) as prepare:
        now = counted(prepare)
        assert counted(prepare).is_near(now), "the count differs from one time to the next"
    table = read_table()
    if rewrite:
        write_table({each: row for each, row in {**table, name: now}.items() if each in CASES})
        return
    before = table.get(name)
    assert before is not None, f"{name} is not in {TABLE}: {hint()}"
    assert now.is_near(before), f"{name}: {now}, not {before} as in {TABLE.name}; {hint()}"


def hint() -> str:
    return f"if that is meant, pytest --rewrite {Path(__file__)}"


def test_the_counter_sees_calls_of_python_and_of_c() -> None:
    with CallCounter() as none:
        sorted(map(str, range(3)))  # not of the project's functions
    assert none.counts == Counts(0, 0)
    with CallCounter() as some:
        splice.encode_event(splice.PUT, KV, None)
    assert some.counts.python >= 1


@pytest.mark.parametrize(
    ("now", "is_near"),
    [((100, 100), True), ((101, 99), True), ((102, 100), False), ((100, 98), False)],
)
def test_a_small_difference_is_none(now: tuple[int, int], *, is_near: bool) -> None:
    assert Counts(*now).is_near(Counts(100, 100)) is is_near
    assert not Counts(4, 0).is_near(Counts(3, 0))
