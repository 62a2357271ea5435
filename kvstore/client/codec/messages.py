"""The messages of a stream as an asynchronous iterator, instead of callbacks.

    messages = Messages()
    messages.stream = channel.open(method, metadata, messages)
    async for message in messages: ...

A message counts as consumed when it is read from here: a slow reader makes the server wait.
"""

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Self

from kvstore.client.errors import CallFailedError

if TYPE_CHECKING:
    from kvstore.client.channel import ChannelStream


class Messages:
    """A Sink to iterate over; CallFailedError if the stream ends with an error."""

    def __init__(self) -> None:
        self._waiting: deque[bytes] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._failure: CallFailedError | None = None
        self._is_over = False
        self.stream: ChannelStream | None = None

    @property
    def is_over(self) -> bool:
        """Whether the stream has ended; queued messages may be left."""
        return self._is_over

    @property
    def failure(self) -> CallFailedError | None:
        """The error it ended with, if any."""
        return self._failure

    def on_message(self, head: bytes, tail: bytes) -> None:
        """Take a message of the channel."""
        self._waiting.append(head + tail)
        self._stir()

    def on_end(self, failure: CallFailedError | None) -> None:
        """Take the end."""
        self._is_over, self._failure = True, failure
        self._stir()

    def _stir(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        """Return the next message."""
        while not self._waiting:
            if self._failure is not None:
                raise self._failure
            if self._is_over:
                raise StopAsyncIteration
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        message = self._waiting.popleft()
        if self.stream is not None:
            self.stream.done_with(len(message))
        return message

    def cancel(self) -> None:
        """Cancel the stream."""
        self._is_over = True
        if self.stream is not None:
            self.stream.cancel()
        self._waiting.clear()
        self._stir()
