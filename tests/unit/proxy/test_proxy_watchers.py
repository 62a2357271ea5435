"""Shared watches, without a cluster: whatever is joined and merged, each watcher gets every event
of its range once and in order."""

import random

from kvstore.proxy.counters import ProxyCounters
from kvstore.proxy.watch.watchers import Broadcast, Broadcasts, Range, Watcher
from kvstore.wire.gen import kv_pb2
from kvstore.wire.gen import rpc_pb2 as pb

ALL = Range(b"\0", b"\0", False, ())


class Cluster:
    """A store that only counts: every revision is one event; watches are served when asked to."""

    def __init__(self) -> None:
        self.revision = 1
        self.counts = ProxyCounters()
        self.watches: dict[int, int] = {}  # id → next revision to deliver; 0: not yet created
        self.asked: dict[int, int] = {}
        self.broadcasts = Broadcasts(self.open, self.close, self.counts)

    def open(self, broadcast: Broadcast) -> None:
        self.watches[broadcast.id] = 0
        self.asked[broadcast.id] = broadcast.resume_revision()

    def close(self, broadcast: Broadcast) -> None:
        del self.watches[broadcast.id]

    def serve(self, watch_id: int, events_max: int = 1000) -> None:
        """Create a watch, or deliver some events to it."""
        following = self.watches[watch_id]
        header = pb.ResponseHeader(revision=self.revision)
        response = pb.WatchResponse(header=header, watch_id=watch_id)
        if not following:
            self.watches[watch_id] = self.asked[watch_id] or self.revision + 1
            response.created = True
        else:
            last = min(self.revision, following + events_max - 1)
            if last < following:
                return
            for revision in range(following, last + 1):
                row = kv_pb2.KeyValue(key=b"k", mod_revision=revision)
                response.events.append(kv_pb2.Event(kv=row))
            self.watches[watch_id] = last + 1
        self.broadcasts.deliver(watch_id, response)

    def settle(self) -> None:
        for _ in range(3):
            for watch_id in list(self.watches):
                if watch_id in self.watches:
                    self.serve(watch_id)


class Client:
    """One watcher and what it was told."""

    def __init__(self, cluster: Cluster, start_revision: int, watch_id: int = 0) -> None:
        self.messages: list[pb.WatchResponse] = []
        self.watcher = Watcher(watch_id, ALL, start_revision, self.take, has_progress=False)
        self.start_revision = start_revision
        cluster.broadcasts.add(self.watcher)

    def take(self, message: bytes) -> None:
        self.messages.append(pb.WatchResponse.FromString(message))

    @property
    def revisions(self) -> list[int]:
        return [event.kv.mod_revision for each in self.messages for event in each.events]


def test_watchers_from_now_come_together_after_they_are_created() -> None:
    cluster = Cluster()
    clients = [Client(cluster, 0, number) for number in range(4)]
    cluster.settle()
    late = Client(cluster, 0, 300)
    assert len(cluster.watches) == 2
    cluster.settle()
    assert len(cluster.watches) == 1
    assert cluster.counts.watchers_coalescing == 4
    cluster.revision += 2
    cluster.settle()
    for number, client in enumerate([*clients, late]):
        assert client.messages[0].created
        assert {each.watch_id for each in client.messages} == {300 if client is late else number}
        assert client.revisions == [2, 3]
    assert cluster.counts.events_coalescing >= 4


def test_one_that_wants_the_past_has_a_watch_of_its_own_until_it_has_caught_up() -> None:
    cluster = Cluster()
    now = Client(cluster, 0)
    cluster.settle()
    cluster.revision = 10
    cluster.settle()
    past = Client(cluster, 4)
    assert len(cluster.watches) == 2
    watch_id = max(cluster.watches)
    cluster.serve(watch_id)
    cluster.serve(watch_id, events_max=2)  # says it is of revision 10, but brings 4 and 5
    assert len(cluster.watches) == 2
    cluster.settle()
    assert len(cluster.watches) == 1
    assert past.revisions == list(range(4, 11))
    cluster.revision = 12
    cluster.settle()
    assert past.revisions == list(range(4, 13))
    assert now.revisions == list(range(2, 13))


def test_different_wishes_are_kept_apart() -> None:
    cluster = Cluster()
    for wish in (ALL, ALL._replace(prev_kv=True), ALL._replace(filters=(1,))):
        cluster.broadcasts.add(Watcher(0, wish, 0, lambda _: None, has_progress=False))
    assert len(cluster.watches) == 3


def test_the_last_one_closes_the_watch() -> None:
    cluster = Cluster()
    clients = [Client(cluster, 0) for _ in range(2)]
    cluster.settle()
    for client in clients:
        assert cluster.watches
        cluster.broadcasts.remove(client.watcher)
    assert not cluster.watches
    assert cluster.counts.watchers_coalescing == 0


def test_what_the_cluster_cancels_is_cancelled_for_all() -> None:
    cluster = Cluster()
    clients = [Client(cluster, 5, 1), Client(cluster, 5, 2)]
    (watch_id,) = cluster.watches
    cluster.serve(watch_id)
    refused = pb.WatchResponse(canceled=True, compact_revision=9, cancel_reason="too old")
    ended = cluster.broadcasts.deliver(watch_id, refused)
    assert ended == [each.watcher for each in clients]
    for client in clients:
        last = client.messages[-1]
        assert (last.canceled, last.compact_revision, last.cancel_reason) == (True, 9, "too old")
    assert cluster.counts.watchers_coalescing == 0


def test_a_stream_that_is_opened_again_says_nothing_of_it_and_goes_on_where_it_was() -> None:
    cluster = Cluster()
    client = Client(cluster, 0)
    cluster.settle()
    cluster.revision = 5
    cluster.settle()
    (broadcast,) = cluster.broadcasts.by_id.values()
    assert broadcast.resume_revision() == 6
    cluster.open(broadcast)
    cluster.revision = 7
    cluster.settle()
    assert [each.created for each in client.messages].count(True) == 1
    assert client.revisions == [2, 3, 4, 5, 6, 7]


def test_progress_moves_the_revision_to_go_on_from() -> None:
    cluster = Cluster()
    Client(cluster, 0)
    cluster.settle()
    (watch_id,) = cluster.watches
    cluster.broadcasts.deliver(watch_id, pb.WatchResponse(header=pb.ResponseHeader(revision=50)))
    assert cluster.broadcasts.by_id[watch_id].resume_revision() == 51


def test_no_watcher_misses_an_event() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        cluster = Cluster()
        clients: list[Client] = []
        for _ in range(120):
            what = rng.randrange(6)
            if what == 0 and len(clients) < 30:
                start = rng.choice([0, 0, rng.randint(1, cluster.revision + 5)])
                clients.append(Client(cluster, start))
            elif what == 1 and clients:
                cluster.broadcasts.remove(clients.pop(rng.randrange(len(clients))).watcher)
            elif what == 2:
                cluster.revision += rng.randint(1, 3)
            elif cluster.watches:
                cluster.serve(rng.choice(list(cluster.watches)), rng.randint(1, 3))
        for _ in range(100):
            cluster.settle()
        for client in clients:
            created = client.messages[0]
            assert created.created
            first = client.start_revision or created.header.revision + 1
            assert client.revisions == list(range(first, cluster.revision + 1)), seed
        assert len(cluster.watches) <= len(clients)
