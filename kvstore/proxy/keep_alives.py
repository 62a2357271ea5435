"""The LeaseKeepAlive service of the proxy: one stream to the cluster for each token.

    client streams ── lease 7, 7, 9 ──► in flight: 7, 9 ──► one stream to the cluster
                   ◄── one answer for 7, to both streams

A keep-alive for a lease that is in flight waits for that answer. When the stream breaks it is
opened again and what is in flight is sent again; clients see only the delay. An error that a retry
cannot cure ends the clients' streams with the cluster's code and text.
"""

import asyncio
from typing import Final

from kvstack.component.logger import Logger
from kvstore.batch import Metadata
from kvstore.errors import NO_LEADER, Code
from kvstore.proxy.backoff import Backoff
from kvstore.proxy.client_streams import ClientStream
from kvstore.proxy.links import Links
from kvstore.proxy.upstream import Upstream, UpstreamStream, is_transient
from kvstore.runtime.local_client import CallRefusedError
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb

LEASES_MAX: Final = 1 << 20  # in flight
WAITING_MAX: Final = 4096  # streams that wait for the answer of one lease


class KeepAliveService:
    """Serves LeaseKeepAlive."""

    def __init__(self, upstream: Upstream, logger: Logger) -> None:
        self._links = Links(
            lambda metadata: _KeepAliveLink(upstream, metadata, logger), "keep-alive link", logger
        )

    async def serve(self, stream: ClientStream) -> None:
        """Serve a stream until the client goes away, which cancels, or the cluster ends it."""
        link = self._links.get(stream.metadata)
        link.streams[stream] = None
        try:
            async for frame in stream:
                link.renew(pb.LeaseKeepAliveRequest.FromString(frame).ID, stream)
        finally:
            link.forget(stream)
            self._links.release(link)

    async def close(self) -> None:
        """End every link."""
        await self._links.close()


class _KeepAliveLink:
    """The stream to the cluster for one token."""

    def __init__(self, upstream: Upstream, metadata: Metadata, logger: Logger) -> None:
        self._upstream = upstream
        self._metadata = metadata
        self._logger = logger
        self._in_flight: dict[int, list[ClientStream]] = {}  # lease → a stream for each keep-alive
        self._unsent: list[int] = []
        self._changed = asyncio.Event()
        self.streams: dict[ClientStream, None] = {}

    @property
    def is_idle(self) -> bool:
        """Whether no client uses it."""
        return not self.streams

    def renew(self, lease_id: int, stream: ClientStream) -> None:
        """Send a keep-alive for a stream."""
        waiting = self._in_flight.get(lease_id)
        if waiting is None:
            waiting = self._in_flight[lease_id] = []
        if len(waiting) >= WAITING_MAX or len(self._in_flight) > LEASES_MAX:
            text = f"too many keep-alives (limits {WAITING_MAX} a lease, {LEASES_MAX} leases)"
            stream.fail(CallRefusedError(Code.RESOURCE_EXHAUSTED, text))
            return
        waiting.append(stream)
        if len(waiting) == 1:
            self._unsent.append(lease_id)
            self._changed.set()

    def forget(self, stream: ClientStream) -> None:
        """Stop sending answers to a stream."""
        self.streams.pop(stream, None)
        for waiting in self._in_flight.values():
            waiting[:] = [each for each in waiting if each is not stream]

    async def run(self) -> None:
        """Keep the stream open until cancelled, or until the cluster refuses it."""
        try:
            failure = await self._run_until_refused()
        except Exception as error:  # noqa: BLE001 - logged, and an error for the streams
            self._logger.error("a keep-alive link failed", error=repr(error))
            failure = CallRefusedError(Code.INTERNAL, "internal error")
        for stream in list(self.streams):
            stream.fail(failure)

    async def _run_until_refused(self) -> CallRefusedError:
        backoff = Backoff()
        while True:
            try:
                async with asyncio.TaskGroup() as group:
                    stream = await self._upstream.open(rpc.LEASE_KEEP_ALIVE, self._metadata)
                    self._unsent = list(self._in_flight)
                    sending = group.create_task(self._send(stream))
                    try:
                        async for message in stream:
                            backoff.reset()
                            self._answer(message)
                    finally:
                        stream.cancel()
                        sending.cancel()
                failure = CallRefusedError(*NO_LEADER)  # the server ended it without an error
            except* CallRefusedError as errors:
                failure = _first(errors)
            if not is_transient(failure) or (
                "hasleader" in self._metadata and failure.text == NO_LEADER.text
            ):
                return failure
            self._logger.debug("a keep-alive stream broke", error=failure.text)
            await backoff.wait()

    async def _send(self, stream: UpstreamStream) -> None:
        while True:
            unsent, self._unsent = self._unsent, []
            for lease_id in unsent:
                await stream.send(pb.LeaseKeepAliveRequest(ID=lease_id).SerializeToString())
            if not self._unsent:
                self._changed.clear()
                await self._changed.wait()

    def _answer(self, message: bytes) -> None:
        lease_id = pb.LeaseKeepAliveResponse.FromString(message).ID
        for stream in self._in_flight.pop(lease_id, ()):
            stream.send(message)


def _first(errors: BaseExceptionGroup[CallRefusedError]) -> CallRefusedError:
    found = errors.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found
