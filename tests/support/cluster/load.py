"""Clients of a cluster that note all they do: see `cluster_history` for what is made of it.

    with Load(cluster, seed=1) as load:
        ...faults...
        load.wait_for_progress()
    load.check()

Each client keeps to one member until that fails it, then goes on at the next. As etcd's own clients
do, it tries again elsewhere what was never sent or refused before anything could be done; what was
under way when the connection broke is not tried again, and its outcome is unknown.
"""

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import zip_longest
from types import TracebackType
from typing import Any, Final, Self

import grpc
from google.protobuf.message import Message

from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.sim.model import StoreModel
from tests.support.cluster.history import Call, Checker, History, Seen
from tests.support.cluster.servers import Cluster, Member, wait_for
from tests.support.rpc_client import Client, Stream, status

METHODS: Final = {
    pb.PutRequest: rpc.PUT,
    pb.DeleteRangeRequest: rpc.DELETE_RANGE,
    pb.TxnRequest: rpc.TXN,
    pb.RangeRequest: rpc.RANGE,
    pb.LeaseGrantRequest: rpc.LEASE_GRANT,
    pb.LeaseRevokeRequest: rpc.LEASE_REVOKE,
}
CALL_S: Final = 1.0  # a call whose leader was killed is lost: nobody answers it
SILENCE_S: Final = 3.0  # after which a watcher tries elsewhere
PACE_S: Final = 0.002  # between two calls of a client: the machine is shared
KEYS: Final = 8
LEASE_TTL_S: Final = 1
MIN_TTL_S: Final = 1  # the least the members of FLAGS grant
UNAVAILABLE: Final = grpc.StatusCode.UNAVAILABLE.value[0]
HAS_LEADER: Final = (("hasleader", "true"),)
# Texts that say that nothing was done and that another try, or another member, may do.
REFUSALS: Final = (
    "etcdserver: too many requests",
    "etcdserver: no leader",
    "etcdserver: rpc not supported for learner",
    "raft proposal dropped",
)
NO_LEASE: Final = "etcdserver: requested lease not found"  # an answer: nothing was done
NEVER_SENT: Final = ("failed to connect", "connection refused", "name resolution", "no route")


class Gone(Exception):  # noqa: N818  # no error: the load ends
    """The load is to end."""


class Connections:
    """One client's way to the members, one at a time."""

    def __init__(self, load: "Load", number: int) -> None:
        self._load = load
        self._at = number
        self._open: tuple[str, Client] | None = None

    def current(self) -> tuple[str, Client]:
        """Return the member's endpoint and the connection in use."""
        if self._open is not None and self._open[0] in self._load.avoided:
            self.next()
        if self._open is None:
            load = self._load
            endpoints = [each for each in load.cluster.endpoints if each not in load.avoided]
            endpoint = endpoints[self._at % len(endpoints)]
            self._open = endpoint, Client(endpoint)
        return self._open

    def next(self) -> None:
        """Go on at another member."""
        self.close()
        self._at += 1

    def close(self) -> None:
        if self._open is not None:
            self._open[1].channel.close()
            self._open = None


class Load:
    """Clients in threads: writers, a reader, one with leases, two watchers, perhaps a compactor."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        seed: int = 1,
        writers: int = 3,
        compacts: bool = False,
        call_s: float = CALL_S,
        tries: int = 0,
    ) -> None:
        """tries: how often a call whose outcome is unknown is made again, elsewhere."""
        self.cluster = cluster
        self.history = History()
        self.errors: Counter[str] = Counter()
        self.surprises: list[BaseException] = []
        self.call_s = call_s
        self.tries = tries
        self.given_up = 0  # calls that were made so often in vain
        self._stopping = threading.Event()
        self.avoided: frozenset[str] = frozenset()  # endpoints
        self._busy: Counter[str] = Counter()  # calls under way, by endpoint
        self._ended = threading.Event()  # watchers, too
        self._streams: dict[int, Stream] = {}  # of watchers, by number
        self._seed = seed
        jobs: list[Callable[[Connections, random.Random], None]] = [self._write] * writers
        jobs += [self._read, self._lease]
        jobs += [self._compact] if compacts else []
        self._threads = [
            threading.Thread(target=self._run, args=(job, number), daemon=True)
            for number, job in enumerate(jobs)
        ]
        self.history.watchers += [Seen(b"\0", b"\0", 2), Seen(b"k2", b"k6", 2)]
        self._watchers = [
            threading.Thread(target=self._watch, args=(number, seen), daemon=True)
            for number, seen in enumerate(self.history.watchers)
        ]

    def __enter__(self) -> Self:
        for thread in [*self._watchers, *self._threads]:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(60)
        try:
            if error is None:
                assert not self.surprises, self.surprises
                self._end_watchers()
        finally:
            self._ended.set()
            for stream in list(self._streams.values()):
                stream.cancel()
            for thread in self._watchers:
                thread.join(10)

    # Calls.

    def call(self, connections: Connections, request: Message) -> Any:
        """Make a call, trying other members while nothing was done; None: nobody knows."""
        unknown = 0
        while True:
            call, retry = self._attempt(connections, request)
            if call.response is not None:
                return call.response
            if not retry:
                unknown += 1
                self.given_up += unknown > self.tries
                if unknown > self.tries or call.is_refused:
                    return None
            if self._stopping.is_set():
                raise Gone
            time.sleep(PACE_S * 10)

    def _attempt(self, connections: Connections, request: Message) -> tuple[Call, bool]:
        with self.history.lock:
            endpoint, client = connections.current()
            self._busy[endpoint] += 1
        call = self.history.begin(request, endpoint)
        try:
            return self._make(connections, call, client)
        finally:
            with self.history.lock:
                self._busy[endpoint] -= 1

    def _make(self, connections: Connections, call: Call, client: Client) -> tuple[Call, bool]:
        request = call.request
        try:
            response = client.call(METHODS[type(request)], request, self.call_s)
        except grpc.RpcError as error:
            code, text = status(error)
            call.error = text
            never_sent = code == UNAVAILABLE and any(each in text.lower() for each in NEVER_SENT)
            call.is_refused = never_sent or text in REFUSALS or text == NO_LEASE
            if not call.is_refused:
                with self.history.lock:
                    self.errors[text] += 1
            if text != NO_LEASE:
                connections.next()
            return call, call.is_refused and text != NO_LEASE
        call.end_s = time.monotonic()
        call.response = response
        return call, False

    def _run(self, job: Callable[[Connections, random.Random], None], number: int) -> None:
        rng = random.Random(self._seed * 100 + number)
        connections = Connections(self, number)
        try:
            while not self._stopping.is_set():
                job(connections, rng)
                time.sleep(PACE_S)
        except Gone:
            pass
        except BaseException as error:  # noqa: BLE001 - asserted by the test
            self.surprises.append(error)
        finally:
            connections.close()

    # Jobs.

    def _write(self, connections: Connections, rng: random.Random) -> None:
        kind = rng.randrange(10)
        request: Message
        if kind < 4:
            request = pb.PutRequest(key=_key(rng), value=_value(rng), prev_kv=rng.random() < 0.5)
        elif kind < 5:
            request = pb.DeleteRangeRequest(
                key=_key(rng), range_end=rng.choice([b"", b"k4"]), prev_kv=True
            )
        else:
            request = _txn(rng, 2)
        self.call(connections, request)

    def _read(self, connections: Connections, rng: random.Random) -> None:
        request: Message = pb.RangeRequest(
            key=rng.choice([b"k", _key(rng)]),
            range_end=rng.choice([b"", b"l", b"\0"]),
            serializable=rng.random() < 0.3,
            limit=rng.choice([0, 0, 3]),
        )
        if rng.random() < 0.2:
            request = pb.TxnRequest(
                compare=[_compare(rng)],
                success=[pb.RequestOp(request_range=pb.RangeRequest(key=_key(rng)))],
                failure=[pb.RequestOp(request_range=pb.RangeRequest(key=b"k", range_end=b"l"))],
            )
        self.call(connections, request)

    def _lease(self, connections: Connections, rng: random.Random) -> None:
        """Grant, hang keys on it, keep it alive for a while; then revoke it or let it end."""
        begin_s = time.monotonic()
        lease = rng.randrange(1, 1 << 62)
        granted = self.call(connections, pb.LeaseGrantRequest(ID=lease, TTL=LEASE_TTL_S))
        if granted is None:
            return
        self.history.promise(lease, begin_s, granted.TTL)
        for number in range(rng.choice([1, 3])):
            key = b"lease/%d/%d" % (lease, number)
            self._put_leased(connections, key, lease, rng)
        for _ in range(rng.choice([0, 1, 3])):
            self._keep_alive(connections, lease)
            self._stopping.wait(LEASE_TTL_S / 10)
        if rng.random() < 0.5:
            self.call(connections, pb.LeaseRevokeRequest(ID=lease))

    def _put_leased(
        self, connections: Connections, key: bytes, lease: int, rng: random.Random
    ) -> None:
        # A lease may have ended by now: that refusal is an answer, and nothing was done.
        request = pb.PutRequest(key=key, value=_value(rng), lease=lease)
        self.call(connections, request)

    def _keep_alive(self, connections: Connections, lease: int) -> None:
        _, client = connections.current()
        begin_s = time.monotonic()
        stream = client.stream(rpc.LEASE_KEEP_ALIVE, pb.LeaseKeepAliveRequest(ID=lease))
        timer = threading.Timer(self.call_s, stream.cancel)
        timer.start()
        try:
            told = stream.receive()
            if told.TTL > 0:
                self.history.promise(lease, begin_s, told.TTL)
        except (grpc.RpcError, StopIteration):
            connections.next()
        finally:
            timer.cancel()
            stream.cancel()

    def _compact(self, connections: Connections, rng: random.Random) -> None:
        """Compact up to what the watchers have got: the history stays known."""
        known = min(seen.next_revision for seen in self.history.watchers)
        revision = known - rng.randrange(20, 60)
        _, client = connections.current()
        if revision > 1:
            request = pb.CompactionRequest(revision=revision, physical=rng.random() < 0.5)
            try:
                client.call(rpc.COMPACT, request, self.call_s)
            except grpc.RpcError as error:
                if status(error)[0] == UNAVAILABLE:
                    connections.next()
        self._stopping.wait(0.2)

    # Watchers.

    def _watch(self, number: int, seen: Seen) -> None:
        connections = Connections(self, number)
        while not self._ended.is_set():
            _, client = connections.current()
            create = pb.WatchCreateRequest(
                key=seen.key, range_end=seen.range_end, start_revision=seen.next_revision
            )
            with contextlib.suppress(grpc.RpcError):
                self._follow(seen, number, client, pb.WatchRequest(create_request=create))
            connections.next()
            time.sleep(PACE_S)
        connections.close()

    def _follow(self, seen: Seen, number: int, client: Client, request: Message) -> None:
        """Read one stream until it breaks, says nothing for a while, or is ended."""
        stream = client.stream(rpc.WATCH, request, metadata=HAS_LEADER)
        self._streams[number] = stream
        silence = _Silence(stream)
        try:
            for response in stream:
                silence.broken()
                if response.canceled:
                    assert not response.compact_revision, f"a watcher came too late: {response}"
                    return
                if response.events:
                    seen.responses.append((time.monotonic(), list(response.events)))
        except AssertionError as error:
            self.surprises.append(error)
        finally:
            silence.end()
            stream.cancel()

    def _end_watchers(self) -> None:
        """Wait until all leases have ended, write once more, wait until watchers have seen it."""
        self._stopping.clear()
        connections = Connections(self, 0)
        # A write that was on its way when its link was cut may arrive long after: one through each
        # member goes the same way, behind it.
        for endpoint in set(self.cluster.endpoints) - self.avoided:
            self._put_through(endpoint)
        wait_for(lambda: self._leases_left(connections) == 0, "the end of all leases")
        for number in (1, 2):  # check() compacts at the first of them, and hashes at the second
            response = self._put_end(connections, b"end %d of %d" % (number, self._seed))
        connections.close()
        self._stopping.set()
        last = response.header.revision
        seen = self.history.watchers
        wait_for(lambda: all(each.next_revision > last for each in seen), "watchers see the end")

    def _put_end(self, connections: Connections, value: bytes) -> Any:
        for number in range(20):
            request = pb.PutRequest(key=b"k3", value=value + b"/%d" % number)
            response = self.call(connections, request)
            if response is not None:
                return response
        raise AssertionError(f"no progress in the end: {self.errors}")

    def _put_through(self, endpoint: str) -> None:
        connections = Connections(self, 0)

        def is_done() -> bool:
            while connections.current()[0] != endpoint:
                connections.next()
            call, _ = self._attempt(connections, pb.PutRequest(key=b"k3", value=endpoint.encode()))
            return call.response is not None

        wait_for(is_done, f"a write through {endpoint}")
        connections.close()

    def _leases_left(self, connections: Connections) -> int | None:
        _, client = connections.current()
        try:
            told = client.call(rpc.LEASE_LEASES, pb.LeaseLeasesRequest(), self.call_s)
        except grpc.RpcError:
            connections.next()
            return None
        return len(told.leases)

    # What tests ask.

    def avoid(self, member: Member) -> None:
        """Let all clients go on elsewhere, and wait until no call is under way at a member."""
        with self.history.lock:
            self.avoided = frozenset({member.endpoint})
        wait_for(lambda: self._busy[member.endpoint] == 0, "calls at a member end")

    def acknowledged(self) -> int:
        """Return how many writes were acknowledged so far."""
        with self.history.lock:
            return len(self.history.acknowledged)

    def wait_for_progress(self, writes: int = 20, timeout_s: float = 30.0) -> None:
        """Wait until so many more writes are acknowledged."""
        before = self.acknowledged()
        assert not self.surprises, self.surprises
        try:
            wait_for(lambda: self.acknowledged() >= before + writes, "more writes", timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.errors}, {self.surprises}") from None

    def check(self, *, is_mixed: bool = False) -> None:
        """Check the history, and that all members hold what it makes; compacts in the end.

        is_mixed: until that last compaction hashes may differ, as etcd 3.5 keeps a tombstone at
        the compacted revision.
        """
        everything = self.history.watchers[0]
        events = [event for _, events in everything.responses for event in events]
        model = Checker(self.history, events, MIN_TTL_S).check()
        for member in self.cluster.members:
            _check_member(member, model, events)
        hashes = self.cluster.hashes()
        assert is_mixed or len(set(hashes.values())) == 1, hashes
        last = model.revision - 1  # a put
        with Client(self.cluster.members[0].endpoint) as client:
            client.call(rpc.COMPACT, pb.CompactionRequest(revision=last))

        def are_compacted() -> bool:
            hashes.update(self.cluster.hashes())
            return {compacted for _, compacted in hashes.values()} == {last}

        wait_for(are_compacted, "the compaction")
        assert len(set(hashes.values())) == 1, hashes
        wanted = model.hash_kv(model.revision, last)
        assert {hashed for hashed, _ in hashes.values()} <= wanted, f"{hashes}, not {wanted}"


def _check_member(member: Member, model: StoreModel, events: list[Any]) -> None:
    with Client(member.endpoint) as client:
        found = client.range()
        assert found.header.revision == model.revision, member.name
        final = model.live(b"\0", b"\0", model.revision)
        assert list(found.kvs) == final, f"{member.name} holds {found} instead of {final}"
        compacted = max(0, client.hash_kv().compact_revision)
        mine = client.history(compacted + 1, model.revision)
        must = [event for event in events if event.kv.mod_revision > compacted]
        for at, (own, right) in enumerate(zip_longest(mine, must)):
            assert own == right, f"{member.name} has {own} as event {at} instead of {right}"


class _Silence:
    """Ends a stream that says nothing for a while: its member may be stopped or cut off."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._timer: threading.Timer | None = None
        self.broken()

    def broken(self) -> None:
        """Note that something came."""
        self.end()
        self._timer = threading.Timer(SILENCE_S, self._stream.cancel)
        self._timer.daemon = True
        self._timer.start()

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def _key(rng: random.Random) -> bytes:
    return b"k%d" % rng.randrange(KEYS)


def _value(rng: random.Random) -> bytes:
    """Return a value nobody else writes."""
    return b"%d" % rng.getrandbits(64) + b"." * rng.choice([0, 0, 300])


def _compare(rng: random.Random) -> pb.Compare:
    target = rng.choice(["version", "create_revision", "mod_revision"])
    number = {"version": pb.Compare.VERSION, "create_revision": pb.Compare.CREATE}
    compare = pb.Compare(
        key=_key(rng),
        target=number.get(target, pb.Compare.MOD),
        result=rng.choice([pb.Compare.EQUAL, pb.Compare.GREATER, pb.Compare.LESS]),
    )
    setattr(compare, target, rng.choice([0, 1, 5, 100]))
    if rng.random() < 0.2:
        compare.range_end = b"l"
    return compare


def _txn(rng: random.Random, depth: int) -> pb.TxnRequest:
    """Return a transaction that puts once at least whichever way it goes, keys all different."""
    keys = [b"k%d" % number for number in range(KEYS)]
    rng.shuffle(keys)
    return _branches(rng, depth, keys)


def _branches(rng: random.Random, depth: int, keys: list[bytes]) -> pb.TxnRequest:
    mine, rest = keys[:2], keys[2:]
    return pb.TxnRequest(
        compare=[_compare(rng) for _ in range(rng.randrange(3))],
        success=_ops(rng, depth, mine, rest),
        failure=_ops(rng, depth, mine, rest),
    )


def _ops(rng: random.Random, depth: int, mine: list[bytes], rest: list[bytes]) -> list[Any]:
    prev_kv = rng.random() < 0.5
    put = pb.PutRequest(key=mine[0], value=_value(rng), prev_kv=prev_kv)
    ops = [pb.RequestOp(request_put=put)]
    if rng.random() < 0.4:
        delete = pb.DeleteRangeRequest(key=mine[1], prev_kv=prev_kv)
        ops.append(pb.RequestOp(request_delete_range=delete))
    if rng.random() < 0.4:
        ops.append(pb.RequestOp(request_range=pb.RangeRequest(key=b"k", range_end=b"l")))
    if depth and len(rest) >= 2 and rng.random() < 0.4:
        ops.append(pb.RequestOp(request_txn=_branches(rng, depth - 1, rest)))
    return ops
