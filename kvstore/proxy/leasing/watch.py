"""One watch of every leasing key there is: who asks for a key, and which are gone.

    open ─► created ─► on_event, on_event, … ─► break ─► again, from the next revision on
                                             └─► cancelled: on_gap, and again from now on

After a gap nothing is known of what happened in it.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Final

from kvstore.batch import Metadata
from kvstore.logger import Logger
from kvstore.proxy.namespace import Namespace
from kvstore.proxy.upstream import Upstream
from kvstore.runtime.local_client import CallRefusedError
from kvstore.wire import rpc
from kvstore.wire.gen import kv_pb2
from kvstore.wire.gen import rpc_pb2 as pb

_PAUSE_S: Final = 0.1
_PAUSE_MAX_S: Final = 2.0
_NOBODY: Final[Metadata] = {}

OnEvent = Callable[[kv_pb2.Event], None]


class LeasingWatch:
    """The watch; its events' keys are as the namespace's clients name them."""

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
        self._next_revision = 0  # 0: from now on
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
        pause_s = _PAUSE_S
        while True:
            try:
                await self._follow()
            except CallRefusedError as error:
                self._logger.debug("the watch of leasing keys broke", error=error.text)
            pause_s = _PAUSE_S if self.is_open else min(2 * pause_s, _PAUSE_MAX_S)
            self._opened.clear()
            await asyncio.sleep(pause_s * random.SystemRandom().uniform(0.5, 1.5))

    async def _follow(self) -> None:
        """Follow one stream to its end; CallRefusedError if it breaks."""
        create = pb.WatchCreateRequest(start_revision=self._next_revision, progress_notify=True)
        create.key, create.range_end = self._prefix.everything
        if self._namespace is not None:
            self._namespace.add_to_range(create)
        stream = await self._upstream.open(rpc.WATCH, _NOBODY)
        try:
            await stream.send(pb.WatchRequest(create_request=create).SerializeToString())
            async for message in stream:
                response = pb.WatchResponse.FromString(message)
                if response.canceled:
                    self._lose_track(response)
                    return
                self._take(response)
        finally:
            stream.cancel()

    def _lose_track(self, response: pb.WatchResponse) -> None:
        reason = response.cancel_reason or "it was compacted"
        self._logger.warning("the watch of leasing keys was cancelled", error=reason)
        self._opened.clear()
        self._next_revision = 0
        self._on_gap()

    def _take(self, response: pb.WatchResponse) -> None:
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
        else:  # a notice of progress
            self._next_revision = max(self._next_revision, response.header.revision + 1)
