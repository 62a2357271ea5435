"""Everything clients can see of a store, taken over the wire, to be compared as one value.

    fill(store, seed)  ─►  view(store)   data, history, leases, hashes, identity

`fill` makes a history with overwritten and deleted keys, transactions, leases and a compaction;
equal seeds make equal histories wherever they are played (leases' ids included).
"""

import random
from collections.abc import Sequence
from operator import methodcaller
from types import TracebackType
from typing import Any, NamedTuple, Self

import grpc
from google.protobuf.message import Message

from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support import raw_grpc
from tests.support.servers import Server

WHOLE = {"key": b"\0", "range_end": b"\0"}
TIMEOUT_S = 60.0
KEYS = 40
FIRST_LEASE = 7001
LEASES = 5
TTL_S = 100_000
SETTLE_TRIES = 200


class Store:
    """Calls by the numbers of the method table."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.channel = grpc.insecure_channel(
            server.endpoint, options=[("grpc.max_receive_message_length", -1)]
        )

    def call(self, method_id: int, **fields: Any) -> Any:
        """Make one unary call; raises grpc.RpcError."""
        method = rpc.METHODS[method_id]
        body = method.request(**fields).SerializeToString()
        answer = raw_grpc.unary(self.channel, method.path)(body, timeout=TIMEOUT_S)
        return method.response.FromString(answer)

    def stream(self, method_id: int, request: Message) -> Any:
        """Start a server stream."""
        method = rpc.METHODS[method_id]
        start: grpc.UnaryStreamMultiCallable[Message, Any] = self.channel.unary_stream(
            method.path, methodcaller("SerializeToString"), method.response.FromString
        )
        return start(request)

    def put(self, key: bytes, value: bytes, lease: int = 0) -> int:
        """Put a key; return the revision."""
        return int(self.call(rpc.PUT, key=key, value=value, lease=lease).header.revision)

    @property
    def revision(self) -> int:
        return int(self.call(rpc.RANGE, key=b"none").header.revision)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.channel.close()


def fill(store: Store, seed: int, *, rounds: int = 150, compact: bool = True) -> None:
    """Make a history of about two revisions a round."""
    rng = random.Random(seed)
    keys = [f"k/{number:03}".encode() for number in range(KEYS)]
    keys[0] = b"\x00"
    keys[1] = b"\xff\xff"
    for lease in range(FIRST_LEASE, FIRST_LEASE + LEASES):
        store.call(rpc.LEASE_GRANT, ID=lease, TTL=TTL_S + lease)
    for number in range(rounds):
        lease = rng.choice([0, 0, rng.randrange(FIRST_LEASE, FIRST_LEASE + LEASES)])
        store.put(rng.choice(keys), rng.randbytes(rng.randrange(200)), lease)
        chance = rng.randrange(4)
        if chance == 0:
            store.call(rpc.DELETE_RANGE, key=rng.choice(keys))
        elif chance == 1:
            first, second = rng.sample(keys, 2)
            put = pb.RequestOp(request_put=pb.PutRequest(key=first, value=b"txn"))
            gone = pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=second))
            store.call(rpc.TXN, success=[put, gone])
        if compact and number == rounds // 2:
            # The record at the compacted revision is a put: etcd 3.5 hashes a tombstone there.
            store.call(rpc.COMPACT, revision=store.put(b"compacted", b"here"), physical=True)
    store.call(rpc.LEASE_REVOKE, ID=FIRST_LEASE)


class View(NamedTuple):
    """What clients see; equal for equal stores."""

    revision: int
    compacted: int
    history: list[bytes]  # the answer to everything, at each revision that can be read
    leases: list[tuple[int, int, tuple[bytes, ...]]]  # (id, granted TTL, keys)
    hashes: list[tuple[int, int, int]]  # (revision, hash, compact revision)
    alarms: list[bytes]


def view(store: Store) -> View:
    """Look at everything; not at the hash of the compacted revision, which etcd 3.5 refuses."""
    revision = store.revision
    compacted = _compacted(store)
    first = max(compacted, 1)
    return View(
        revision,
        compacted,
        [_everything(store, at) for at in range(first, revision + 1)],
        _leases(store),
        _hashes(store, range(first + 1, revision + 1, 7)),
        sorted(alarm.SerializeToString() for alarm in store.call(rpc.ALARM).alarms),
    )


def _everything(store: Store, revision: int) -> bytes:
    answer = store.call(rpc.RANGE, **WHOLE, revision=revision)
    answer.ClearField("header")
    return bytes(answer.SerializeToString(deterministic=True))


def _compacted(store: Store) -> int:
    """Find the oldest revision that can be read, or 0 if all can."""
    low, high = 0, store.revision
    while low < high:
        middle = (low + high) // 2
        try:
            store.call(rpc.RANGE, key=b"none", revision=max(middle, 1))
        except grpc.RpcError as error:
            assert error.code() is grpc.StatusCode.OUT_OF_RANGE, error  # noqa: PT017
            low = middle + 1
        else:
            high = middle
    return low


def _leases(store: Store) -> list[tuple[int, int, tuple[bytes, ...]]]:
    found = []
    for status in store.call(rpc.LEASE_LEASES).leases:
        lease = store.call(rpc.LEASE_TIME_TO_LIVE, ID=status.ID, keys=True)
        assert 0 < lease.TTL <= lease.grantedTTL
        found.append((lease.ID, lease.grantedTTL, tuple(sorted(lease.keys))))
    return sorted(found)


def _hashes(store: Store, revisions: Sequence[int]) -> list[tuple[int, int, int]]:
    found = []
    for revision in [*revisions, 0]:
        answer = store.call(rpc.HASH_KV, revision=revision)
        found.append((revision, answer.hash, answer.compact_revision))
    return found


def member(store: Store) -> tuple[int, int, str, tuple[str, ...]]:
    """Return (cluster id, member id, name, peer URLs) of a lone member."""
    answer = store.call(rpc.MEMBER_LIST)
    (only,) = answer.members
    assert answer.header.member_id == only.ID
    return answer.header.cluster_id, only.ID, only.name, tuple(only.peerURLs)
