"""The Watch service of the proxy: the clients' streams, their watch ids, requests and responses.

    create ─► id, range, options ─► the link of its token ─► shared there
    cancel ─► removed, and confirmed          progress ─► requested from the cluster

Ids count from 0 on each stream, as on a member; a client may choose its own.
"""

from typing import Final

from kvstack.component.logger import Logger
from kvstore.batch import Metadata
from kvstore.errors import COMPACTED
from kvstore.proxy.client_streams import ClientStream
from kvstore.proxy.counters import ProxyCounters
from kvstore.proxy.key_ranges import OPEN_END
from kvstore.proxy.links import Links
from kvstore.proxy.namespace import Namespace
from kvstore.proxy.upstream import Upstream, credential_of
from kvstore.proxy.watch.watch_link import WatchLink
from kvstore.proxy.watch.watchers import Range, Watcher, with_id
from kvstore.runtime.local_client import CallRefusedError
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb

WATCHERS_MAX: Final = 1_000_000  # of one stream
_INVALID_ID: Final = -1
_DUPLICATE: Final = "mvcc: duplicate watch ID provided on the WatchStream"


class WatchService:
    """Serves Watch."""

    def __init__(
        self,
        upstream: Upstream,
        namespace: Namespace | None,
        counters: ProxyCounters,
        logger: Logger,
    ) -> None:
        self._upstream = upstream
        self._namespace = namespace
        self.links: Final = Links(
            lambda metadata: WatchLink(upstream, metadata, namespace, counters, logger),
            "watch link",
            logger,
        )

    async def serve(self, stream: ClientStream) -> None:
        """Serve a stream until the client goes away, which cancels, or the cluster ends it."""
        watches = _StreamWatches(self, stream)
        try:
            async for frame in stream:
                await watches.handle(pb.WatchRequest.FromString(frame))
        finally:
            watches.close()

    async def close(self) -> None:
        """End every link."""
        await self.links.close()

    async def check_readable(self, request: pb.WatchCreateRequest, metadata: Metadata) -> None:
        """Ask the cluster whether this user may read a range; CallRefusedError if not."""
        if not credential_of(metadata):
            return  # without a user the cluster refuses the watch itself if it must
        range_request = pb.RangeRequest(
            key=request.key or OPEN_END,
            range_end=request.range_end if request.key else OPEN_END,
            serializable=True,
            count_only=True,
            limit=1,
        )
        if self._namespace is not None:
            self._namespace.add_to_range(range_request)
        await self._upstream.call(rpc.RANGE, range_request.SerializeToString(), metadata)


class _StreamWatches:
    """The watches of one stream."""

    def __init__(self, service: WatchService, stream: ClientStream) -> None:
        self._service = service
        self._stream = stream
        self._link: WatchLink | None = None
        self._watchers: dict[int, Watcher] = {}
        self._next_id = 0

    async def handle(self, request: pb.WatchRequest) -> None:
        """Carry one request out."""
        kind = request.WhichOneof("request_union")
        if kind == "create_request":
            await self._create(request.create_request)
        elif kind == "cancel_request":
            self._cancel(request.cancel_request.watch_id)
        elif kind == "progress_request" and self._link is not None:
            self._link.request_progress(self._stream.send)

    async def _create(self, request: pb.WatchCreateRequest) -> None:
        reason = await self._refusal_reason(request)
        if reason:
            self._refuse(reason)
            return
        watch_id = request.watch_id or self._free_id()
        key = request.key or OPEN_END  # an empty key is the first key, as on a member
        watcher = Watcher(
            watch_id,
            Range(key, request.range_end, request.prev_kv, tuple(sorted(set(request.filters)))),
            request.start_revision,
            self._stream.send,
            has_progress=request.progress_notify,
        )
        self._watchers[watch_id] = watcher
        if self._link is None or self._link.is_idle:
            self._link = self._service.links.get(self._stream.metadata)
        self._link.add(watcher, self._on_end, self._stream.fail)

    async def _refusal_reason(self, request: pb.WatchCreateRequest) -> str:
        """Return why a watch is refused; empty if it is not."""
        key, end = request.key, request.range_end
        if request.start_revision < 0:
            return COMPACTED.text
        if request.watch_id < 0:
            return f"mvcc: watch ID must not be negative (it is {request.watch_id})"
        if request.watch_id in self._watchers and request.watch_id:
            return _DUPLICATE
        if len(self._watchers) >= WATCHERS_MAX:
            return f"too many watches on this stream, limit {WATCHERS_MAX}"
        if end and end != OPEN_END and end <= key:
            return "mvcc: watcher range is empty"
        try:
            await self._service.check_readable(request, self._stream.metadata)
        except CallRefusedError as refused:
            return refused.text
        return ""

    def _refuse(self, reason: str) -> None:
        refused = pb.WatchResponse(
            header=pb.ResponseHeader(), created=True, canceled=True, cancel_reason=reason
        )
        self._stream.send(with_id(refused.SerializeToString(), _INVALID_ID))

    def _free_id(self) -> int:
        while self._next_id in self._watchers:
            self._next_id += 1
        self._next_id += 1
        return self._next_id - 1

    def _cancel(self, watch_id: int) -> None:
        watcher = self._watchers.pop(watch_id, None)
        if watcher is None or self._link is None:
            return
        self._link.remove(watcher)
        canceled = pb.WatchResponse(header=watcher.last_header, canceled=True)
        self._stream.send(with_id(canceled.SerializeToString(), watch_id))
        self._service.links.release(self._link)

    def _on_end(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher.id, None)

    def close(self) -> None:
        """Remove all watches."""
        if self._link is None:
            return
        for watcher in self._watchers.values():
            self._link.remove(watcher)
        self._watchers.clear()
        self._service.links.release(self._link)
