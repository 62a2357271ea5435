"""Streams that clients of the proxy have open: what comes in on them, and room for what goes out.

    transport ─ frames ─► side loop ─► StreamTable ─► ClientStream: iterate
                                    ◄─ deliver, with room ─┘

A stream reads as fast as its handler takes; one whose client sends far more is ended. What goes out
of a long answer waits while too much is unsent.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

from kvstore.batch import Metadata, ServiceCall
from kvstore.errors import Code
from kvstore.runtime.local_client import CallRefusedError
from kvstore.runtime.side_loop import SideLoop

UNREAD_FRAMES_MAX: Final = 65_536
UNREAD_BYTES_MAX: Final = 64 << 20
BACKLOG_BYTES_MAX: Final = 1 << 20
_TURN_S: Final = 0.005


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
        self._ahead_bytes = 0

    def add(self, frame: bytes) -> None:
        """Take a message from the client."""
        self._unread_bytes += len(frame)
        if len(self._frames) >= UNREAD_FRAMES_MAX or self._unread_bytes > UNREAD_BYTES_MAX:
            self.fail(CallRefusedError(Code.RESOURCE_EXHAUSTED, "too much waits on this stream"))
            return
        self._frames.append(frame)
        self._changed.set()

    def fail(self, failure: CallRefusedError) -> None:
        """End the stream: iterating raises failure."""
        self._failure = self._failure or failure
        self._changed.set()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the client's messages until it is gone, which cancels; or raise what fail() was."""
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
        """Send a message; what the client does not read is bounded by the transport."""
        self._side.deliver(self.id, message)

    async def send_with_room(self, message: bytes) -> None:
        """Send a message, after what was sent before has mostly left."""
        self._side.deliver(self.id, message)
        self._ahead_bytes += len(message)
        if self._ahead_bytes < BACKLOG_BYTES_MAX:
            return
        self._ahead_bytes = 0
        turns = 0
        while turns < 2 or self._side.backlog.get(self.id, 0) > BACKLOG_BYTES_MAX:
            before = self._side.backlog
            self._side.ask_turn()
            await asyncio.sleep(_TURN_S)
            turns += self._side.backlog is not before


class StreamTable:
    """Gives frames to the streams they are for."""

    def __init__(self, side: SideLoop) -> None:
        self._side = side
        self._streams: dict[int, ClientStream] = {}

    def open(self, call: ServiceCall) -> ClientStream:
        """Return the stream of a call, which takes frames from now on."""
        stream = self._streams[call[0]] = ClientStream(self._side, call)
        return stream

    def close(self, stream: ClientStream) -> None:
        """Forget a stream."""
        del self._streams[stream.id]

    def take_frames(self, frames: list[tuple[int, bytes]]) -> None:
        """Take what arrived."""
        for stream_id, frame in frames:
            if (stream := self._streams.get(stream_id)) is not None:
                stream.add(frame)
