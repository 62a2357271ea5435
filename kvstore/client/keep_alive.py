"""Keeping leases alive: one stream for all of a client's, and a loop for one lease.

    once(lease 7) ─┐                        ┌─► ttl of 7
    once(lease 9) ─┴─► stream ──► server ───┴─► ttl of 9      answers come per lease in order

The stream is opened for the first lease and stays open. When it breaks, or an answer is late,
all waiting calls fail, and the next call opens another stream, maybe to another endpoint.
"""

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from kvstore.client.channel import Channel, ChannelStream
from kvstore.client.codec.decode import parse
from kvstore.client.errors import (
    CallFailedError,
    LeaseNotFoundError,
    OutcomeUnknownError,
    StoreTimeoutError,
    UnavailableError,
)
from kvstore.client.tokens import Tokens
from kvstore.client.values import LeaseResult
from kvstore.errors import LEASE_NOT_FOUND, Code
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.varint import WireError

if TYPE_CHECKING:
    from kvstore.client.store import Store

_RENEWALS: Final = 3  # renewals in the TTL of a lease
_RETRY_S: Final = 0.5
_ATTEMPT_MIN_S: Final = 1.0

_Waiting = deque[asyncio.Future[LeaseResult]]


class KeepAlives:
    """The stream of one client; a sink of its messages."""

    def __init__(self, channel: Channel, tokens: Tokens) -> None:
        self._channel = channel
        self._tokens = tokens
        self._stream: _OneStream | None = None

    async def once(self, lease: int, limit_s: float) -> LeaseResult:
        """Renew a lease; CallFailedError or LeaseNotFoundError if that is not possible.

        After half of the time without an answer the attempt fails: the next one has the rest.
        """
        limit_s = max(limit_s / 2, min(limit_s, _ATTEMPT_MIN_S))
        stream = self._stream
        if stream is None or stream.is_over:
            stream = self._stream = _OneStream()
            stream.begin(self._channel.open(rpc.LEASE_KEEP_ALIVE, self._tokens.metadata, stream))
        try:
            async with asyncio.timeout(limit_s):
                result = await stream.ask(lease)
        except TimeoutError:
            text = f"no answer to a keep-alive within {limit_s:.3g} s"
            failure = CallFailedError(Code.UNAVAILABLE, text, True)
            stream.give_up(failure)
            raise failure from None
        if result.ttl_s <= 0:
            raise LeaseNotFoundError(LEASE_NOT_FOUND.text, Code.NOT_FOUND)
        return result

    def close(self) -> None:
        """End the stream."""
        if self._stream is not None:
            self._stream.give_up(CallFailedError(Code.CANCELED, "closed", False))


class _OneStream:
    """One stream and the calls that wait for its answers."""

    def __init__(self) -> None:
        self._waiting: dict[int, _Waiting] = {}
        self._stream: ChannelStream | None = None
        self.is_over = False

    def begin(self, stream: ChannelStream) -> None:
        self._stream = stream

    async def ask(self, lease: int) -> LeaseResult:
        assert self._stream is not None
        future: asyncio.Future[LeaseResult] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(lease, deque()).append(future)
        self._stream.send(pb.LeaseKeepAliveRequest(ID=lease).SerializeToString())
        return await future

    def on_message(self, head: bytes, tail: bytes) -> None:
        """Pass an answer to the caller that has waited longest for that lease."""
        if self._stream is not None:
            self._stream.done_with(len(head) + len(tail))
        try:
            m = parse(pb.LeaseKeepAliveResponse, head + tail)
        except WireError as error:
            self.give_up(CallFailedError(Code.INTERNAL, str(error), True))
            return
        waiting = self._waiting.get(m.ID)
        if not waiting:
            return  # no call waits for it
        future = waiting.popleft()
        if not waiting:
            del self._waiting[m.ID]
        if not future.done():
            future.set_result(LeaseResult(m.header.revision, m.ID, m.TTL))

    def on_end(self, failure: CallFailedError | None) -> None:
        """Fail all waiting calls."""
        self._stream = None
        text = "the stream of keep-alives has ended"
        self.give_up(failure or CallFailedError(Code.UNAVAILABLE, text, True))

    def give_up(self, failure: CallFailedError) -> None:
        self.is_over = True
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.cancel()
        waiting, self._waiting = self._waiting, {}
        for futures in waiting.values():
            for each in futures:
                if not each.done():
                    each.set_exception(failure)


async def keep_alive(store: "Store", lease: int, ttl_s: float) -> None:
    """Keep a lease alive until cancelled; LeaseNotFoundError once it is known to have ended.

    UnavailableError if it could not be renewed within ttl_s: it may have expired.
    """
    time = asyncio.get_running_loop().time
    until = time() + ttl_s
    while True:
        await asyncio.sleep(ttl_s / _RENEWALS)
        while True:
            left_s = until - time()
            if left_s <= 0:
                raise UnavailableError(f"the lease {lease:x} was not renewed within {ttl_s} s")
            sent_at = time()
            try:
                result = await store.lease_keep_alive(lease, timeout_s=left_s)
            except (UnavailableError, StoreTimeoutError, OutcomeUnknownError):
                await asyncio.sleep(min(_RETRY_S, max(until - time(), 0)))
                continue
            until = sent_at + result.ttl_s
            break
