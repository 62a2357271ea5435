"""One watch: the changes of its keys, in order, without gaps, until it is cancelled.

    async with store.watch(b"a", b"b", start_revision=7) as watch:
        async for value in watch:          Started(6)          once
            match value:                   Events(9, [...])    changes, those of a revision together
                                           Progress(12)        all up to 12 was delivered
                                           Interrupted(why)    looking for another server …
                                           Resumed(14)         … found one
                                           Compacted(20)       the end: 7 … 19 are not kept
                                           Restored(3)         the end: the store is older now

It ends on its own only with Compacted, Restored or an error (PermissionDeniedError, say). After a
break of the connection the watch resumes from the next revision it needs.

The bytes of values that the reader has not taken are bounded. A watch whose reader is slower is
interrupted and resumes from the store's history once the reader has caught up; others do not wait.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, Self

from kvstore.client.errors import StoreError
from kvstore.client.values import Event, Progress, WatchValue

if TYPE_CHECKING:
    from kvstore.wire.gen import rpc_pb2 as pb

_VALUE_COST: Final = 256  # bytes a value counts besides its events


class WatchOwner(Protocol):
    """The session that serves a watch: see `kvstore.client.watch_session`."""

    def remove(self, watch: "Watch") -> None:
        """Stop serving a watch."""
        ...

    def consume(self, watch: "Watch", size_bytes: int) -> None:
        """Note that the reader has consumed values of so many bytes."""
        ...

    def request_progress(self, watch: "Watch") -> None:
        """Request a progress notification from the server."""
        ...


class Watch:
    """An asynchronous iterator of WatchValues."""

    # It has both the session's fields and the reader's: one object a watch.
    __slots__ = (
        "_error",
        "_is_over",
        "_queue",
        "_session",
        "_waiter",
        "denials",
        "end",
        "filters",
        "id",
        "is_ahead",
        "is_quiet",
        "is_running",
        "is_suspended",
        "key",
        "last_event_revision",
        "next_revision",
        "partial",
        "partial_bytes",
        "prev_kv",
        "progress_notify",
        "queued_bytes",
        "resume_below",
        "seen_revision",
        "start_revision",
        "was_started",
    )

    def __init__(
        self,
        session: WatchOwner,
        key: bytes,
        end: bytes,
        start_revision: int,
        *,
        prev_kv: bool,
        filters: Sequence["pb.WatchCreateRequest.FilterType"],
        progress_notify: bool,
    ) -> None:
        self._session = session
        self._queue: deque[tuple[WatchValue, int]] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._error: StoreError | None = None
        self._is_over = False
        self.key: Final = key
        self.end: Final = end
        self.prev_kv: Final = prev_kv
        self.filters: Final = filters
        self.progress_notify: Final = progress_notify
        self.queued_bytes = 0
        self.id = 0  # watch id on its stream; 0: on no stream
        self.next_revision = (
            start_revision  # the next revision it needs; 0: not known yet, from now on
        )
        self.start_revision = 0  # the start revision of its create request
        self.last_event_revision = 0
        self.is_ahead = False  # the store has not reached its start revision
        self.is_quiet = False  # it is created again without notice to the reader
        self.seen_revision = 0  # the highest revision the server has sent
        self.partial: list[Event] = []  # events of a revision that is not complete
        self.partial_bytes = 0
        self.is_running = False  # the server has created it
        self.was_started = False
        self.is_suspended = False  # paused until the reader has caught up
        self.resume_below = 0  # bytes of unread values
        self.denials = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WatchValue:
        """Return the next value; StoreError once if the watch failed."""
        while not self._queue:
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            if self._is_over:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        value, size = self._queue.popleft()
        self.queued_bytes -= size
        self._session.consume(self, size)
        return value

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.cancel()

    def cancel(self) -> None:
        """End the watch; unread values are dropped."""
        if not self._is_over:
            self._session.remove(self)
            self.finish(None)
        self._session.consume(self, self.queued_bytes)
        self._queue.clear()
        self.queued_bytes = 0

    def request_progress(self) -> None:
        """Request a progress notification: Progress follows all changes before it.

        Its revision is about the current one; request again if you need a higher one.
        """
        if not self._is_over:
            self._session.request_progress(self)

    @property
    def is_over(self) -> bool:
        """Whether the watch has ended; unread values may be left."""
        return self._is_over

    # For the session.

    def push(self, value: WatchValue, size_bytes: int = 0) -> int:
        """Queue a value for the reader; return by how many bytes the queue has grown."""
        size = size_bytes + _VALUE_COST
        if type(value) is Progress and self._queue and type(self._queue[-1][0]) is Progress:
            self._queue[-1] = (value, self._queue[-1][1])
            return 0
        self._queue.append((value, size))
        self.queued_bytes += size
        self._stir()
        return size

    def finish(self, error: StoreError | None) -> None:
        """End the watch; the reader gets the queued values, then the error."""
        self._is_over = True
        self._error = error
        self._stir()

    def _stir(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
