"""One watch: the changes of its keys, in order, without gaps, until it is cancelled.

    async with store.watch(b"a", b"b", start_revision=7) as watch:
        async for value in watch:          Started(6)          once
            match value:                   Events(9, [...])    changes, those of a revision together
                                           Progress(12)        all up to 12 was delivered
                                           Interrupted(why)    another server is being looked for …
                                           Resumed(14)         … and found
                                           Compacted(20)       the end: 7 … 19 are not kept
                                           Restored(3)         the end: the store is older now

It ends by itself only with Compacted, Restored or an error (PermissionDeniedError, say). After a
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
    """What serves a watch: see `kvstore.client.watch_session`."""

    def remove(self, watch: "Watch") -> None:
        """Serve a watch no more."""
        ...

    def taken(self, watch: "Watch", size_bytes: int) -> None:
        """Note that the reader has taken values that counted so many bytes."""
        ...

    def request_progress(self, watch: "Watch") -> None:
        """Ask the server how far it is."""
        ...


class Watch:
    """An asynchronous iterator of WatchValues."""

    # What the session keeps of it stands beside what the reader uses: one object a watch.
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
        self.id = 0  # on the stream it is on; 0: on none
        self.next_revision = start_revision  # that it lacks; 0: not known yet, from now on
        self.start_revision = 0  # that it was begun with on the stream
        self.last_event_revision = 0
        self.is_ahead = False  # the store had not reached its start
        self.is_quiet = False  # it is begun again, of which the reader need not know
        self.seen_revision = 0  # the highest the server has named
        self.partial: list[Event] = []  # of a revision that is not complete
        self.partial_bytes = 0
        self.is_running = False  # the server has taken it up
        self.was_started = False
        self.is_suspended = False  # until the reader has caught up
        self.resume_below = 0  # bytes that wait
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
        self._session.taken(self, size)
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
        self._session.taken(self, self.queued_bytes)
        self._queue.clear()
        self.queued_bytes = 0

    def request_progress(self) -> None:
        """Ask how far the server is: Progress comes when all before it has come.

        Its revision is about that of now; whoever needs a higher one asks again.
        """
        if not self._is_over:
            self._session.request_progress(self)

    @property
    def is_over(self) -> bool:
        """Whether the watch has ended; unread values may be left."""
        return self._is_over

    # For the session.

    def push(self, value: WatchValue, size_bytes: int = 0) -> int:
        """Leave a value for the reader; return by how many bytes what waits has grown."""
        size = size_bytes + _VALUE_COST
        if type(value) is Progress and self._queue and type(self._queue[-1][0]) is Progress:
            self._queue[-1] = (value, self._queue[-1][1])
            return 0
        self._queue.append((value, size))
        self.queued_bytes += size
        self._stir()
        return size

    def finish(self, error: StoreError | None) -> None:
        """Let nothing more come; the reader gets what waits, then the error."""
        self._is_over = True
        self._error = error
        self._stir()

    def _stir(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
