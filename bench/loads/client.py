"""A small client of etcd's API over grpcio: requests in, messages out, errors as grpc.RpcError.

It serves to load data and for measurements whose rate a Python client can keep up; for the highest
rates there is `bench.loads.h2`.
"""

from typing import Any, Final, Self

import grpc

from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.rpc import METHODS

TIMEOUT_S: Final = 600.0
OPTIONS: Final = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),  # else all channels of the process share a connection
]
_METHODS: Final = {(method.service, method.name): method for method in METHODS}


def unary(channel: Any, service: str, name: str) -> Any:  # noqa: ANN401  # grpcio has no types for it
    """Return the callable of a unary method: request message → response message."""
    method = _METHODS[f"etcdserverpb.{service}", name]
    return channel.unary_unary(
        method.path, method.request.SerializeToString, method.response.FromString
    )


def bidi(channel: Any, service: str, name: str) -> Any:  # noqa: ANN401
    """Return the callable of a bidirectional stream."""
    method = _METHODS[f"etcdserverpb.{service}", name]
    return channel.stream_stream(
        method.path, method.request.SerializeToString, method.response.FromString
    )


def server_stream(channel: Any, service: str, name: str) -> Any:  # noqa: ANN401
    """Return the callable of a server stream."""
    method = _METHODS[f"etcdserverpb.{service}", name]
    return channel.unary_stream(
        method.path, method.request.SerializeToString, method.response.FromString
    )


class Client:
    """One connection; close it or use it as a context."""

    def __init__(self, endpoint: str) -> None:
        self.channel = grpc.insecure_channel(endpoint, options=OPTIONS)
        self._range = unary(self.channel, "KV", "Range")
        self._put = unary(self.channel, "KV", "Put")
        self._compact = unary(self.channel, "KV", "Compact")
        self._defragment = unary(self.channel, "Maintenance", "Defragment")
        self._snapshot = server_stream(self.channel, "Maintenance", "Snapshot")
        self._status = unary(self.channel, "Maintenance", "Status")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()

    def get(self, key: bytes, *, revision: int = 0, timeout_s: float = TIMEOUT_S) -> list[bytes]:
        """Return the value of one key as a list of at most one."""
        found = self._range(pb.RangeRequest(key=key, revision=revision), timeout=timeout_s)
        return [kv.value for kv in found.kvs]

    def count(self) -> int:
        """Return the number of keys; every server walks or knows its index for that."""
        request = pb.RangeRequest(key=b"\0", range_end=b"\0", count_only=True)
        return int(self._range(request, timeout=TIMEOUT_S).count)

    def read_all(self, page_keys: int = 10_000) -> int:
        """Read every key and value in pages; return how many there were."""
        start, seen = b"\0", 0
        while True:
            request = pb.RangeRequest(key=start, range_end=b"\0", limit=page_keys)
            page = self._range(request, timeout=TIMEOUT_S)
            seen += len(page.kvs)
            if not page.more:
                return seen
            start = page.kvs[-1].key + b"\0"

    def range_all(self, *, revision: int = 0) -> int:
        """Read every key and value at a revision in one answer; return how many there were."""
        request = pb.RangeRequest(key=b"\0", range_end=b"\0", revision=revision)
        return len(self._range(request, timeout=TIMEOUT_S).kvs)

    def put(self, key: bytes, value: bytes, *, timeout_s: float = TIMEOUT_S) -> None:
        """Put one key."""
        self._put(pb.PutRequest(key=key, value=value), timeout=timeout_s)

    def compact(self, revision: int) -> None:
        """Compact; return when the rows are gone."""
        self._compact(pb.CompactionRequest(revision=revision, physical=True), timeout=TIMEOUT_S)

    def defragment(self) -> None:
        """Defragment; return when it is done."""
        self._defragment(pb.DefragmentRequest(), timeout=TIMEOUT_S)

    def snapshot(self) -> int:
        """Take a snapshot and throw it away; return its size in bytes."""
        parts = self._snapshot(pb.SnapshotRequest(), timeout=TIMEOUT_S)
        return sum(len(part.blob) for part in parts)

    def call(self, service: str, name: str, request: Any, timeout_s: float = TIMEOUT_S) -> Any:  # noqa: ANN401
        """Make any unary call."""
        return unary(self.channel, service, name)(request, timeout=timeout_s)

    def status(self, timeout_s: float = TIMEOUT_S) -> Any:  # noqa: ANN401
        """Return the member's StatusResponse."""
        return self._status(pb.StatusRequest(), timeout=timeout_s)

    def revision(self) -> int:
        """Return the current revision."""
        return int(self.status().header.revision)

    def db_sizes(self) -> tuple[int, int]:
        """Return (size, size in use) of the database in bytes."""
        status = self._status(pb.StatusRequest(), timeout=TIMEOUT_S)
        return int(status.dbSize), int(status.dbSizeInUse)
