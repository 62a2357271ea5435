"""Keep-alives of the proxy's clients, sent on over one stream for each token.

    client streams ── lease 7, 7, 9 ──► in flight: 7, 9 ──► one stream to the cluster
                   ◄── the answer of 7, to both who asked

Who asks for a lease that is being asked for waits for that answer. When the stream breaks it is
opened again and what is in flight is asked again; clients see nothing but the delay. What the
cluster refuses for good ends the clients' streams with its words.
"""

import asyncio
import random
from typing import Final

from kvstore.batch import Metadata
from kvstore.errors import NO_LEADER, Code
from kvstore.logger import Logger
from kvstore.proxy.client_streams import ClientStream
from kvstore.proxy.upstream import Upstream, UpstreamStream, is_passing
from kvstore.runtime.local_client import CallRefusedError
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb

LEASES_MAX: Final = 1 << 20  # being asked for at once
WAITING_MAX: Final = 4096  # for the answer of one lease
_PAUSE_S: Final = 0.1
_PAUSE_MAX_S: Final = 2.0
_LINK_KEYS: Final = ("token", "authorization", "hasleader")


class LeaseProxy:
    """Serves LeaseKeepAlive."""

    def __init__(self, upstream: Upstream, logger: Logger) -> None:
        self._upstream = upstream
        self._logger = logger
        self._links: dict[tuple[str, ...], tuple[_KeepAliveLink, asyncio.Task[None]]] = {}

    async def serve(self, stream: ClientStream) -> None:
        """Serve one stream until the client is gone, which cancels, or the cluster ends it."""
        key = tuple(stream.metadata.get(each, "") for each in _LINK_KEYS)
        link = self._link(key, stream.metadata)
        link.streams[stream] = None
        try:
            async for frame in stream:
                link.renew(pb.LeaseKeepAliveRequest.FromString(frame).ID, stream)
        finally:
            link.forget(stream)
            if not link.streams and self._links.get(key, (None,))[0] is link:
                self._links.pop(key)[1].cancel()

    def _link(self, key: tuple[str, ...], metadata: Metadata) -> "_KeepAliveLink":
        found = self._links.get(key)
        if found is not None and not found[1].done():
            return found[0]
        wanted = {name: metadata[name] for name in _LINK_KEYS if name in metadata}
        link = _KeepAliveLink(self._upstream, wanted, self._logger)
        self._links[key] = (link, asyncio.create_task(link.run(), name="keep-alive link"))
        return link

    async def close(self) -> None:
        """End every link."""
        tasks = [task for _, task in self._links.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _KeepAliveLink:
    """The stream to the cluster for one token."""

    def __init__(self, upstream: Upstream, metadata: Metadata, logger: Logger) -> None:
        self._upstream = upstream
        self._metadata = metadata
        self._logger = logger
        self._in_flight: dict[int, list[ClientStream]] = {}  # lease → who asked, once for each time
        self._unsent: list[int] = []
        self._changed = asyncio.Event()
        self.streams: dict[ClientStream, None] = {}

    def renew(self, lease_id: int, stream: ClientStream) -> None:
        """Ask for a lease on behalf of a stream."""
        waiting = self._in_flight.get(lease_id)
        if waiting is None:
            waiting = self._in_flight[lease_id] = []
        if len(waiting) >= WAITING_MAX or len(self._in_flight) > LEASES_MAX:
            text = f"too many keep-alives wait (limits {WAITING_MAX} a lease, {LEASES_MAX} leases)"
            stream.fail(CallRefusedError(Code.RESOURCE_EXHAUSTED, text))
            return
        waiting.append(stream)
        if len(waiting) == 1:
            self._unsent.append(lease_id)
            self._changed.set()

    def forget(self, stream: ClientStream) -> None:
        """Answer a stream no more."""
        self.streams.pop(stream, None)
        for waiting in self._in_flight.values():
            waiting[:] = [each for each in waiting if each is not stream]

    async def run(self) -> None:
        """Keep the stream open until cancelled, or the cluster refuses it for good."""
        try:
            failure = await self._until_refused()
        except Exception as error:
            self._logger.error("a keep-alive link failed", error=repr(error))
            failure = CallRefusedError(Code.INTERNAL, "internal error")
        for stream in list(self.streams):
            stream.fail(failure)

    async def _until_refused(self) -> CallRefusedError:
        pause_s = _PAUSE_S
        while True:
            try:
                async with asyncio.TaskGroup() as group:
                    stream = await self._upstream.open(rpc.LEASE_KEEP_ALIVE, self._metadata)
                    self._unsent = list(self._in_flight)
                    sending = group.create_task(self._send(stream))
                    try:
                        async for message in stream:
                            pause_s = _PAUSE_S
                            self._answer(message)
                    finally:
                        stream.cancel()
                        sending.cancel()
                failure = CallRefusedError(*NO_LEADER)  # no server ends it in peace
            except* CallRefusedError as errors:
                failure = _first(errors)
            if not is_passing(failure) or (
                "hasleader" in self._metadata and failure.text == NO_LEADER.text
            ):
                return failure
            self._logger.debug("a keep-alive stream broke", error=failure.text)
            await asyncio.sleep(pause_s * random.SystemRandom().uniform(0.5, 1.5))
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)

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
