"""One stream of watches to the cluster, opened again when it breaks.

    Broadcasts ── create, cancel ──► queue ──► stream ──► endpoint
               ◄── responses ───────────────── stream
    break ──► back-off ──► another endpoint ──► every broadcast again, from its resume revision

A link serves the clients of one token (`proxy.links`). An error that a retry cannot cure (an
unknown token, no leader for clients that require one) ends the clients' streams with the cluster's
code and text.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final

from kvstack.component.logger import Logger
from kvstore.batch import Metadata
from kvstore.errors import NO_LEADER, Code
from kvstore.proxy.backoff import Backoff
from kvstore.proxy.counters import ProxyCounters
from kvstore.proxy.namespace import Namespace
from kvstore.proxy.upstream import Upstream, UpstreamStream, is_transient
from kvstore.proxy.watch.watchers import Broadcast, Broadcasts, Watcher
from kvstore.runtime.local_client import CallRefusedError
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb

_PROGRESS_ID: Final = -1
QUEUE_MAX: Final = 1 << 20

OnEnd = Callable[[Watcher], None]  # the cluster cancelled this watch
OnFailure = Callable[[CallRefusedError], None]  # the link ended


class WatchLink:
    """The watches of the clients of one token."""

    def __init__(
        self,
        upstream: Upstream,
        metadata: Metadata,
        namespace: Namespace | None,
        counters: ProxyCounters,
        logger: Logger,
    ) -> None:
        self._upstream = upstream
        self._metadata = metadata
        self._namespace = namespace
        self._logger = logger
        self._requests: asyncio.Queue[bytes] = asyncio.Queue(QUEUE_MAX)
        self._progress: list[Callable[[bytes], None]] = []  # callbacks of progress requests
        self._callbacks: dict[Watcher, tuple[OnEnd, OnFailure]] = {}
        self._is_open = False
        self.broadcasts: Final = Broadcasts(self._create, self._cancel, counters)

    @property
    def is_idle(self) -> bool:
        """Whether there are no watchers."""
        return not self._callbacks

    def add(self, watcher: Watcher, on_end: OnEnd, on_failure: OnFailure) -> None:
        """Serve a watcher until remove(), on_end or on_failure."""
        self._callbacks[watcher] = (on_end, on_failure)
        self.broadcasts.add(watcher)

    def remove(self, watcher: Watcher) -> None:
        """Stop serving a watcher."""
        if self._callbacks.pop(watcher, None) is not None:
            self.broadcasts.remove(watcher)

    def request_progress(self, callback: Callable[[bytes], None]) -> None:
        """Ask the cluster for the progress of all watches; callback gets the response's bytes."""
        if self._is_open:
            self._progress.append(callback)
            request = pb.WatchRequest(progress_request=pb.WatchProgressRequest())
            self._requests.put_nowait(request.SerializeToString())

    async def run(self) -> None:
        """Keep the stream open until cancelled, or until the cluster refuses it."""
        try:
            self._fail(await self._run_until_refused())
        except Exception:
            self._fail(CallRefusedError(Code.INTERNAL, "internal error"))
            raise

    async def _run_until_refused(self) -> CallRefusedError:
        backoff = Backoff()
        while True:
            try:
                async for response in self._responses():
                    backoff.reset()
                    self._dispatch(response)
                failure = CallRefusedError(*NO_LEADER)  # the server ended it without an error
            except CallRefusedError as error:
                failure = error
            if not is_transient(failure) or (self._needs_leader and failure.text == NO_LEADER.text):
                return failure
            self._logger.debug("a watch stream broke", error=failure.text)
            await backoff.wait()

    @property
    def _needs_leader(self) -> bool:
        return "hasleader" in self._metadata

    async def _responses(self) -> AsyncIterator[pb.WatchResponse]:
        """Open the stream, create all broadcasts on it, and yield its responses."""
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

    def _dispatch(self, response: pb.WatchResponse) -> None:
        if response.watch_id == _PROGRESS_ID and not response.created:
            callbacks, self._progress = self._progress, []
            body = response.SerializeToString()
            for callback in callbacks:
                callback(body)
            return
        if self._namespace is not None:
            self._namespace.strip_watch(response)
        for watcher in self.broadcasts.deliver(response.watch_id, response):
            self._callbacks.pop(watcher)[0](watcher)

    def _fail(self, failure: CallRefusedError) -> None:
        self.broadcasts.clear()
        callbacks, self._callbacks = self._callbacks, {}
        for _, on_failure in callbacks.values():
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
