"""A channel that answers as a test says, without any IO.

channel = FakeChannel()
channel.replies = [CallFailedError(14, "away", False), b"reply"]     for calls, in order
stream = channel.streams[0]; stream.sent; stream.tell(message); stream.break_off(failure)
"""

import asyncio
from collections.abc import Sequence

from kvstore.client.channel import ChannelStream, Metadata, Sink
from kvstore.client.endpoints import Endpoint
from kvstore.client.errors import CallFailedError
from kvstore.wire.gen import rpc_pb2 as pb


class FakeStream:
    """One open stream."""

    def __init__(self, method: int, metadata: Metadata | None, sink: Sink) -> None:
        self.method = method
        self.metadata = metadata
        self._sink = sink
        self.sent: list[bytes] = []
        self.done_bytes = 0
        self.is_over = False
        self.is_cancelled = False

    def send(self, message: bytes) -> None:
        assert not self.is_over
        self.sent.append(message)

    def half_close(self) -> None:
        pass

    def done_with(self, message_bytes: int) -> None:
        self.done_bytes += message_bytes

    def cancel(self) -> None:
        self.is_over = self.is_cancelled = True

    # For tests.

    def requests(self) -> list[pb.WatchRequest]:
        """Return what was sent since the last time, as WatchRequests."""
        sent, self.sent = self.sent, []
        return [pb.WatchRequest.FromString(each) for each in sent]

    def tell(self, head: bytes, tail: bytes = b"") -> None:
        if not self.is_over:
            self._sink.on_message(head, tail)

    def break_off(self, failure: CallFailedError | None) -> None:
        if not self.is_over:
            self.is_over = True
            self._sink.on_end(failure)


class FakeChannel:
    """A Channel."""

    def __init__(self, endpoints: int = 1) -> None:
        self.replies: list[bytes | CallFailedError] = []
        self.calls: list[tuple[int, bytes, Metadata | None]] = []
        self.streams: list[FakeStream] = []
        self._endpoints = endpoints
        self._opened = asyncio.Event()

    def start(self) -> None:
        pass

    async def call(
        self, method: int, body: bytes, limit_s: float | None, metadata: Metadata | None
    ) -> bytes:
        assert limit_s is None or limit_s > 0
        self.calls.append((method, body, metadata))
        reply = self.replies.pop(0)
        if isinstance(reply, CallFailedError):
            raise reply
        return reply

    def open(self, method: int, metadata: Metadata | None, sink: Sink) -> ChannelStream:
        self.streams.append(FakeStream(method, metadata, sink))
        self._opened.set()
        return self.streams[-1]

    async def opened(self, count: int) -> None:
        """Wait until so many streams have been opened."""
        while len(self.streams) < count:
            self._opened.clear()
            await self._opened.wait()

    def local_revision(self) -> int | None:
        return None

    @property
    def endpoint_count(self) -> int:
        return self._endpoints

    async def replace(self, endpoints: Sequence[Endpoint]) -> None:
        self._endpoints = len(endpoints)

    async def close(self) -> None:
        pass
