"""The process's own client: coroutines call the node as a remote client would, without a socket.

    side loop                                        driver's thread
    await client.call(method, body) ──► columns ──► fill(inbox) ──► Node.answer
    ◄── future / stream queue ◄── one hand-over per turn ◄── drain(out)

Ids run downwards from -1, so they never meet those of the client port (from 1 upwards); those of
what is asked for a client, as by the gateway, run downwards from FOR_CLIENTS. A call goes through
the same admission as a remote one: checks, limits, tokens in the metadata, refusals.

Limits: what waits for the driver is bounded in calls and bytes (call and send then wait), and what
a stream's reader has not taken is told to the node as that stream's backlog.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Self

from kvstore.batch import Inbox, Metadata, Outbox
from kvstore.errors import Code

WAITING_MAX: Final = 4096  # calls and frames the driver has not taken yet
WAITING_BYTES_MAX: Final = 64 << 20
FOR_CLIENTS: Final = -(1 << 40)


class CallRefusedError(Exception):
    """The node, or the way to it, refused a call."""

    def __init__(self, code: int, text: str) -> None:
        """Take the gRPC code and the error text as a remote client would see them."""
        super().__init__(f"{Code(code).name}: {text}")
        self.code = code
        self.text = text


class LocalStream:
    """One open stream: send messages, iterate over answers, cancel when done.

    Iterating ends at a plain end and raises CallRefusedError at any other. Use it in `async with`.
    """

    def __init__(self, client: "LocalClient", stream_id: int) -> None:
        self._client = client
        self._id = stream_id
        self._messages: deque[bytes] = deque()
        self._end: tuple[int, str] | None = None
        self._changed = asyncio.Event()
        self._is_over = False
        self.unread_bytes = 0  # the node sees it as the stream's backlog

    async def send(self, message: bytes) -> None:
        """Send one message; waits while too much waits for the driver."""
        await self._client.room()
        self._client.add_frame(self._id, message)

    def half_close(self) -> None:
        """Say that nothing more will be sent."""
        self._client.add_half_closed(self._id)

    def cancel(self) -> None:
        """Give the stream up; does nothing if it has ended."""
        if not self._is_over:
            self._is_over = True
            self._client.forget(self._id, is_gone=self._end is None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        """Return the next message."""
        while not self._messages:
            if self._end is not None:
                self.cancel()  # nothing more comes: there is nothing left to hold
                code, text = self._end
                if code != Code.OK:
                    raise CallRefusedError(code, text)
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        message = self._messages.popleft()
        self.unread_bytes -= len(message)
        return message

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cancel()

    def deliver(self, message: bytes) -> None:
        """Take a message of the node (on the loop)."""
        self._messages.append(message)
        self.unread_bytes += len(message)
        self._changed.set()

    def end(self, code: int, text: str) -> None:
        """Take the stream's end (on the loop)."""
        self._end = (code, text)
        self._changed.set()


class LocalClient:
    """Calls of this process to its own node."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
        """Serve coroutines of loop; wake makes the driver take a turn."""
        self._loop = loop
        self._wake = wake
        self._lock = threading.Lock()
        self._inbox = Inbox()
        self._waiting_bytes = 0
        self._made = 0  # ids
        self._has_given_up = False  # some call or stream, before its end
        self._answered: Outbox | None = None
        self._calls: dict[int, asyncio.Future[bytes]] = {}
        self._streams: dict[int, LocalStream] = {}
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._outstanding = 0  # calls and streams: while 0, drain has nothing to look for

    # For coroutines.

    async def call(
        self,
        method_id: int,
        body: bytes,
        metadata: Metadata | None = None,
        timeout_s: float | None = None,
        *,
        for_client: bool = False,
    ) -> bytes:
        """Make a unary call and return the response's bytes.

        Raises CallRefusedError with the node's code and text, or with DEADLINE_EXCEEDED.
        """
        await self.room()
        call_id, future = self._new_id(for_client=for_client), self._loop.create_future()
        self._calls[call_id] = future
        with self._lock:
            self._inbox.calls.append((call_id, method_id, body))
            if metadata:
                self._inbox.metadata[call_id] = metadata
            self._count(len(body))
        self._wake()
        try:
            return await asyncio.wait_for(future, timeout_s)
        except TimeoutError:
            raise CallRefusedError(Code.DEADLINE_EXCEEDED, "context deadline exceeded") from None
        finally:
            del self._calls[call_id]
            self.forget(call_id, is_gone=future.cancelled())

    def open(
        self,
        method_id: int,
        metadata: Metadata | None = None,
        request: bytes | None = None,
        *,
        for_client: bool = False,
    ) -> LocalStream:
        """Open a stream: bidirectional, or with its one request if the server alone streams."""
        stream_id = self._new_id(for_client=for_client)
        stream = self._streams[stream_id] = LocalStream(self, stream_id)
        with self._lock:
            if request is None:
                self._inbox.opened.append((stream_id, method_id))
            else:
                self._inbox.calls.append((stream_id, method_id, request))
            if metadata:
                self._inbox.metadata[stream_id] = metadata
            self._count(len(request or b""))
        self._wake()
        return stream

    async def room(self) -> None:
        """Wait until the driver has taken enough of what waits."""
        while not self._has_room.is_set():
            await self._has_room.wait()

    def add_frame(self, stream_id: int, message: bytes) -> None:
        """Leave a stream's message for the driver."""
        with self._lock:
            self._inbox.frames.append((stream_id, message))
            self._count(len(message))
        self._wake()

    def add_half_closed(self, stream_id: int) -> None:
        """Leave the news that nothing more comes on a stream."""
        with self._lock:
            self._inbox.half_closed.append(stream_id)
        self._wake()

    def forget(self, call_id: int, *, is_gone: bool) -> None:
        """Stop listening for a call or stream; the node is told if it may still be at it."""
        self._streams.pop(call_id, None)
        with self._lock:
            if is_gone:
                self._has_given_up = True  # before the count: drain looks at both without the lock
                self._inbox.gone.append(call_id)
            self._outstanding -= 1
        if is_gone:
            self._wake()

    def _new_id(self, *, for_client: bool) -> int:
        self._made += 1
        call_id = FOR_CLIENTS - self._made if for_client else -self._made
        with self._lock:
            self._outstanding += 1
        return call_id

    def _count(self, size_bytes: int) -> None:
        """Note what was added; the lock is held."""
        self._waiting_bytes += size_bytes
        waiting = len(self._inbox.calls) + len(self._inbox.opened) + len(self._inbox.frames)
        if waiting >= WAITING_MAX or self._waiting_bytes >= WAITING_BYTES_MAX:
            self._has_room.clear()

    # For the driver.

    def fill(self, inbox: Inbox) -> None:
        """Hand over what coroutines asked for, and how far stream readers are behind."""
        if self._outstanding == 0 and not self._inbox.gone:
            return
        with self._lock:
            taken, self._inbox = self._inbox, Inbox()
            self._waiting_bytes = 0
        inbox.calls += taken.calls
        inbox.opened += taken.opened
        inbox.frames += taken.frames
        inbox.half_closed += taken.half_closed
        inbox.gone += taken.gone
        inbox.metadata.update(taken.metadata)
        for stream_id, stream in self._streams.copy().items():
            if stream.unread_bytes:
                inbox.backlog[stream_id] = stream.unread_bytes
        if not self._has_room.is_set():
            self._loop.call_soon_threadsafe(self._has_room.set)

    def drain(self, out: Outbox) -> None:
        """Take out what is for coroutines and give it to their loop.

        What was given up may be answered all the same, by a read that waits for a leader even much
        later; the client port cannot take such ids.
        """
        if self._outstanding == 0 and not self._has_given_up:
            return
        mine = Outbox()
        mine.replies = [each for each in out.replies if each[0] < 0]
        mine.deliveries = [each for each in out.deliveries if each[0] < 0]
        mine.ends = [each for each in out.ends if each[0] < 0]
        if mine.replies:
            out.replies = [each for each in out.replies if each[0] > 0]
        if mine.deliveries:
            out.deliveries = [each for each in out.deliveries if each[0] > 0]
        if mine.ends:
            out.ends = [each for each in out.ends if each[0] > 0]
        if mine.replies or mine.deliveries or mine.ends:
            self._answered = mine
            self._loop.call_soon_threadsafe(self._deliver, mine)

    def take_answered(self) -> Outbox | None:
        """Return what the last drain took out for coroutines, once; None if there was nothing."""
        answered, self._answered = self._answered, None
        return answered

    def _deliver(self, out: Outbox) -> None:
        """Give answers to whoever waits for them (on the loop)."""
        for call_id, code, body in out.replies:
            future = self._calls.get(call_id)
            if future is None or future.done():
                continue
            if code == Code.OK:
                future.set_result(body)
            else:
                future.set_exception(CallRefusedError(code, body.decode()))
        for stream_id, head, tail in out.deliveries:
            if (stream := self._streams.get(stream_id)) is not None:
                stream.deliver(head + tail)
        for stream_id, code, text in out.ends:
            if (stream := self._streams.get(stream_id)) is not None:
                stream.end(code, text.decode())
