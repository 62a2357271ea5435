"""A transport without sockets: requests of the same process, on the same loop.

    loopback = LocalTransport()
    server = HttpServer([], handler, transport=loopback)
    await server.start()
    response = await loopback.request("GET", "/version", headers, b"")
    response.status, await response.read()

A request is served as any other: the same handler, the same rules of back-pressure,
endless answers and drains. Only sockets and HTTP's encoding are left out.

- Requests made in one iteration of the loop arrive together, in the next one.
- A client that closes its response before the end, is cancelled, or has waited for its head as long
  as it would, counts as disconnected.
- After a stop every request is refused with `ConnectionRefusedError`.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence

from kvstack.component.call_deadlines import Deadlines
from kvstack.component.http.serving.listeners import ListenerLimits
from kvstack.component.http.serving.transport import Arrival, Connection, Headers, Sink

_NAME = "loopback"


class LocalHead:
    """The headers of a request, names in lower case."""

    __slots__ = ("_items",)

    def __init__(self, items: list[tuple[str, str]]) -> None:
        self._items = items

    def get(self, name: str) -> str | None:
        """Return the first value of a header."""
        for each, value in self._items:
            if each == name:
                return value
        return None

    def get_all(self, name: str) -> list[str]:
        """Return all values of a header, in order."""
        return [value for each, value in self._items if each == name]

    def items(self) -> list[tuple[str, str]]:
        """Return all headers."""
        return list(self._items)

    def has_prefix(self, prefix: str) -> bool:
        """Return whether there is a header whose name begins so."""
        return any(name.startswith(prefix) for name, _ in self._items)


class LocalResponse:
    """The client's side of an answer; it ends with `close`, or with its last piece."""

    __slots__ = (
        "_call",
        "_is_late",
        "_is_over",
        "_is_whole",
        "_pieces",
        "_transport",
        "_unread_bytes",
        "_waiter",
        "_writable_below",
        "headers",
        "status",
    )

    def __init__(self, transport: "LocalTransport", call: int) -> None:
        self._transport = transport
        self._call = call
        self._pieces: deque[bytes] = deque()
        self._unread_bytes = 0
        self._writable_below = -1  # the server's limit for an event; -1: none
        self._is_late = False
        self._is_over = False
        self._is_whole = False
        self._waiter: asyncio.Future[None] | None = None
        self.status = 0  # 0: not answered yet
        self.headers: Headers = ()

    def header(self, name: str) -> str:
        """Return the first value of a header, whatever the case of its name; empty: none."""
        lower = name.lower()
        return next((value for each, value in self.headers if each.lower() == lower), "")

    async def next(self) -> bytes:
        """Return the next piece; empty at the end; ConnectionResetError for an aborted answer."""
        while not self._pieces:
            if self._is_over:
                if self._is_whole:
                    return b""
                raise ConnectionResetError("the answer was aborted")
            await self._change()
        piece = self._pieces.popleft()
        self._unread_bytes -= len(piece)
        if self._unread_bytes <= self._writable_below:
            self._writable_below = -1
            self._transport.on_writable(self._call)
        return piece

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives."""
        while piece := await self.next():
            yield piece

    async def read(self) -> bytes:
        """Return the whole body."""
        return b"".join([piece async for piece in self.pieces()])

    def close(self) -> None:
        """Disconnect, if the answer has not ended."""
        if not self._is_over:
            self._is_over = True
            self._transport.disconnect(self._call)

    # The transport's side.

    async def answered(self) -> None:
        """Wait for the head of the answer."""
        while not self.status:
            if self._is_over:
                raise ConnectionResetError("the request was not answered")
            if self._is_late:
                raise TimeoutError
            await self._change()

    def expire(self) -> None:
        """End the client's wait, unless the answer has begun."""
        if not self.status:
            self._is_late = True
            self._wake()

    def add(self, data: bytes) -> int:
        """Add a piece; return how many bytes are unread."""
        self._pieces.append(data)
        self._unread_bytes += len(data)
        self._wake()
        return self._unread_bytes

    def begin(self, status: int, headers: Headers) -> None:
        """Set the head."""
        self.status, self.headers = status, headers
        self._wake()

    def end(self, *, is_whole: bool) -> None:
        """End the body."""
        self._is_over, self._is_whole = True, is_whole
        self._wake()

    def notify_writable(self, unsent_bytes_max: int) -> bool:
        """Request an event once so few bytes are unread; true if they are now."""
        if self._unread_bytes <= unsent_bytes_max:
            return True
        self._writable_below = unsent_bytes_max
        return False

    @property
    def unread_bytes(self) -> int:
        """How many bytes are unread."""
        return self._unread_bytes

    async def _change(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class LocalTransport:
    """Carries requests from callers to a server of the same loop; an `HttpTransport`."""

    def __init__(self, limits: ListenerLimits | None = None) -> None:
        """Create a transport that is not started."""
        self._connection = Connection(_NAME, _NAME, limits or ListenerLimits())
        self._sink: Sink | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._deadlines: Deadlines | None = None
        self._open: dict[int, LocalResponse] = {}
        self._last = 0
        self._arrivals: list[Arrival] = []
        self._disconnected: list[int] = []
        self._writable: list[int] = []
        self._is_scheduled = False
        self._is_draining = False

    # The client's side.

    async def request(
        self,
        method: str,
        target: str,
        headers: Sequence[tuple[str, str]] = (),
        body: bytes = b"",
        *,
        timeout_s: float | None = None,
    ) -> LocalResponse:
        """Send a request, and return once the head of its answer is there.

        TimeoutError if it has not arrived after timeout_s, ConnectionError if it will never arrive.
        """
        if self._sink is None or self._is_draining or self._deadlines is None:
            raise ConnectionRefusedError("the server accepts no requests")
        self._last += 1
        call = self._last
        response = self._open[call] = LocalResponse(self, call)
        items = [(name.lower(), value) for name, value in headers]
        items.append(("host", _NAME))
        if body:
            items.append(("content-length", str(len(body))))
        head = LocalHead(items)
        self._arrivals.append(
            Arrival(
                call, self._connection, method, target, "HTTP/1.1", head, body, may_upgrade=False
            )
        )
        self._schedule()
        if timeout_s is not None:
            self._deadlines.add(call, timeout_s)
        try:
            await response.answered()
        except (asyncio.CancelledError, TimeoutError):
            response.close()
            raise
        return response

    def disconnect(self, call: int) -> None:
        """Report a client's disconnection."""
        if self._open.pop(call, None) is not None:
            self._disconnected.append(call)
            self._schedule()

    def on_writable(self, call: int) -> None:
        """Report that a client has read enough."""
        self._writable.append(call)
        self._schedule()

    # The server's side.

    async def start(self, sink: Sink) -> list[str]:
        """Accept requests from now on."""
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self._deadlines = Deadlines(self._loop, self._open, self._expire)
        return []

    def respond(
        self, call: int, status: int, headers: Headers, body: bytes | None, *rest: bytes
    ) -> None:
        """Answer with the complete body, or (None) with a head before writes."""
        response = self._open.get(call)
        if response is None:
            return
        response.begin(status, tuple(headers))
        if body is not None:
            for part in (body, *rest):
                if part:
                    response.add(part)
            self.end(call, is_whole=True)

    def write(self, call: int, data: bytes) -> int | None:
        """Send bytes of an answer."""
        response = self._open.get(call)
        return None if response is None else response.add(data)

    def write_all(self, calls: list[int], data: bytes, unsent_bytes_max: int) -> list[int]:
        """Send the same bytes to many answers."""
        found = self._open
        lagging = []
        for call in calls:
            response = found.get(call)
            if response is not None and response.add(data) - len(data) > unsent_bytes_max:
                lagging.append(call)
        return lagging

    def end(self, call: int, *, is_whole: bool) -> None:
        """End an answer."""
        response = self._open.pop(call, None)
        if response is not None:
            response.end(is_whole=is_whole)

    def take(self, call: int, size: int) -> None:
        """Do nothing: bodies come with their requests."""

    def notify_writable(self, call: int, unsent_bytes_max: int) -> bool:
        """Request a `writable` event once so few bytes are unread; true if they are now."""
        response = self._open.get(call)
        return response is None or response.notify_writable(unsent_bytes_max)

    def unsent(self, calls: list[int]) -> list[int]:
        """Return how many bytes of each answer are unread."""
        found = map(self._open.get, calls)
        return [0 if each is None else each.unread_bytes for each in found]

    def cut(self, call: int) -> None:
        """End an answer at once."""
        self.end(call, is_whole=False)
        self._disconnected.append(call)
        self._schedule()

    def stalled(self, limit_s: float) -> list[int]:
        """Return none: callers are parts of the same program, and read."""
        del limit_s
        return []

    @property
    def is_local(self) -> bool:
        """Whether its clients are parts of this program."""
        return True

    @property
    def shares_bytes(self) -> bool:
        """Whether bytes of several answers are held once."""
        return True

    def drain(self) -> None:
        """Accept no more requests."""
        self._is_draining = True

    @property
    def is_drained(self) -> bool:
        """Whether every accepted request was delivered."""
        return self._is_draining and not self._arrivals

    async def stop(self, grace_s: float) -> None:
        """Abort open answers."""
        self._is_draining = True
        for call in list(self._open):
            self.end(call, is_whole=False)
        self._sink = None
        if self._deadlines is not None:
            self._deadlines.close()

    def _expire(self, call: int) -> None:
        self._open[call].expire()

    def _schedule(self) -> None:
        if not self._is_scheduled and self._loop is not None:
            self._is_scheduled = True
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        self._is_scheduled = False
        sink = self._sink
        arrivals, self._arrivals = self._arrivals, []
        disconnected, self._disconnected = self._disconnected, []
        writable, self._writable = self._writable, []
        if sink is None:
            for arrival in arrivals:
                self.end(arrival.id, is_whole=False)
            return
        arrivals = [arrival for arrival in arrivals if arrival.id in self._open]
        if arrivals:
            sink.on_requests(arrivals)
        if disconnected or writable:
            sink.on_progress((), (), disconnected, writable)
