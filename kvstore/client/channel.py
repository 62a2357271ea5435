"""The interface between a Store and what connects it to a server: bytes, not interpreted.

    call(method, body) ──► one attempt at one endpoint ──► the reply's bytes, or CallFailedError
    open(method, sink) ──► a stream: send(message) ──► sink.on_message(...), ..., sink.on_end(...)

Methods are numbers of `kvstore.wire.rpc`. Everything runs on the event loop the channel was started
on. A call waits for a connected endpoint for up to its time limit. Retries are decided elsewhere,
but each failure says whether the server may have seen the call.

A sink must not raise and must not wait. It reports to the stream what it has consumed: above a
limit of unconsumed bytes, the server has to wait.
"""

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from kvstore.client.endpoints import Endpoint
from kvstore.client.errors import CallFailedError

# Names in lower case and values, in order; the same object for calls that share it.
Metadata: TypeAlias = tuple[tuple[str, str], ...]


class Sink(Protocol):
    """The reader of a stream."""

    def on_message(self, head: bytes, tail: bytes) -> None:
        """Take a message: head + tail; the tail may be shared with other streams."""
        ...

    def on_end(self, failure: CallFailedError | None) -> None:
        """Take the end, which comes last; None: the server ended the stream without an error."""
        ...


class ChannelStream(Protocol):
    """The writing half of an open stream."""

    def send(self, message: bytes) -> None:
        """Send a message; nothing after the end."""
        ...

    def half_close(self) -> None:
        """End the sending side."""
        ...

    def done_with(self, message_bytes: int) -> None:
        """Note that one more message, of so many bytes, was consumed."""
        ...

    def cancel(self) -> None:
        """Cancel the stream; the sink is not called any more."""
        ...


class Channel(Protocol):
    """A connection to a store."""

    def start(self) -> None:
        """Start, on the running loop."""
        ...

    async def call(
        self, method: int, body: bytes, limit_s: float | None, metadata: Metadata | None
    ) -> bytes:
        """Return the reply to a unary call; CallFailedError if there is none within limit_s.

        None: no time limit after it was sent.
        """
        ...

    def open(self, method: int, metadata: Metadata | None, sink: Sink) -> ChannelStream:
        """Open a stream."""
        ...

    def local_revision(self) -> int | None:
        """Return the store's revision if it is known without a call; else None.

        It is then as new as a linearizable read's.
        """
        ...

    @property
    def endpoint_count(self) -> int:
        """The number of endpoints."""
        ...

    async def replace(self, endpoints: Sequence[Endpoint]) -> None:
        """Use other endpoints; those that stay keep their connections."""
        ...

    async def close(self) -> None:
        """Close the channel; open calls fail with UNAVAILABLE."""
        ...
