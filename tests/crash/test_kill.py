"""kill -9 at random moments under load, round after round on one data directory.

After each: every acknowledged write is there at the revision that was told, what was seen is still
there, the revision did not go back, and the state is the one its own history makes.

KVSTORE_TEST_KILLS=n plays n rounds instead of the few, KVSTORE_TEST_SEED=n other ones.
"""

import contextlib
import os
import random
import shutil
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.node.harness import Disk, Harness
from tests.support.rpc_client import Client
from tests.support.servers import Server, ours, running

SEED = int(os.environ.get("KVSTORE_TEST_SEED", "1"))
ROUNDS = int(os.environ.get("KVSTORE_TEST_KILLS", "3"))
WRITERS = 4
KEYS = 6  # of each writer
TTL_S = 3600
FLAGS = ["--snapshot-count=150", "--snapshot-catchup-entries=50"]
BATCH = 500

Row = tuple[int, bytes] | None  # (mod revision, value)


@dataclass
class Ledger:
    """What clients know: written only by the threads that own the parts."""

    acked: dict[bytes, Row] = field(default_factory=dict)  # the last acknowledged of each key
    maybe: dict[bytes, bytes | None] = field(default_factory=dict)  # in flight when it was killed
    writes: dict[int, dict[bytes, bytes | None]] = field(default_factory=dict)  # by revision
    leases: dict[int, bool] = field(default_factory=dict)  # acknowledged: is it alive?
    leases_maybe: set[int] = field(default_factory=set)
    seen_revision: int = 1
    events: list[Any] = field(default_factory=list)  # a watcher's, up to the kill

    def note(self, revision: int) -> None:
        self.seen_revision = max(self.seen_revision, revision)


class Load:
    """Clients in threads; each ends with the first error, which is the server's death."""

    def __init__(self, server: Server, ledger: Ledger, seed: int, *, compact: bool) -> None:
        self.server = server
        self.ledger = ledger
        self.surprises: list[BaseException] = []
        jobs: list[Callable[[Client, random.Random], None]] = [
            *[self._writer(number) for number in range(WRITERS)],
            self._leases,
            self._watch,
            self._maintenance,
        ]
        if compact:
            jobs.append(self._compactor)
        self._threads = [
            threading.Thread(target=self._run, args=(job, random.Random(seed * 100 + number)))
            for number, job in enumerate(jobs)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()
        assert not self.surprises, self.surprises

    def _run(self, job: Callable[[Client, random.Random], None], rng: random.Random) -> None:
        try:
            with Client(self.server.endpoint) as client:
                while True:
                    job(client, rng)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                self.surprises.append(error)
        except BaseException as error:  # noqa: BLE001 - asserted by the test
            self.surprises.append(error)

    def _writer(self, number: int) -> Callable[[Client, random.Random], None]:
        ledger = self.ledger

        def write(client: Client, rng: random.Random) -> None:
            keys = rng.sample([b"w%d/%d" % (number, each) for each in range(KEYS)], 2)
            change: dict[bytes, bytes | None]
            kind = rng.randrange(10)
            value = rng.randbytes(rng.choice([4, 40, 4000]))
            if kind < 6:
                change = {keys[0]: value}
                request = pb.RequestOp(request_put=pb.PutRequest(key=keys[0], value=value))
                ops = [request]
            elif kind < 8:
                change = {keys[0]: value, keys[1]: None}
                delete = pb.DeleteRangeRequest(key=keys[1])
                ops = [
                    pb.RequestOp(request_put=pb.PutRequest(key=keys[0], value=value)),
                    pb.RequestOp(request_delete_range=delete),
                ]
            else:
                change = {keys[0]: None}
                delete = pb.DeleteRangeRequest(key=keys[0])
                ops = [pb.RequestOp(request_delete_range=delete)]
            ledger.maybe.update(change)
            if kind < 5:
                response = client.call(rpc.PUT, ops[0].request_put)
            elif kind > 8:
                response = client.call(rpc.DELETE_RANGE, ops[0].request_delete_range)
            else:
                response = client.call(rpc.TXN, pb.TxnRequest(success=ops))
            revision = response.header.revision
            happened = {
                key: new
                for key, new in change.items()
                if new is not None or ledger.acked.get(key) is not None
            }
            for key, new in happened.items():
                ledger.acked[key] = None if new is None else (revision, new)
            for key in change:
                del ledger.maybe[key]
            if happened:
                ledger.writes.setdefault(revision, {}).update(happened)
            ledger.note(revision)

        return write

    def _leases(self, client: Client, rng: random.Random) -> None:
        ledger = self.ledger
        alive = [lease for lease, is_alive in ledger.leases.items() if is_alive]
        if alive and rng.random() < 0.3:
            lease = rng.choice(alive)
            ledger.leases_maybe.add(lease)
            client.call(rpc.LEASE_REVOKE, pb.LeaseRevokeRequest(ID=lease))
            ledger.leases[lease] = False
        else:
            lease = rng.randrange(1, 1 << 62)
            ledger.leases_maybe.add(lease)
            client.call(rpc.LEASE_GRANT, pb.LeaseGrantRequest(ID=lease, TTL=TTL_S))
            ledger.leases[lease] = True
        ledger.leases_maybe.discard(lease)
        if ledger.leases[lease]:
            ledger.note(client.put(b"leased/%d" % (lease % 5), b"%d" % lease, lease))

    def _watch(self, client: Client, _rng: random.Random) -> None:
        create = pb.WatchCreateRequest(key=b"\0", range_end=b"\0")
        stream = client.stream(rpc.WATCH, pb.WatchRequest(create_request=create))
        try:
            for response in stream:
                assert not response.canceled, response
                self.ledger.events += response.events
        finally:
            stream.cancel()

    def _maintenance(self, client: Client, rng: random.Random) -> None:
        if rng.random() < 0.7:
            client.call(rpc.DEFRAGMENT, pb.DefragmentRequest())
        else:
            for _ in client.server_stream(rpc.SNAPSHOT, b""):
                pass
        self.ledger.note(client.hash_kv().header.revision)

    def _compactor(self, client: Client, rng: random.Random) -> None:
        revision = self.ledger.seen_revision - 30
        with contextlib.suppress(grpc.RpcError):  # compacted already, or there is no such revision
            physical = rng.random() < 0.5
            client.call(rpc.COMPACT, pb.CompactionRequest(revision=revision, physical=physical))
        client.range(b"x", b"")
        time.sleep(0.02)


def settle(ledger: Ledger, client: Client) -> None:
    """Check the state against the ledger, then record the outcome of what was in flight."""
    found = client.range()
    rows = {kv.key: (kv.mod_revision, kv.value) for kv in found.kvs}
    assert found.header.revision >= ledger.seen_revision, "the revision went back"
    for key, row in ledger.acked.items():
        now = rows.get(key)
        if now == row:
            continue
        assert key in ledger.maybe, f"{key!r} is {now}, acknowledged was {row}"
        assert (now and now[1]) == ledger.maybe[key], key
        assert now is None or now[0] > (row[0] if row else 0), key
    for key in [*ledger.acked, *ledger.maybe]:
        ledger.acked[key] = rows.get(key)
    ledger.maybe.clear()
    ledger.seen_revision = found.header.revision
    _settle_leases(ledger, client)


def _settle_leases(ledger: Ledger, client: Client) -> None:
    told = client.call(rpc.LEASE_LEASES, pb.LeaseLeasesRequest())
    now = {each.ID for each in told.leases}
    for lease, is_alive in ledger.leases.items():
        if lease not in ledger.leases_maybe:
            assert (lease in now) == is_alive, f"lease {lease}"
    assert now <= ledger.leases.keys() | ledger.leases_maybe
    ledger.leases = dict.fromkeys(now, True)
    ledger.leases_maybe.clear()
    for lease in sorted(now)[:5]:
        left = client.call(rpc.LEASE_TIME_TO_LIVE, pb.LeaseTimeToLiveRequest(ID=lease))
        assert (left.grantedTTL, TTL_S - 10 < left.TTL <= TTL_S) == (TTL_S, True)


def check_history(ledger: Ledger, events: list[Any]) -> None:
    """Every acknowledged write is in the history at its revision, and every event seen."""
    by_revision: dict[int, dict[bytes, bytes | None]] = defaultdict(dict)
    for event in events:
        gone = event.type == event.DELETE
        by_revision[event.kv.mod_revision][event.kv.key] = None if gone else event.kv.value
    first = min(by_revision, default=1 << 62)
    for revision, change in ledger.writes.items():
        assert revision < first or by_revision[revision] == change, f"revision {revision}"
    told = [event.SerializeToString() for event in events]
    known = set(told)
    for event in ledger.events:
        assert event.kv.mod_revision < first or event.SerializeToString() in known, event
    assert [each.kv.mod_revision for each in events] == sorted(
        each.kv.mod_revision for each in events
    )
    assert len(known) == len(told), "an event came twice"


def compacted_revision(client: Client) -> int:
    return max(0, client.hash_kv().compact_revision)


def replayed_hash(events: list[Any], data_dir: Path) -> tuple[int, int]:
    """Replay a whole history to a new member; return its (revision, HashKV)."""
    harness = Harness(data_dir, Disk(in_memory=True))
    leases = {event.kv.lease for event in events if event.kv.lease}
    calls: list[tuple[int, Any]] = [
        (rpc.LEASE_GRANT, pb.LeaseGrantRequest(ID=lease, TTL=TTL_S)) for lease in leases
    ]
    by_revision: dict[int, list[Any]] = defaultdict(list)
    for event in events:
        by_revision[event.kv.mod_revision].append(event)
    for revision in sorted(by_revision):
        ops = [_op(event) for event in by_revision[revision]]
        calls.append((rpc.TXN, pb.TxnRequest(success=ops)))
    for start in range(0, len(calls), BATCH):
        for call_id in harness.start(*calls[start : start + BATCH]):
            harness.wait(call_id)
    told = harness.call(rpc.HASH_KV, pb.HashKVRequest())
    harness.close()
    assert isinstance(told, pb.HashKVResponse)
    return told.header.revision, told.hash


def _op(event: Any) -> pb.RequestOp:
    kv = event.kv
    if event.type == event.DELETE:
        return pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=kv.key))
    return pb.RequestOp(
        request_put=pb.PutRequest(key=kv.key, value=kv.value, lease=kv.lease),
    )


@contextlib.contextmanager
def copied(server: Server, target: Path) -> Iterator[Server]:
    """Run a second server on a copy of the files a killed one left."""
    subprocess.run(["cp", "-r", "--sparse=always", str(server.data_dir), str(target)], check=True)
    with running(ours(target, extra=FLAGS)) as twin:
        yield twin
    shutil.rmtree(target)


@pytest.mark.slow
@pytest.mark.parametrize("compact", [False, True])
def test_kill_under_load(tmp_path: Path, compact: bool) -> None:  # noqa: FBT001
    rng = random.Random(SEED)
    server = ours(tmp_path / "data", extra=FLAGS)
    ledger = Ledger()
    with running(server):
        for turn in range(ROUNDS):
            load = Load(server, ledger, SEED * 1000 + turn, compact=compact)
            pause_s = 0.1 + rng.random() * 0.6
            print(f"seed {SEED} round {turn}: killed after {pause_s:.3f} s")  # noqa: T201
            load.start()
            time.sleep(pause_s)  # the random moment, not a wait for anything
            server.kill()
            load.join()
            with copied(server, tmp_path / "copy") as twin, Client(twin.endpoint) as other:
                server.start()
                with Client(server.endpoint) as client:
                    settle(ledger, client)
                    first = compacted_revision(client) + 1
                    events = client.history(first, ledger.seen_revision)
                    check_history(ledger, events)
                    mine, theirs = client.hash_kv(), other.hash_kv()
                    assert (mine.hash, mine.compact_revision, mine.header.revision) == (
                        theirs.hash,
                        theirs.compact_revision,
                        theirs.header.revision,
                    )
            if not compact:
                assert replayed_hash(events, tmp_path / f"replay{turn}") == (
                    ledger.seen_revision,
                    mine.hash,
                )
    assert len(ledger.writes) > 20 * ROUNDS, "there was no load"


def test_kill_while_it_starts(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    server = ours(tmp_path / "data")
    with running(server.start(wait=False)):
        for _ in range(8):
            time.sleep(rng.random() * 0.35)  # the random moment
            server.kill()
            server.start(wait=False)
        server.wait_ready()
        with Client(server.endpoint) as client:
            assert client.put(b"k", b"v") == 2
