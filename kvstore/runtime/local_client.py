"""The local client: coroutines of this process call the node as a remote client would.

    side loop                                        driver's thread
    await client.call(method, body) ──► columns ──► fill(inbox) ──► Node.answer
    ◄── future / stream queue ◄── one callback per turn ◄── drain(out)

Ids count down from -1, so they never collide with those of the client port, which count up from 1.
Calls made on behalf of a client, as by the gateway, count down from CLIENT_IDS_FROM. A call passes
the same admission as a remote one: checks, limits, tokens in the metadata, refusals.

Limits: calls and bytes that wait for the driver are bounded (call and send then wait). The bytes
that a stream's reader has not read yet are the stream's backlog for the node.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Self

from kvstore.batch import Inbox, Metadata, Outbox, messages
from kvstore.errors import Code

WAITING_MAX: Final = 4096  # calls and frames the driver has not taken yet
WAITING_BYTES_MAX: Final = 64 << 20
CLIENT_IDS_FROM: Final = -(1 << 40)


class CallRefusedError(Exception):
    """A call was refused: by the node, or before it reached the node."""

    def __init__(self, code: int, text: str) -> None:
        """Take the gRPC code and the error text as a remote client would see them."""
        super().__init__(f"{Code(code).name}: {text}")
        self.code = code
        self.text = text


class LocalStream:
    """One open stream: send messages, iterate over responses, cancel when done.

    Iteration stops at an end without an error and raises CallRefusedError at one with an error. Use
    it in `async with`.
    """

    def __init__(self, client: "LocalClient", stream_id: int) -> None:
        self._client = client
        self._id = stream_id
        self._messages: deque[bytes] = deque()
        self._end: tuple[int, str] | None = None
        self._changed = asyncio.Event()
        self._is_over = False
        self.unread_bytes = 0  # for the node: the stream's backlog

    async def send(self, message: bytes) -> None:
        """Send one message; waits while the driver's queue is full."""
        await self._client.wait_for_room()
        self._client.add_frame(self._id, message)

    def half_close(self) -> None:
        """End the sending side."""
        self._client.add_half_closed(self._id)

    def cancel(self) -> None:
        """Cancel the stream; does nothing if it has ended."""
        if not self._is_over:
            self._is_over = True
            self._client.forget(self._id, is_gone=self._end is None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        """Return the next message."""
        while not self._messages:
            if self._end is not None:
                self.cancel()  # it has ended: the client forgets it
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
        """Add a message of the node (on the loop)."""
        self._messages.append(message)
        self.unread_bytes += len(message)
        self._changed.set()

    def end(self, code: int, text: str) -> None:
        """Note the stream's end (on the loop)."""
        self._end = (code, text)
        self._changed.set()


class LocalClient:
    """Calls of this process to its own node."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
        """Serve coroutines of loop; wake makes the driver run a turn."""
        self._loop = loop
        self._wake = wake
        self._lock = threading.Lock()
        self._inbox = Inbox()
        self._waiting_bytes = 0
        self._id_count = 0  # ids that were assigned
        self._has_cancelled = False  # some call or stream, before its end
        self._answered: Outbox | None = None
        self._calls: dict[int, asyncio.Future[bytes]] = {}
        self._streams: dict[int, LocalStream] = {}
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._outstanding = 0  # open calls and streams; while it is 0, drain has nothing to do

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
        await self.wait_for_room()
        call_id = self._new_id(for_client=for_client)
        future: asyncio.Future[bytes] = self._loop.create_future()
        self._calls[call_id] = future
        with self._lock:
            self._inbox.calls.append((call_id, method_id, body))
            if metadata:
                self._inbox.metadata[call_id] = metadata
            self._count(len(body))
        self._wake()
        try:
            async with asyncio.timeout(timeout_s):  # wait_for loses a cancellation before 3.12
                return await future
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
        """Open a stream: bidirectional, or a server stream with its one request."""
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

    async def wait_for_room(self) -> None:
        """Wait while the driver's queue is full."""
        while not self._has_room.is_set():
            await self._has_room.wait()

    def add_frame(self, stream_id: int, message: bytes) -> None:
        """Enqueue a stream's message."""
        with self._lock:
            self._inbox.frames.append((stream_id, message))
            self._count(len(message))
        self._wake()

    def add_half_closed(self, stream_id: int) -> None:
        """Enqueue the end of a stream's sending side."""
        with self._lock:
            self._inbox.half_closed.append(stream_id)
        self._wake()

    def forget(self, call_id: int, *, is_gone: bool) -> None:
        """Forget a call or stream; is_gone: its client went away."""
        self._streams.pop(call_id, None)
        with self._lock:
            if is_gone:
                self._has_cancelled = True  # before the count: drain reads both without the lock
                self._inbox.gone.append(call_id)
            self._outstanding -= 1
        if is_gone:
            self._wake()

    def _new_id(self, *, for_client: bool) -> int:
        self._id_count += 1
        call_id = CLIENT_IDS_FROM - self._id_count if for_client else -self._id_count
        with self._lock:
            self._outstanding += 1
        return call_id

    def _count(self, size_bytes: int) -> None:
        """Count what was added; the caller holds the lock."""
        self._waiting_bytes += size_bytes
        waiting = len(self._inbox.calls) + len(self._inbox.opened) + len(self._inbox.frames)
        if waiting >= WAITING_MAX or self._waiting_bytes >= WAITING_BYTES_MAX:
            self._has_room.clear()

    # For the driver.

    def fill(self, inbox: Inbox) -> None:
        """Add the coroutines' calls and messages, and the backlogs of their streams."""
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
        """Remove the answers for coroutines and pass them to their loop.

        A cancelled call may still be answered, much later if it is a read that waits for a leader.
        Its answer is removed, too, because the client port does not know such ids.
        """
        if self._outstanding == 0 and not self._has_cancelled:
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
        """Return what the last drain removed for coroutines, once; None if there was nothing."""
        answered, self._answered = self._answered, None
        return answered

    def _deliver(self, out: Outbox) -> None:
        """Pass answers to the futures and streams that wait for them (on the loop)."""
        for call_id, code, body in out.replies:
            future = self._calls.get(call_id)
            if future is None or future.done():
                continue
            if code == Code.OK:
                future.set_result(body)
            else:
                future.set_exception(CallRefusedError(code, body.decode()))
        for stream_id, head, tail in messages(out.deliveries):
            if (stream := self._streams.get(stream_id)) is not None:
                stream.deliver(head + tail)
        for stream_id, code, text in out.ends:
            if (stream := self._streams.get(stream_id)) is not None:
                stream.end(code, text.decode())
