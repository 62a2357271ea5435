"""The cluster behind the proxy: calls and streams to the endpoints that can be reached.

    call(method, body) ──► the next connected endpoint ──► response or error
                                └─ not reached, or UNAVAILABLE: the next one, after a pause

A call that only reads is repeated after any UNAVAILABLE; one that may write is repeated only if it
was certainly not sent. A stream is opened on one endpoint; its user handles a break. Bodies are
passed unchanged. Connections are those of a channel of `kvstore.client`.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Final

from kvstack.component.errors import ConfigError
from kvstack.component.logger import Logger
from kvstore.batch import Metadata
from kvstore.client import ClientOptions
from kvstore.client.caller import REPEATABLE
from kvstore.client.channel import Metadata as Pairs
from kvstore.client.codec.messages import Messages
from kvstore.client.connect import open_channel, parse_endpoints
from kvstore.client.errors import CallFailedError
from kvstore.errors import Code
from kvstore.runtime.local_client import CallRefusedError

NO_METADATA: Final[Metadata] = {}
FORWARDED: Final = ("token", "authorization", "hasleader", "client-api-version")
RETRY_S: Final = 3.0  # the time in which a call is repeated, and in which it waits for a connection
_PAUSE_S: Final = 0.025
_JITTER: Final = 0.5


class Upstream:
    """All endpoints; use it on one loop."""

    def __init__(self, addresses: Sequence[str], options: ClientOptions, logger: Logger) -> None:
        """Create the endpoints, not connected; ConfigError for invalid addresses or options."""
        self._addresses = list(addresses)
        self._options: Final = replace(options, reach_s=RETRY_S)
        self._logger = logger
        self._channel = open_channel(addresses, self._options, self._on_notice)
        self._is_started = False

    def _on_notice(self, text: str) -> None:
        self._logger.info("a connection to the cluster", notice=text)

    @property
    def addresses(self) -> list[str]:
        """The current endpoints."""
        return list(self._addresses)

    async def connect(self) -> None:
        """Start to connect to every endpoint."""
        if not self._is_started:
            self._is_started = True
            self._channel.start()

    async def replace(self, addresses: Sequence[str]) -> None:
        """Use other endpoints; those in both lists keep their connections."""
        try:
            endpoints = parse_endpoints(addresses, self._options)
        except ConfigError as error:
            self._logger.warning("these endpoints are invalid", error=str(error))
            return
        self._addresses = list(addresses)
        await self.connect()
        await self._channel.replace(endpoints)

    async def close(self) -> None:
        """Close all connections, which ends their calls and streams."""
        if self._is_started:
            await self._channel.close()

    async def call(self, method: int, body: bytes, metadata: Metadata | None = None) -> bytes:
        """Return the response to a unary call; CallRefusedError if there is none."""
        await self.connect()
        time = asyncio.get_running_loop().time
        until = time() + RETRY_S
        pairs = _pairs(metadata)
        attempts = 0
        while True:
            try:
                return await self._channel.call(method, body, None, pairs)
            except CallFailedError as failure:
                if not _may_repeat(method, failure) or time() >= until:
                    raise _refused(failure) from None
            attempts += 1
            if attempts % self._channel.endpoint_count == 0:  # every endpoint had a try
                jitter = 1 + _JITTER * random.SystemRandom().uniform(-1, 1)
                await asyncio.sleep(_PAUSE_S * jitter)

    async def server_stream(
        self, method: int, body: bytes, metadata: Metadata | None = None
    ) -> AsyncIterator[bytes]:
        """Yield the responses of a server-stream call; CallRefusedError on an error."""
        stream = await self.open(method, metadata)
        try:
            await stream.send(body)
            stream.half_close()
            async for message in stream:
                yield message
        finally:
            stream.cancel()

    async def open(self, method: int, metadata: Metadata | None = None) -> "UpstreamStream":
        """Open a bidi stream on one endpoint."""
        await self.connect()
        messages = Messages()
        messages.stream = self._channel.open(method, _pairs(metadata), messages)
        return UpstreamStream(messages)


class UpstreamStream:
    """One open stream; iterate over its responses, cancel it when done."""

    def __init__(self, messages: Messages) -> None:
        self._messages = messages

    async def send(self, message: bytes) -> None:
        """Send one message; CallRefusedError if the stream has ended."""
        messages = self._messages
        if messages.is_over:
            failure = messages.failure
            raise (
                CallRefusedError(Code.CANCELED, "the stream has ended")
                if failure is None
                else _refused(failure)
            )
        assert messages.stream is not None
        messages.stream.send(message)

    def half_close(self) -> None:
        """End the sending side."""
        assert self._messages.stream is not None
        self._messages.stream.half_close()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the responses; CallRefusedError if it ends with an error."""
        try:
            async for message in self._messages:
                yield message
        except CallFailedError as failure:
            raise _refused(failure) from None

    def cancel(self) -> None:
        """End the stream."""
        self._messages.cancel()


def credential_of(metadata: Metadata) -> str:
    """Return the token of a call; empty without one."""
    return metadata.get("token") or metadata.get("authorization") or ""


def is_transient(refused: CallRefusedError) -> bool:
    """Return whether a stream that ended with this error is opened again, as in etcd's client."""
    return refused.code in {Code.UNAVAILABLE, Code.INTERNAL}


def _pairs(metadata: Metadata | None) -> Pairs | None:
    if not metadata:
        return None
    return tuple((key, metadata[key]) for key in FORWARDED if key in metadata)


def _refused(failure: CallFailedError) -> CallRefusedError:
    return CallRefusedError(Code(failure.code), failure.text)


def _may_repeat(method: int, failure: CallFailedError) -> bool:
    if failure.code != Code.UNAVAILABLE:
        return False
    return method in REPEATABLE or not failure.was_sent
