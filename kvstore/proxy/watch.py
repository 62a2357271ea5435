"""The Watch service of the proxy: each client's streams, their ids, what they ask and are told.

    create ─► id, range, wishes ─► the link of its token ─► shared there
    cancel ─► taken out, and told so          progress ─► asked of the cluster

Ids count from 0 on each stream, as on a member; a client may choose its own.
"""

import asyncio
from typing import Final

from kvstore.batch import Metadata
from kvstore.errors import COMPACTED
from kvstore.logger import Logger
from kvstore.proxy.client_streams import ClientStream
from kvstore.proxy.counts import Counts
from kvstore.proxy.namespace import Namespace
from kvstore.proxy.upstream import Upstream
from kvstore.proxy.watch_link import WatchLink
from kvstore.proxy.watchers import Range, Watcher, with_id
from kvstore.runtime.local_client import CallRefusedError
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb

WATCHERS_MAX: Final = 1_000_000  # of one stream
_INVALID_ID: Final = -1
_LINK_KEYS: Final = ("token", "authorization", "hasleader")
_OPEN_END: Final = b"\0"
_DUPLICATE: Final = "mvcc: duplicate watch ID provided on the WatchStream"


class WatchProxy:
    """Serves Watch."""

    def __init__(
        self, upstream: Upstream, namespace: Namespace | None, counts: Counts, logger: Logger
    ) -> None:
        self._upstream = upstream
        self._namespace = namespace
        self._counts = counts
        self._logger = logger
        self._links: dict[tuple[str, ...], tuple[WatchLink, asyncio.Task[None]]] = {}

    async def serve(self, stream: ClientStream) -> None:
        """Serve one stream until the client is gone, which cancels, or the cluster ends it."""
        session = _Session(self, stream)
        try:
            async for frame in stream:
                await session.take(pb.WatchRequest.FromString(frame))
        finally:
            session.close()

    def link(self, metadata: Metadata) -> WatchLink:
        """Return the link of clients with this metadata, opened if there is none."""
        key = tuple(metadata.get(each, "") for each in _LINK_KEYS)
        found = self._links.get(key)
        if found is not None and not found[1].done():
            return found[0]
        wanted = {name: metadata[name] for name in _LINK_KEYS if name in metadata}
        link = WatchLink(self._upstream, wanted, self._namespace, self._counts, self._logger)
        task = asyncio.create_task(link.run(), name="watch link")
        task.add_done_callback(self._failed)
        self._links[key] = (link, task)
        return link

    def release(self, link: WatchLink) -> None:
        """Close a link that nobody needs any more."""
        if not link.is_idle:
            return
        for key, (each, task) in list(self._links.items()):
            if each is link:
                task.cancel()
                del self._links[key]

    async def close(self) -> None:
        """End every link."""
        tasks = [task for _, task in self._links.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _failed(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._logger.error("a watch link failed", error=repr(error))

    async def may_read(self, request: pb.WatchCreateRequest, metadata: Metadata) -> None:
        """Ask the cluster whether this user may read a range; CallRefusedError if not."""
        if not any(metadata.get(each) for each in ("token", "authorization")):
            return  # nobody in particular: the watch itself is refused where it matters
        asked = pb.RangeRequest(
            key=request.key or _OPEN_END,
            range_end=request.range_end if request.key else _OPEN_END,
            serializable=True,
            count_only=True,
            limit=1,
        )
        if self._namespace is not None:
            self._namespace.add_to_range(asked)
        await self._upstream.call(rpc.RANGE, asked.SerializeToString(), metadata)


class _Session:
    """The watches of one stream."""

    def __init__(self, proxy: WatchProxy, stream: ClientStream) -> None:
        self._proxy = proxy
        self._stream = stream
        self._link: WatchLink | None = None
        self._watchers: dict[int, Watcher] = {}
        self._next_id = 0

    async def take(self, request: pb.WatchRequest) -> None:
        kind = request.WhichOneof("request_union")
        if kind == "create_request":
            await self._create(request.create_request)
        elif kind == "cancel_request":
            self._cancel(request.cancel_request.watch_id)
        elif kind == "progress_request" and self._link is not None:
            send = self._stream.send
            self._link.ask_progress(send)

    async def _create(self, request: pb.WatchCreateRequest) -> None:
        fault = await self._fault(request)
        if fault:
            self._refuse(fault)
            return
        watch_id = request.watch_id or self._free_id()
        # A range is kept as it was asked for: what is before the first key has no name.
        key, end = (request.key or _OPEN_END, request.range_end)
        watcher = Watcher(
            watch_id,
            Range(key, end, request.prev_kv, tuple(sorted(set(request.filters)))),
            request.start_revision,
            self._stream.send,
            has_progress=request.progress_notify,
        )
        self._watchers[watch_id] = watcher
        if self._link is None or self._link.is_idle:
            self._link = self._proxy.link(self._stream.metadata)
        self._link.add(watcher, self._ended, self._stream.fail)

    async def _fault(self, request: pb.WatchCreateRequest) -> str:
        """Return why a watch is refused; empty: it is not."""
        key, end = request.key, request.range_end
        if request.start_revision < 0:
            return COMPACTED.text
        if request.watch_id < 0:
            return f"mvcc: watch ID must not be negative (it is {request.watch_id})"
        if request.watch_id in self._watchers and request.watch_id:
            return _DUPLICATE
        if len(self._watchers) >= WATCHERS_MAX:
            return f"this stream has {WATCHERS_MAX} watches, which is the limit"
        if end and end != _OPEN_END and end <= key:
            return "mvcc: watcher range is empty"
        try:
            await self._proxy.may_read(request, self._stream.metadata)
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
        told = pb.WatchResponse(header=watcher.last_header, canceled=True)
        self._stream.send(with_id(told.SerializeToString(), watch_id))
        self._proxy.release(self._link)

    def _ended(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher.id, None)

    def close(self) -> None:
        """Take every watch out."""
        if self._link is None:
            return
        for watcher in self._watchers.values():
            self._link.remove(watcher)
        self._watchers.clear()
        self._proxy.release(self._link)
