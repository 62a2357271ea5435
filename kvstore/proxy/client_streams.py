"""The open streams of the proxy's clients: their frames, and back-pressure for the answers.

    transport ─ frames ─► side loop ─► StreamTable ─► ClientStream: iterate
                                    ◄─ deliver, within the send window ─┘

A stream whose client sends far more than its handler reads is ended. A long answer waits while too
much of it is unsent.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

from kvstore.batch import Metadata, ServiceCall
from kvstore.errors import Code
from kvstore.runtime.local_client import CallRefusedError
from kvstore.runtime.send_window import SendWindow
from kvstore.runtime.side_loop import SideLoop

UNREAD_FRAMES_MAX: Final = 65_536
UNREAD_BYTES_MAX: Final = 64 << 20


class ClientStream:
    """One stream of a client."""

    def __init__(self, side: SideLoop, call: ServiceCall) -> None:
        self._side = side
        self.id: Final = call[0]
        self.metadata: Final[Metadata] = call[3]
        self._frames: deque[bytes] = deque()
        self._unread_bytes = 0
        self._changed = asyncio.Event()
        self._failure: CallRefusedError | None = None
        self._window = SendWindow(side, self.id)

    def add(self, frame: bytes) -> None:
        """Add a message from the client."""
        self._unread_bytes += len(frame)
        if len(self._frames) >= UNREAD_FRAMES_MAX or self._unread_bytes > UNREAD_BYTES_MAX:
            self.fail(
                CallRefusedError(Code.RESOURCE_EXHAUSTED, "too many unread messages on this stream")
            )
            return
        self._frames.append(frame)
        self._changed.set()

    def fail(self, failure: CallRefusedError) -> None:
        """End the stream: iterating raises failure."""
        self._failure = self._failure or failure
        self._changed.set()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the client's messages until it goes away, which cancels, or until fail()."""
        while True:
            while self._frames and self._failure is None:
                frame = self._frames.popleft()
                self._unread_bytes -= len(frame)
                yield frame
            if self._failure is not None:
                raise self._failure
            self._changed.clear()
            await self._changed.wait()

    def send(self, message: bytes) -> None:
        """Send a message; the transport bounds what the client does not read."""
        self._side.deliver(self.id, message)

    async def send_within_window(self, message: bytes) -> None:
        """Send a message, and wait while too much is unsent."""
        self._side.deliver(self.id, message)
        await self._window.sent(len(message))


class StreamTable:
    """The open streams by id."""

    def __init__(self, side: SideLoop) -> None:
        self._side = side
        self._streams: dict[int, ClientStream] = {}

    def open(self, call: ServiceCall) -> ClientStream:
        """Return the stream of a call; it gets frames from now on."""
        stream = self._streams[call[0]] = ClientStream(self._side, call)
        return stream

    def close(self, stream: ClientStream) -> None:
        """Forget a stream."""
        del self._streams[stream.id]

    def add_frames(self, frames: list[tuple[int, bytes]]) -> None:
        """Pass frames to their streams."""
        for stream_id, frame in frames:
            if (stream := self._streams.get(stream_id)) is not None:
                stream.add(frame)
