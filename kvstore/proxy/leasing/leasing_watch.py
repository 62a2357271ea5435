"""One watch of all leasing keys: revocations and deletions.

    open ─► created ─► on_event, on_event, … ─► break ─► opened again from the next revision
                                             └─► cancelled: on_gap, and from the current revision

The events of a gap are unknown.
"""

import asyncio
from collections.abc import Callable

from kvstack.component.logger import Logger
from kvstore.proxy.backoff import Backoff
from kvstore.proxy.namespace import Namespace
from kvstore.proxy.upstream import Upstream
from kvstore.runtime.local_client import CallRefusedError
from kvstore.wire import rpc
from kvstore.wire.gen import kv_pb2
from kvstore.wire.gen import rpc_pb2 as pb

OnEvent = Callable[[kv_pb2.Event], None]


class LeasingWatch:
    """The watch; the keys of its events are without the namespace's prefix."""

    def __init__(
        self,
        upstream: Upstream,
        prefix: Namespace,
        namespace: Namespace | None,
        logger: Logger,
        on_event: OnEvent,
        on_gap: Callable[[], None],
    ) -> None:
        self._upstream = upstream
        self._prefix = prefix
        self._namespace = namespace
        self._logger = logger
        self._on_event = on_event
        self._on_gap = on_gap
        self._next_revision = 0  # 0: from the current one
        self._opened = asyncio.Event()

    @property
    def is_open(self) -> bool:
        """Whether events arrive."""
        return self._opened.is_set()

    async def opened(self) -> None:
        """Return once events arrive."""
        await self._opened.wait()

    async def run(self) -> None:
        """Watch until cancelled."""
        backoff = Backoff()
        while True:
            try:
                await self._follow()
            except CallRefusedError as error:
                self._logger.debug("the watch of leasing keys broke", error=error.text)
            if self.is_open:
                backoff.reset()
            self._opened.clear()
            await backoff.wait()

    async def _follow(self) -> None:
        """Follow one stream to its end; CallRefusedError if it breaks."""
        create = pb.WatchCreateRequest(start_revision=self._next_revision, progress_notify=True)
        create.key, create.range_end = self._prefix.all_keys
        if self._namespace is not None:
            self._namespace.add_to_range(create)
        stream = await self._upstream.open(rpc.WATCH)
        try:
            await stream.send(pb.WatchRequest(create_request=create).SerializeToString())
            async for message in stream:
                response = pb.WatchResponse.FromString(message)
                if response.canceled:
                    self._on_cancel(response)
                    return
                self._dispatch(response)
        finally:
            stream.cancel()

    def _on_cancel(self, response: pb.WatchResponse) -> None:
        reason = response.cancel_reason or "the revision was compacted"
        self._logger.warning("the watch of leasing keys was cancelled", error=reason)
        self._opened.clear()
        self._next_revision = 0
        self._on_gap()

    def _dispatch(self, response: pb.WatchResponse) -> None:
        if self._namespace is not None:
            self._namespace.strip_watch(response)
        for event in response.events:
            self._on_event(event)
        if response.created:
            self._opened.set()
            if not self._next_revision:
                self._next_revision = response.header.revision + 1
        elif response.events:
            self._next_revision = response.events[-1].kv.mod_revision + 1
        else:  # a progress notification
            self._next_revision = max(self._next_revision, response.header.revision + 1)
