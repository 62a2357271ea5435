"""The interface between sockets and an HTTP server on an asyncio loop.

    start(sink) ─► on the loop, once per batch: sink.on_requests(requests), then
                   sink.on_progress(pieces, ended, disconnected, writable)
    respond, write, write_all, end, take, notify_writable ─► gathered, flushed once per iteration

A request and its answer have a number (the "call"), which is used once and is above zero. Calls of
methods for a client that has disconnected do nothing.

- An **answer** is complete (`respond` with a body), or a head (body None) with writes and an end.
  After a head of status 101 both sides are raw bytes; the end closes the connection.
- A **body** that was read ahead comes with its request. Of any other (None) pieces arrive as fast
  as they are read: at most the listener's window is delivered and not read. The reader has to
  `take` 0 bytes to begin; 100 (Continue) is sent only then.
- **Back-pressure** in the other direction: `write` returns how many bytes are unsent.
  `notify_writable` requests an event once they are few. Bytes are unsent until the socket has taken
  them; this can still be asked of an answer that has ended.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias

from kvstack.component.errors import ComponentError
from kvstack.component.http.serving.listeners import ListenerLimits

Headers: TypeAlias = Sequence[tuple[str, str]]


class Connection:
    """The properties of a connection; the same object for all its requests."""

    __slots__ = (
        "__weakref__",
        "certificate_error",
        "certificates",
        "is_tls",
        "limits",
        "listener",
        "memo",
        "peer",
        "protocol",
        "server_name",
        "verified_by",
    )

    def __init__(
        self,
        listener: str,
        peer: str,
        limits: ListenerLimits,
        *,
        is_tls: bool = False,
        protocol: str = "",
        server_name: str = "",
        certificates: tuple[bytes, ...] = (),
        verified_by: tuple[str, ...] = (),
        certificate_error: str = "",
    ) -> None:
        self.listener = listener  # the listener's name, or its URL
        self.peer = peer  # address and port, or the path of a unix socket
        self.limits = limits
        self.is_tls = is_tls
        self.protocol = protocol  # negotiated in the handshake: "h2", "http/1.1" or ""
        self.server_name = server_name  # given by the client (SNI)
        self.certificates = certificates  # the client's chain in DER, its own first, as sent
        self.verified_by = verified_by  # names of authorities; empty: do not trust them
        self.certificate_error = certificate_error  # why no authority verifies them
        self.memo: object = None  # for the handler's use, as long as the connection is open


class Head(Protocol):
    """The headers of a request."""

    def get(self, name: str) -> str | None:
        """Return the first value of a header, None if there is none. `host` is always set."""
        ...

    def get_all(self, name: str) -> list[str]:
        """Return all values of a header, in order."""
        ...

    def items(self) -> list[tuple[str, str]]:
        """Return all headers, names in lower case."""
        ...

    def has_prefix(self, prefix: str) -> bool:
        """Return whether there is a header whose name begins so; prefix: in lower case."""
        ...


class Arrival(NamedTuple):
    """A request."""

    id: int
    connection: Connection
    method: str
    target: str  # path and query, as sent
    version: str  # "HTTP/1.1"
    head: Head
    body: bytes | None  # None: it arrives in pieces
    may_upgrade: bool  # another protocol is requested; bytes after a 101 arrive in pieces


class Sink(Protocol):
    """The server, as the transport calls it."""

    def on_requests(self, requests: Sequence[Arrival]) -> None:
        """Handle new requests."""
        ...

    def on_progress(
        self,
        pieces: Sequence[tuple[int, bytes]],
        ended: Sequence[int],
        disconnected: Sequence[int],
        writable: Sequence[int],
    ) -> None:
        """Handle events of open requests; also called at the end of a drain.

        ended: bodies that are complete; disconnected: calls whose clients are; writable: answers
        with so few unsent bytes as notify_writable asked for.
        """
        ...

    def on_notice(self, notice: str) -> None:
        """Log a line."""
        ...

    def on_failure(self, error: ComponentError) -> None:
        """Handle a failure of the transport."""
        ...


class HttpTransport(Protocol):
    """Owns the sockets. Use it on the loop it was started on."""

    async def start(self, sink: Sink) -> list[str]:
        """Listen; return the bound URLs. ConfigError for an address that cannot be bound."""
        ...

    def respond(
        self, call: int, status: int, headers: Headers, body: bytes | None, *rest: bytes
    ) -> None:
        """Answer; rest: further parts of a body. ValueError for an invalid header."""
        ...

    def write(self, call: int, data: bytes) -> int | None:
        """Send bytes; return how many are unsent, None if the client is disconnected."""
        ...

    def write_all(self, calls: list[int], data: bytes, unsent_bytes_max: int) -> list[int]:
        """Send the same bytes to many answers; return those with more bytes unsent."""
        ...

    def end(self, call: int, *, is_whole: bool) -> None:
        """End an answer; if it is not complete, the client gets a body without its end."""
        ...

    def take(self, call: int, size: int) -> None:
        """Note that bytes of a body were read, or (0) that its reader begins."""
        ...

    def notify_writable(self, call: int, unsent_bytes_max: int) -> bool:
        """Request a `writable` event once so few bytes are unsent; true if they are now."""
        ...

    def unsent(self, calls: list[int]) -> list[int]:
        """Return how many bytes of each of these answers are unsent."""
        ...

    def cut(self, call: int) -> None:
        """End an answer at once, without its unsent bytes; it is reported as disconnected.

        In HTTP/2 its stream is reset, in HTTP/1.1 its connection is closed.
        """
        ...

    def stalled(self, limit_s: float) -> list[int]:
        """Return the answers that wait for a window of HTTP/2 for limit_s.

        It is called several times per limit_s. A connection whose socket takes nothing is closed by
        the transport itself (`ListenerLimits.write_stall_timeout_s`).
        """
        ...

    @property
    def shares_bytes(self) -> bool:
        """Whether bytes that are written to several answers are held once."""
        ...

    @property
    def is_local(self) -> bool:
        """Whether its clients are parts of this program, whose connections do not break."""
        return False

    def drain(self) -> None:
        """Accept no more connections, send GOAWAY; open requests are still answered."""
        ...

    @property
    def is_drained(self) -> bool:
        """Whether, after drain(), all answers are sent, except those still being written."""
        ...

    async def stop(self, grace_s: float) -> None:
        """End open answers, send unsent bytes for up to grace_s, close everything."""
        ...
