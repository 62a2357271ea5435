"""Watches against a model: every watcher is sent exactly its events, and no header lies.

Random changes, watchers, slow readers, budgets, compactions and missing publishes. What a client
receives is checked message by message, in the order of its stream:

- a watcher's events are those of the log in its range, from its start on, through its filters, in
  order, none twice and none left out; one revision is in one response, or in flagged fragments;
- a revision told in a header, with events or as progress, has been delivered up to in full;
- created comes first, nothing comes after canceled;
- and at the end, when everybody reads, everybody has everything.
"""

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from typing_extensions import override

from kvstore.batch import AnyDelivery, messages
from kvstore.watch.history import Event
from kvstore.watch.hub import Hub
from kvstore.watch.stream import WatchLimits
from kvstore.wire.gen.rpc_pb2 import WatchResponse
from tests.support.models.watch_history import (
    PROGRESS,
    MemoryHistory,
    cancel,
    create,
    decode,
    header_of,
)

LIMITS = WatchLimits(
    max_message_bytes=64 + 120,
    progress_interval_ns=1000,
    backlog_high_bytes=250,
    backlog_low_bytes=80,
    backlog_max_bytes=1 << 30,
)
LETTERS = [b"a", b"b", b"c", b"d"]
KEYS = st.sampled_from([*LETTERS, b"ab", b"b\0"])
OPS = st.lists(
    st.tuples(KEYS, st.one_of(st.none(), st.integers(0, 50).map(lambda size: b"x" * size))),
    min_size=1,
    max_size=5,
    unique_by=lambda op: op[0],
)
ENDS = st.sampled_from([b"", b"\0", b"b", b"bb", b"d", b"e"])
STREAMS = st.integers(1, 3)


class Client:
    """What a client knows of one watcher, and what it should be told."""

    def __init__(self, key: bytes, end: bytes, start: int, fields: dict[str, object]) -> None:
        self.key, self.end, self.start = key, end, start
        self.first = 0  # known once created
        self.no_put = 0 in fields["filters"]  # type: ignore[operator]
        self.no_delete = 1 in fields["filters"]  # type: ignore[operator]
        self.prev_kv = bool(fields["prev_kv"])
        self.fragment = bool(fields["fragment"])
        self.got: list[tuple[int, int]] = []
        self.in_fragment = False

    def expected(self, log: list[Event]) -> list[tuple[int, int]]:
        return [
            (main, sub)
            for kind, key, _, main, sub, _ in log
            if main >= self.first
            and self.matches(key)
            and not (self.no_delete if kind else self.no_put)
        ]

    def matches(self, key: bytes) -> bool:
        if self.end == b"":
            return key == self.key
        return self.key <= key and (self.end == b"\0" or key < self.end)


class WatchModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryHistory()
        for key in LETTERS:
            self.store.put(key)
        self.hub = Hub(self.store, header_of, LIMITS, random.Random(3))
        self.now_ns = 0
        self.unpublished: list[Event] = []
        self.clients: dict[int, dict[int, Client]] = {}
        self.creating: dict[int, list[Client]] = {}
        self.asked: dict[int, bool] = {}  # stream that asked for progress → it must get it
        self.unread: dict[int, int] = {}
        self.fresh: dict[int, int] = {}  # handed over since the last measurement
        self.more = False
        for stream_id in (1, 2, 3):
            self.open(stream_id)

    def open(self, stream_id: int) -> None:
        self.hub.open(stream_id, self.now_ns)
        self.clients[stream_id] = {}
        self.creating[stream_id] = []
        self.unread[stream_id] = self.fresh[stream_id] = 0

    # What happens.

    @rule(ops=OPS)
    def write(self, ops: list[tuple[bytes, bytes | None]]) -> None:
        self.unpublished += self.store.write(*ops)

    @rule()
    def publish(self) -> None:
        out: list[AnyDelivery] = []
        self.hub.publish(self.unpublished, out)
        self.unpublished = []
        self.receive(out)

    @rule()
    def lose_publish(self) -> None:
        """As when a snapshot brings revisions that were never applied here."""
        self.unpublished = []

    @rule(
        rows=st.integers(0, 6),
        budget_bytes=st.sampled_from([0, 60, 10_000]),
        passed_ns=st.sampled_from([0, 300, 2000]),
    )
    def step(self, rows: int, budget_bytes: int, passed_ns: int) -> None:
        self.now_ns += passed_ns
        backlog = {each: size for each, size in self.unread.items() if size}
        out: list[AnyDelivery] = []
        self.more = self.hub.step(self.now_ns, backlog, rows, budget_bytes, out)
        self.receive(out)
        for stream_id in self.asked:
            self.asked[stream_id] &= bool(self.clients[stream_id])  # else it may be dropped
        for stream_id in self.fresh:
            self.unread[stream_id] += self.fresh[stream_id]
            self.fresh[stream_id] = 0

    @rule(stream_id=STREAMS, part=st.sampled_from([0.3, 0.9, 1]))
    def read(self, stream_id: int, part: float) -> None:
        self.unread[stream_id] -= int(self.unread[stream_id] * part)

    @rule(
        stream_id=STREAMS,
        key=KEYS,
        end=ENDS,
        back=st.one_of(st.none(), st.integers(-3, 12)),
        watch_id=st.sampled_from([0, 0, 0, 0, 3, 4]),
        fields=st.fixed_dictionaries(
            {
                "filters": st.sampled_from([[], [], [], [0], [1], [0, 1]]),
                "prev_kv": st.booleans(),
                "fragment": st.booleans(),
                "progress_notify": st.booleans(),
            }
        ),
    )
    def create(
        self,
        stream_id: int,
        key: bytes,
        end: bytes,
        back: int | None,
        watch_id: int,
        fields: dict[str, object],
    ) -> None:
        start = 0 if back is None else max(self.store.revision - back, 1)
        body = create(key=key, range_end=end, start_revision=start, watch_id=watch_id, **fields)
        self.creating[stream_id].append(Client(key, end, start, fields))
        out: list[AnyDelivery] = []
        assert self.hub.request(stream_id, body, self.now_ns, out) is None
        self.receive(out)
        assert not self.creating[stream_id]

    @rule(stream_id=STREAMS, watch_id=st.integers(0, 6))
    def cancel(self, stream_id: int, watch_id: int) -> None:
        out: list[AnyDelivery] = []
        assert self.hub.request(stream_id, cancel(watch_id), self.now_ns, out) is None
        there = watch_id in self.clients[stream_id]
        self.receive(out)
        assert watch_id not in self.clients[stream_id]
        assert bool(out) or not there

    @rule(stream_id=STREAMS)
    def ask_progress(self, stream_id: int) -> None:
        out: list[AnyDelivery] = []
        assert self.hub.request(stream_id, PROGRESS, self.now_ns, out) is None
        clients = self.clients[stream_id].values()
        published = self.hub._revision  # what it was told of: a lost publish is found out later
        # A question is dropped if there is nothing to watch yet.
        heard = bool(clients) and all(client.start <= published for client in clients)
        self.asked[stream_id] = heard or self.asked.get(stream_id, False)

    @rule(stream_id=STREAMS)
    def reopen(self, stream_id: int) -> None:
        self.hub.close(stream_id)
        self.asked.pop(stream_id, None)
        self.open(stream_id)

    @precondition(lambda self: self.store.revision > self.store.compacted + 1)
    @rule(back=st.integers(0, 6))
    def compact(self, back: int) -> None:
        revision = self.store.revision - back
        if revision > self.store.compacted:
            self.store.compact(revision)

    # What the clients see.

    def receive(self, out: list[AnyDelivery]) -> None:
        for stream_id, head, tail in messages(out):
            self.fresh[stream_id] += len(head) + len(tail)
        for stream_id, answer in decode(out):
            if answer.created:
                self.take_created(stream_id, answer)
            elif answer.canceled:
                self.take_canceled(stream_id, answer)
            elif answer.watch_id == -1:
                self.take_progress_of_all(stream_id, answer)
            else:
                self.take(self.clients[stream_id][answer.watch_id], answer)

    def take_created(self, stream_id: int, answer: WatchResponse) -> None:
        client = self.creating[stream_id].pop(0)
        assert not answer.events
        assert answer.header.revision <= self.store.revision
        if answer.canceled:
            assert answer.watch_id == -1
            assert answer.cancel_reason
            return
        client.first = client.start or answer.header.revision + 1
        assert answer.watch_id not in self.clients[stream_id]
        self.clients[stream_id][answer.watch_id] = client

    def take_canceled(self, stream_id: int, answer: WatchResponse) -> None:
        client = self.clients[stream_id].pop(answer.watch_id, None)
        if answer.compact_revision:
            assert client is not None
            assert answer.compact_revision == self.store.compacted
            assert client.first < self.store.compacted
            seen = client.got[-1][0] if client.got else 0
            assert seen < self.store.compacted

    def take(self, client: Client, answer: WatchResponse) -> None:
        revision = answer.header.revision
        events = [(event.kv.mod_revision, event) for event in answer.events]
        already = len(client.got)
        expected = client.expected(self.store.log)
        client.got += expected[already : already + len(events)]
        assert [main for main, _ in events] == [main for main, _ in client.got[already:]]
        self.check_bytes(client, already, answer)
        if events:
            assert (
                answer.ByteSize() <= LIMITS.max_message_bytes
                or len({main for main, _ in events}) == 1
            )
        if answer.fragment:
            assert client.fragment
            assert events
            client.in_fragment = True
            return
        client.in_fragment = False
        assert client.got == [
            each for each in expected if each[0] <= max(revision, client.first - 1)
        ]
        if not events:
            assert revision >= client.start

    def check_bytes(self, client: Client, already: int, answer: WatchResponse) -> None:
        by_place = {(event[3], event[4]): event for event in self.store.log}
        for place, event in zip(client.got[already:], answer.events, strict=True):
            kind, key, kv, main, _, prev = by_place[place]
            assert (event.type, event.kv.key) == (kind, key)
            assert event.kv.SerializeToString() == kv
            if not client.prev_kv or prev is None:
                assert not event.HasField("prev_kv")
            elif event.HasField("prev_kv"):
                assert event.prev_kv.SerializeToString() == self.store.kvs[prev]
            else:
                assert main - 1 < self.store.compacted

    def take_progress_of_all(self, stream_id: int, answer: WatchResponse) -> None:
        assert not answer.events
        assert answer.header.revision >= 1
        assert stream_id in self.asked
        del self.asked[stream_id]
        clients = self.clients[stream_id].values()
        assert clients
        for client in clients:
            assert not client.in_fragment
            self.take(client, answer)

    @override
    def teardown(self) -> None:
        """Everybody reads; then everybody has everything."""
        self.publish()
        for _ in range(2000):
            self.unread = dict.fromkeys(self.unread, 0)
            self.step(6, 10_000, 0)
            if not self.more and not any(self.fresh.values()) and not any(self.unread.values()):
                break
        else:
            raise AssertionError("catching up does not come to an end")
        for stream_id, clients in self.clients.items():
            for client in clients.values():
                assert client.got == client.expected(self.store.log)
            if self.asked.get(stream_id):
                assert any(client.start > self.store.revision for client in clients.values())
        stats = self.hub.stats()
        assert stats.unsynced == 0
        assert stats.watchers == sum(map(len, self.clients.values()))


WatchModel.TestCase.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
TestWatchModel = WatchModel.TestCase
