"""One stream of watches to the cluster, opened again when it breaks.

    Broadcasts ── create, cancel ──► queue ──► stream ──► endpoint
               ◄── responses ───────────────── stream
    break ──► pause ──► another endpoint ──► every broadcast again, from what it still lacks

Clients that carry the same token and wish for a leader alike share a link. It is opened for the
first watcher and closed with the last. What the cluster refuses for good (a token it does not know,
no leader for those who need one) ends the clients' streams with its words.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from typing import Final

from kvstore.batch import Metadata
from kvstore.errors import NO_LEADER, Code
from kvstore.logger import Logger
from kvstore.proxy.counts import Counts
from kvstore.proxy.namespace import Namespace
from kvstore.proxy.upstream import Upstream, UpstreamStream, is_passing
from kvstore.proxy.watchers import Broadcast, Broadcasts, Watcher
from kvstore.runtime.local_client import CallRefusedError
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb

_PAUSE_S: Final = 0.1
_PAUSE_MAX_S: Final = 2.0
_PROGRESS_ID: Final = -1
QUEUE_MAX: Final = 1 << 20

OnEnd = Callable[[Watcher], None]  # the cluster has cancelled this watch
OnFailure = Callable[[CallRefusedError], None]  # the whole link is over


class WatchLink:
    """The watches of clients with one token."""

    def __init__(
        self,
        upstream: Upstream,
        metadata: Metadata,
        namespace: Namespace | None,
        counts: Counts,
        logger: Logger,
    ) -> None:
        self._upstream = upstream
        self._metadata = metadata
        self._namespace = namespace
        self._logger = logger
        self._requests: asyncio.Queue[bytes] = asyncio.Queue(QUEUE_MAX)
        self._progress: list[Callable[[bytes], None]] = []
        self._owners: dict[Watcher, tuple[OnEnd, OnFailure]] = {}
        self._is_open = False
        self.broadcasts: Final = Broadcasts(self._create, self._cancel, counts)

    @property
    def is_idle(self) -> bool:
        """Whether nobody watches."""
        return not self._owners

    def add(self, watcher: Watcher, on_end: OnEnd, on_failure: OnFailure) -> None:
        """Serve a watcher until remove(), on_end or on_failure."""
        self._owners[watcher] = (on_end, on_failure)
        self.broadcasts.add(watcher)

    def remove(self, watcher: Watcher) -> None:
        """Serve a watcher no more."""
        if self._owners.pop(watcher, None) is not None:
            self.broadcasts.remove(watcher)

    def ask_progress(self, answer: Callable[[bytes], None]) -> None:
        """Ask how far the cluster is, for all watches; answer gets the response's bytes."""
        if self._is_open:
            self._progress.append(answer)
            request = pb.WatchRequest(progress_request=pb.WatchProgressRequest())
            self._requests.put_nowait(request.SerializeToString())

    async def run(self) -> None:
        """Keep the stream open until cancelled, or the cluster refuses it for good."""
        try:
            self._fail(await self._until_refused())
        except Exception:
            self._fail(CallRefusedError(Code.INTERNAL, "internal error"))
            raise

    async def _until_refused(self) -> CallRefusedError:
        pause_s = _PAUSE_S
        while True:
            try:
                async for response in self._responses():
                    pause_s = _PAUSE_S
                    self._take(response)
                failure = CallRefusedError(*NO_LEADER)  # no server ends it in peace
            except CallRefusedError as error:
                failure = error
            if not is_passing(failure) or (self._needs_leader and failure.text == NO_LEADER.text):
                return failure
            self._logger.debug("a watch stream broke", error=failure.text)
            await asyncio.sleep(pause_s * random.SystemRandom().uniform(0.5, 1.5))
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)

    @property
    def _needs_leader(self) -> bool:
        return "hasleader" in self._metadata

    async def _responses(self) -> AsyncIterator[pb.WatchResponse]:
        """Open the stream with every broadcast there is, and yield what it answers."""
        stream = await self._upstream.open(rpc.WATCH, self._metadata)
        self._requests = asyncio.Queue(QUEUE_MAX)
        for broadcast in self.broadcasts.by_id.values():
            self._requests.put_nowait(self._create_request(broadcast))
        self._is_open = True
        sending = asyncio.create_task(self._send(stream), name="watch requests")
        try:
            async for message in stream:
                yield pb.WatchResponse.FromString(message)
        finally:
            self._is_open = False
            self._progress.clear()
            stream.cancel()
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    def _take(self, response: pb.WatchResponse) -> None:
        if response.watch_id == _PROGRESS_ID and not response.created:
            asked, self._progress = self._progress, []
            body = response.SerializeToString()
            for answer in asked:
                answer(body)
            return
        if self._namespace is not None:
            self._namespace.strip_watch(response)
        for watcher in self.broadcasts.give(response.watch_id, response):
            self._owners.pop(watcher)[0](watcher)

    def _fail(self, failure: CallRefusedError) -> None:
        self.broadcasts.take_all()
        owners, self._owners = self._owners, {}
        for _, on_failure in owners.values():
            on_failure(failure)

    def _create(self, broadcast: Broadcast) -> None:
        if self._is_open:
            self._requests.put_nowait(self._create_request(broadcast))

    def _create_request(self, broadcast: Broadcast) -> bytes:
        of = broadcast.range
        request = pb.WatchCreateRequest(
            key=of.key,
            range_end=of.end,
            start_revision=broadcast.resume_revision(),
            progress_notify=True,
            filters=[pb.WatchCreateRequest.FilterType.Name(each) for each in of.filters],
            prev_kv=of.prev_kv,
            watch_id=broadcast.id,
        )
        if self._namespace is not None:
            self._namespace.add_to_range(request)
        return pb.WatchRequest(create_request=request).SerializeToString()

    def _cancel(self, broadcast: Broadcast) -> None:
        if self._is_open:
            request = pb.WatchCancelRequest(watch_id=broadcast.id)
            self._requests.put_nowait(pb.WatchRequest(cancel_request=request).SerializeToString())

    async def _send(self, stream: UpstreamStream) -> None:
        while True:
            await stream.send(await self._requests.get())
