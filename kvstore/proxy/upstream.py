"""The cluster behind the proxy: calls and streams to whichever endpoint is up, bytes as they are.

    call(method, body) ──► next endpoint that is connected ──► answer, or why not
                                └─ not reached: the next one, and once around again after a pause

A call that only reads is tried again after any UNAVAILABLE; one that may have written only if it
was certainly never sent. A stream is opened on one endpoint; that it breaks is its user's business.
Bodies are not looked at here.
"""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Sequence
from typing import Final, TypeAlias

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its C core writes plain text into our JSON log

import grpc
import grpc.aio

from kvstore.batch import Metadata
from kvstore.errors import Code, ConfigError
from kvstore.logger import Logger
from kvstore.runtime.local_client import CallRefusedError
from kvstore.transport.grpcio.dial import DialTls, Option, dial_plan
from kvstore.wire import rpc
from kvstore.wire.rpc import METHODS

ROUNDS_MAX: Final = 100  # once around all endpoints each, as etcd's client
_PAUSE_S: Final = 0.025
_JITTER: Final = 0.5
# grpcio's words for: no connection, so nothing was sent.
_NOT_SENT: Final = ("failed to connect to all addresses", "connections to all backends failing")
_NO_NAME: Final = ("DNS resolution failed", "Could not contact DNS servers", "empty address list")
_READS: Final = frozenset(
    {
        rpc.RANGE, rpc.LEASE_GRANT, rpc.LEASE_REVOKE, rpc.LEASE_TIME_TO_LIVE, rpc.LEASE_LEASES,
        rpc.MEMBER_LIST, rpc.STATUS, rpc.HASH, rpc.HASH_KV, rpc.AUTH_STATUS, rpc.AUTHENTICATE,
        rpc.AUTH_USER_GET, rpc.AUTH_USER_LIST, rpc.AUTH_ROLE_GET, rpc.AUTH_ROLE_LIST,
        rpc.ELECTION_LEADER, rpc.MOVE_LEADER,
    }
)  # fmt: skip
_CODES: Final = {status: Code(status.value[0]) for status in grpc.StatusCode}
_BACKOFF_OPTIONS: Final[tuple[Option, ...]] = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5000),  # also the time a connection may take
    ("grpc.max_reconnect_backoff_ms", 3000),
    ("grpc.enable_http_proxy", 0),
)

_Unary: TypeAlias = "grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]"
_Stream: TypeAlias = "grpc.aio.StreamStreamMultiCallable[bytes, bytes]"
_ServerStream: TypeAlias = "grpc.aio.UnaryStreamMultiCallable[bytes, bytes]"
BidiCall: TypeAlias = "grpc.aio.StreamStreamCall[bytes, bytes]"


class _Endpoint:
    """One server, and the channel to it once there is one."""

    def __init__(self, address: str) -> None:
        self.address: Final = address
        self.channel: grpc.aio.Channel | None = None

    @property
    def state(self) -> grpc.ChannelConnectivity:
        if self.channel is None:
            return grpc.ChannelConnectivity.IDLE
        return self.channel.get_state(try_to_connect=True)


class Upstream:
    """All endpoints; use it on one loop."""

    def __init__(
        self, addresses: Sequence[str], tls: DialTls, options: Sequence[Option], logger: Logger
    ) -> None:
        """Dial nobody yet; options are grpcio's, for every channel."""
        self._endpoints = [_Endpoint(each) for each in addresses]
        self._tls: Final = tls
        self._options: Final = (*_BACKOFF_OPTIONS, *options)
        given = dict(self._options).get("grpc.max_send_message_length", -1)
        self._send_bytes_max: Final = int(given)
        self._logger = logger
        self._turn = random.SystemRandom().randrange(len(addresses))

    @property
    def addresses(self) -> list[str]:
        """The endpoints as they are now."""
        return [each.address for each in self._endpoints]

    async def connect(self) -> None:
        """Begin to connect to every endpoint."""
        for each in list(self._endpoints):
            try:
                await self._channel(each)
            except CallRefusedError as error:
                self._logger.warning("cannot connect yet", endpoint=each.address, error=error.text)

    async def replace(self, addresses: Sequence[str]) -> None:
        """Go on with other endpoints; those that stay keep their connections."""
        known = {each.address: each for each in self._endpoints}
        gone = [each for each in self._endpoints if each.address not in addresses]
        self._endpoints = [known.get(each) or _Endpoint(each) for each in addresses]
        for each in gone:
            if each.channel is not None:
                await each.channel.close()
        await self.connect()

    async def close(self) -> None:
        """End all connections and what runs on them."""
        for each in self._endpoints:
            if each.channel is not None:
                await each.channel.close()

    async def call(self, method: int, body: bytes, metadata: Metadata | None = None) -> bytes:
        """Return the answer to a unary call; CallRefusedError as the cluster or the way said no."""
        if 0 <= self._send_bytes_max < len(body):
            sizes = f"({len(body)} vs. {self._send_bytes_max})"
            raise CallRefusedError(
                Code.RESOURCE_EXHAUSTED, f"trying to send message larger than max {sizes}"
            )
        last = CallRefusedError(Code.UNAVAILABLE, "there is no endpoint")
        for _ in range(ROUNDS_MAX):
            for _ in self._endpoints:
                endpoint = self._next()
                try:
                    ask: _Unary = (await self._channel(endpoint)).unary_unary(METHODS[method].path)
                    return await ask(body, metadata=_pairs(metadata))
                except grpc.aio.AioRpcError as error:
                    last = _refused(error)
                    if not _may_repeat(method, last):
                        raise last from None
                except CallRefusedError as error:
                    last = error
                await self._drop_unverified(endpoint)
            await asyncio.sleep(_PAUSE_S * (1 + _JITTER * random.SystemRandom().uniform(-1, 1)))
        raise last

    async def server_stream(
        self, method: int, body: bytes, metadata: Metadata | None = None
    ) -> AsyncIterator[bytes]:
        """Yield the answers to a call that has many; CallRefusedError if it ends otherwise.

        It goes to another endpoint only if it certainly was not sent.
        """
        for tries_left in reversed(range(len(self._endpoints))):
            channel = await self._channel(self._next())
            ask: _ServerStream = channel.unary_stream(METHODS[method].path)
            call = ask(body, metadata=_pairs(metadata))
            try:
                async for message in call:
                    yield message
            except grpc.aio.AioRpcError as error:
                refused = _refused(error)
                if tries_left and _was_not_sent(refused):
                    continue
                raise refused from None
            else:
                return
            finally:
                call.cancel()

    async def open(self, method: int, metadata: Metadata | None = None) -> "UpstreamStream":
        """Open a stream both ways on one endpoint; CallRefusedError if it cannot be dialled."""
        endpoint = self._next()
        ask: _Stream = (await self._channel(endpoint)).stream_stream(METHODS[method].path)
        return UpstreamStream(ask(metadata=_pairs(metadata)))

    def _next(self) -> _Endpoint:
        """Return the next endpoint that is connected, or else the next that may be."""
        endpoints = self._endpoints
        self._turn += 1
        states = [each.state for each in endpoints]
        count = len(endpoints)
        order = [(self._turn + at) % count for at in range(count)]
        for wanted in (
            (grpc.ChannelConnectivity.READY,),
            (grpc.ChannelConnectivity.IDLE, grpc.ChannelConnectivity.CONNECTING),
        ):
            for at in order:
                if states[at] in wanted:
                    return endpoints[at]
        return endpoints[order[0]]

    async def _channel(self, endpoint: _Endpoint) -> grpc.aio.Channel:
        if endpoint.channel is not None:
            return endpoint.channel
        try:
            if self._tls.is_unverified:
                plan = await asyncio.to_thread(dial_plan, endpoint.address, self._tls)
            else:
                plan = dial_plan(endpoint.address, self._tls)
        except (OSError, ConfigError) as error:
            raise CallRefusedError(Code.UNAVAILABLE, f"{endpoint.address}: {error}") from None
        if endpoint.channel is None:
            options = (*plan.options, *self._options)
            if plan.credentials is None:
                endpoint.channel = grpc.aio.insecure_channel(plan.target, options)
            else:
                endpoint.channel = grpc.aio.secure_channel(plan.target, plan.credentials, options)
            endpoint.channel.get_state(try_to_connect=True)
        return endpoint.channel

    async def _drop_unverified(self, endpoint: _Endpoint) -> None:
        """Have a certificate that is trusted as it was shown fetched again."""
        if self._tls.is_unverified and endpoint.channel is not None:
            channel, endpoint.channel = endpoint.channel, None
            await channel.close()


class UpstreamStream:
    """One open stream; iterate over its answers, cancel it when done."""

    def __init__(self, call: BidiCall) -> None:
        self._call = call

    async def send(self, message: bytes) -> None:
        """Send one message; CallRefusedError if the stream is over."""
        try:
            await self._call.write(message)
        except grpc.aio.AioRpcError as error:
            raise _refused(error) from None
        except asyncio.InvalidStateError:
            code = await self._call.code()
            raise CallRefusedError(_CODES[code], await self._call.details()) from None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the answers; CallRefusedError if it ends otherwise than in peace."""
        try:
            async for message in self._call:
                yield message
        except grpc.aio.AioRpcError as error:
            raise _refused(error) from None

    def cancel(self) -> None:
        """End it."""
        self._call.cancel()


def _pairs(metadata: Metadata | None) -> tuple[tuple[str, str], ...] | None:
    if not metadata:
        return None
    return tuple((key, metadata[key]) for key in FORWARDED if key in metadata)


FORWARDED: Final = ("token", "authorization", "hasleader", "client-api-version")


def _refused(error: grpc.aio.AioRpcError) -> CallRefusedError:
    return CallRefusedError(_CODES[error.code()], error.details() or "")


def _may_repeat(method: int, refused: CallRefusedError) -> bool:
    if refused.code != Code.UNAVAILABLE:
        return False
    return method in _READS or _was_not_sent(refused)


def _was_not_sent(refused: CallRefusedError) -> bool:
    return refused.code == Code.UNAVAILABLE and refused.text.startswith((*_NOT_SENT, *_NO_NAME))


def is_passing(refused: CallRefusedError) -> bool:
    """Tell whether a stream that ended so is worth opening again, as etcd's client does."""
    return refused.code in {Code.UNAVAILABLE, Code.INTERNAL}
