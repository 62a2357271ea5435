"""A plain gRPC client of one server for tests: messages or raw bytes, one call at a time.

with Client(server.endpoint) as client:
    response = client.call(rpc.PUT, pb.PutRequest(key=b"k", value=b"v"))
    code, text = client.refused(rpc.PUT, b"not a message")
"""

import queue
from collections.abc import Iterator, Sequence
from typing import Any, Self

import grpc
from google.protobuf.message import Message

from kvstore.wire import rpc
from kvstore.wire.gen import health_pb2
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support import raw_grpc

Metadata = Sequence[tuple[str, str]]

TIMEOUT_S = 20.0
OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),  # a connection of its own
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
]


class Client:
    """One connection."""

    def __init__(self, endpoint: str, options: Sequence[tuple[str, int]] = ()) -> None:
        self.channel = grpc.insecure_channel(endpoint, options=[*OPTIONS, *options])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()

    def raw(self, path: str, body: bytes, timeout_s: float = TIMEOUT_S) -> bytes:
        """Send bytes to a unary method by its path; grpc.RpcError if it is refused."""
        return raw_grpc.unary(self.channel, path)(body, timeout=timeout_s)

    def call(self, method: int, request: Message, timeout_s: float = TIMEOUT_S) -> Any:
        """Make a unary call; grpc.RpcError if it is refused."""
        found = rpc.METHODS[method]
        return found.response.FromString(
            self.raw(found.path, request.SerializeToString(), timeout_s)
        )

    def refused(self, method: int, request: Message | bytes) -> tuple[int, str]:
        """Make a unary call that must be refused; return the code and the text."""
        body = request if isinstance(request, bytes) else request.SerializeToString()
        return self.refused_path(rpc.METHODS[method].path, body)

    def refused_path(self, path: str, body: bytes) -> tuple[int, str]:
        """Send bytes to a unary method by its path; return the code and the text."""
        try:
            self.raw(path, body)
        except grpc.RpcError as error:
            return status(error)
        raise AssertionError(f"{path} accepted {body[:100]!r}")

    def put(self, key: bytes, value: bytes, lease: int = 0) -> int:
        """Put; return the revision."""
        request = pb.PutRequest(key=key, value=value, lease=lease)
        return self.call(rpc.PUT, request).header.revision

    def range(self, key: bytes = b"\0", end: bytes = b"\0", revision: int = 0) -> Any:
        """Read keys; all of them by default."""
        return self.call(rpc.RANGE, pb.RangeRequest(key=key, range_end=end, revision=revision))

    def hash_kv(self, revision: int = 0) -> Any:
        """Return a HashKVResponse."""
        return self.call(rpc.HASH_KV, pb.HashKVRequest(revision=revision))

    def stream(
        self, method: int, *requests: Message | bytes, metadata: Metadata | None = None
    ) -> "Stream":
        """Open a stream of messages and send the first ones."""
        stream = Stream(self.channel, rpc.METHODS[method], metadata)
        for request in requests:
            stream.send(request)
        return stream

    def server_stream(self, method: int, body: bytes) -> Iterator[bytes]:
        """Make a call with a stream of responses."""
        return iter(
            raw_grpc.unary_stream(self.channel, rpc.METHODS[method].path)(body, timeout=TIMEOUT_S)
        )

    def history(self, first: int, last: int) -> list[Any]:
        """Return the events of all keys from revision first to last, by a watch."""
        if last < first:
            return []
        create = pb.WatchCreateRequest(key=b"\0", range_end=b"\0", start_revision=first)
        events: list[Any] = []
        stream = self.stream(rpc.WATCH, pb.WatchRequest(create_request=create))
        for response in stream:
            if response.canceled:
                raise AssertionError(f"canceled: {response}")
            events += response.events
            if events and events[-1].kv.mod_revision >= last:
                break
        stream.cancel()
        return events

    def is_alive(self) -> bool:
        """Tell whether the server says that it serves, and takes a put and gives it back."""
        check = self.call(rpc.HEALTH_CHECK, health_pb2.HealthCheckRequest())
        revision = self.put(b"alive", b"yes")
        found = self.range(b"alive", b"")
        return bool(check.status == 1 and found.kvs[0].mod_revision >= revision)


class Stream:
    """One bidirectional stream; iterate over it for the responses."""

    def __init__(
        self, channel: grpc.Channel, method: rpc.Method, metadata: Metadata | None = None
    ) -> None:
        self._method = method
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        open_stream = raw_grpc.stream(channel, method.path)
        self._call: Any = open_stream(
            iter(self._outgoing.get, None), metadata=None if metadata is None else tuple(metadata)
        )

    def send(self, request: Message | bytes) -> None:
        """Send one message."""
        body = request if isinstance(request, bytes) else request.SerializeToString()
        self._outgoing.put(body)

    def half_close(self) -> None:
        """Say that no more messages come."""
        self._outgoing.put(None)

    def __iter__(self) -> Iterator[Any]:
        for body in self._call:
            yield self._method.response.FromString(body)

    def receive(self) -> Any:
        """Return the next response; grpc.RpcError if the stream ended with an error."""
        return self._method.response.FromString(next(self._call))

    def end(self) -> tuple[int, str]:
        """Read to the end of a stream that is refused; return the code and the text."""
        try:
            for _ in self._call:
                pass
        except grpc.RpcError as error:
            return status(error)
        return (0, "")

    def cancel(self) -> None:
        """End the call from this side."""
        self._call.cancel()
        self._outgoing.put(None)


def status(error: grpc.RpcError) -> tuple[int, str]:
    """Return the code and the text of a failed call."""
    return error.code().value[0], error.details() or ""
