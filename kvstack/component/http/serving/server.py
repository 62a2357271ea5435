"""An HTTP server on the running asyncio loop.

    async def handle(request: Request, answer: Answer) -> None: ...

    server = HttpServer([Listener("http://127.0.0.1:8080")], handle)
    await server.start()          listens at server.urls
    server.drain()                no new connections, GOAWAY and Connection: close; answers go on
    await server.drained()        until every answer is sent, except the endless ones
    await server.stop(grace_s)    ends the endless ones, too, waits for the others, closes

Everything that has arrived is read once per loop iteration, everything to be sent is flushed once.
A handler that does not wait costs no task. Rules for handlers:

- A handler is cancelled when its client disconnects before the end of the answer, and when the
  grace period of a stop is over.
- An answer of which the client takes nothing for `ListenerLimits.write_stall_timeout_s` although
  bytes wait is cut, as if the client had disconnected.
- An answer that is open when the handler returns is ended. If the handler fails, or has not
  answered, the error goes to the loop's exception handler, and the client gets 500 or an incomplete
  body.
- A BodyTooLargeError that the handler does not catch becomes 413.

Requests are not interpreted here, and errors are plain text; a handler may send its own.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from kvstack.component.errors import ComponentError
from kvstack.component.http.serving import native
from kvstack.component.http.serving.answer import Answer, State
from kvstack.component.http.serving.handler_tasks import HandlerTasks
from kvstack.component.http.serving.listeners import Listener
from kvstack.component.http.serving.request import BodyTooLargeError, Pieces, Request
from kvstack.component.http.serving.transport import Arrival, HttpTransport
from kvstack.component.virtual_time.loop import RealTimer, call_real_later

Handler: TypeAlias = Callable[[Request, Answer], Coroutine[Any, Any, None]]

_PLAIN: Final = (
    ("Content-Type", "text/plain; charset=utf-8"),
    ("X-Content-Type-Options", "nosniff"),
)
_CLOSE: Final = ("Connection", "close")
_CALL_OF: Final = attrgetter("call")
_STALL_LOOKS: Final = 6  # per limit
_LAST_BYTES_S: Final = 0.5  # for unsent bytes when a stop has no time left


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """Settings of all listeners."""

    requests_max: int = 100_000  # open; more are refused with 503
    portable: bool = False  # without the crate, even if it is built


def _portable(listeners: Sequence[Listener]) -> HttpTransport:
    from kvstack.component.http.serving.portable import (
        PortableTransport,  # only where it serves: it is large
    )

    return PortableTransport(listeners)


class HttpServer:
    """Serves one handler at one or more addresses."""

    def __init__(
        self,
        listeners: Sequence[Listener],
        handler: Handler,
        options: HttpOptions | None = None,
        on_notice: Callable[[str], None] | None = None,
        *,
        transport: HttpTransport | None = None,
    ) -> None:
        """Create the server. on_notice gets a log line for each connection closed by us.

        transport: carries requests instead of sockets; then there are no listeners.
        """
        self._options = options or HttpOptions()
        is_native = native.is_available() and not self._options.portable
        if transport is not None:
            self._transport: HttpTransport = transport
        elif is_native:
            self._transport = native.NativeTransport(listeners)
        else:
            self._transport = _portable(listeners)
        self._handler = handler
        self._on_notice = on_notice
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: HandlerTasks | None = None
        self._open: dict[int, Answer] = {}  # by call; their handlers wait
        self._unwritten: dict[int, Answer] = {}  # by call; with waiters for their writing
        limits = [each.limits.write_stall_timeout_s for each in listeners]
        self._stall_limit_s = min((each for each in limits if each > 0), default=0.0)
        self._stall_timer: asyncio.TimerHandle | RealTimer | None = None
        self._is_draining = False
        self._is_stopped = False
        self._waiters: list[asyncio.Future[None]] = []  # for the end of a drain, or of the server
        self._failure: ComponentError | None = None
        self.urls: list[str] = []  # with the bound ports, in the order of the listeners

    # Life cycle.

    async def start(self) -> None:
        """Listen and serve on the running loop; ConfigError for an address that cannot be bound."""
        self._loop = asyncio.get_running_loop()
        self._tasks = HandlerTasks(self._loop)
        self.urls = await self._transport.start(self)
        self._look_for_stalls()

    def drain(self) -> None:
        """Accept no new work where the protocol allows; open requests and endless answers go on."""
        self._is_draining = True
        self._transport.drain()

    def close_endless(self) -> None:
        """Ask the handlers of endless answers and of upgraded connections to end them."""
        for answer in list(self._open.values()):
            if answer.is_endless:
                answer.close()

    async def drained(self) -> None:
        """Wait, after drain(), until every answer is sent, except the endless ones."""
        while not self._is_drained():
            await self._next_event()

    async def serve(self) -> None:
        """Wait until the server has stopped; ComponentError if its transport failed."""
        while not self._is_stopped:
            if self._failure is not None:
                raise self._failure
            await self._next_event()

    async def stop(self, grace_s: float = 0.0) -> None:
        """Drain, end endless answers, wait up to grace_s for the others, close everything."""
        if self._tasks is None or self._is_stopped:
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace_s
        self.drain()
        self.close_endless()
        try:
            async with asyncio.timeout_at(deadline):
                await self.drained()
                while self._open:
                    await self._next_event()
        except TimeoutError:
            pass
        for answer in list(self._open.values()):
            if answer.task is not None:
                answer.task.cancel()
        tasks = [answer.task for answer in self._open.values() if answer.task is not None]
        if tasks:
            await asyncio.wait(tasks)
        if self._stall_timer is not None:
            self._stall_timer.cancel()
        await self._transport.stop(max(deadline - loop.time(), _LAST_BYTES_S))
        self._tasks.close()
        self._is_stopped = True
        self._notify()

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop at once."""
        await self.stop()

    # Answers.

    def write_all(
        self, answers: Iterable[Answer], data: bytes, unsent_bytes_max: int = 1 << 20
    ) -> list[Answer]:
        """Send the same bytes, shared, to all these answers; return those too far behind.

        That are those with more than unsent_bytes_max unsent when last checked. All must have been
        started, and none may be to HEAD; those that have ended get nothing.
        """
        if not data:
            return []
        calls = list(map(_CALL_OF, answers))
        lagging = self._transport.write_all(calls, data, unsent_bytes_max)
        return [self._open[call] for call in lagging if call in self._open]

    def unsent(self, answers: Sequence[Answer]) -> list[int]:
        """Return how many bytes of each answer are unsent."""
        return self._transport.unsent(list(map(_CALL_OF, answers)))

    @property
    def shares_bytes(self) -> bool:
        """Whether bytes that are written to several answers are held once."""
        return self._transport.shares_bytes

    def _look_for_stalls(self) -> None:
        """Cut answers of which nothing is taken; look again in a while, by the machine's clock."""
        limit_s = self._stall_limit_s
        if not limit_s or self._loop is None:
            return
        stalled = self._transport.stalled(limit_s)
        for call in stalled:
            self._transport.cut(call)
        if stalled:
            self.on_notice(
                f"answers ended: their clients took nothing for {limit_s:g} s: {len(stalled)}"
            )
        self._stall_timer = call_real_later(
            self._loop, limit_s / _STALL_LOOKS, self._look_for_stalls
        )

    @property
    def open_count(self) -> int:
        """The number of requests whose handlers wait."""
        return len(self._open)

    # The transport's side.

    def on_requests(self, requests: Sequence[Arrival]) -> None:
        """Handle new requests."""
        tasks, transport, handler = self._tasks, self._transport, self._handler
        assert tasks is not None, "the transport was started by start()"
        tasks.enter()
        try:
            for call, connection, method, target, version, head, body, may_upgrade in requests:
                pieces = Pieces(transport, call) if body is None else None
                request = Request(
                    connection, method, target, version, head, body, pieces, may_upgrade=may_upgrade
                )
                answer = Answer(transport, call, pieces, is_head=method == "HEAD")
                if len(self._open) >= self._options.requests_max:
                    self._refuse(answer, 503, "too many requests are being handled")
                    continue
                try:
                    waiting = tasks.begin(handler(request, answer))
                except (KeyboardInterrupt, SystemExit):
                    raise
                except BaseException as error:  # noqa: BLE001 - an error of this request
                    self._end(answer, error)
                    continue
                if waiting is not None:
                    answer.waiting = waiting
                    waiting.on_end = partial(self._end, answer)
                    self._open[call] = answer
                elif answer.state is not State.OVER:
                    self._end(answer, None)
                elif answer.on_written is not None:
                    self._unwritten[call] = answer
        finally:
            tasks.leave()

    def on_progress(
        self,
        pieces: Sequence[tuple[int, bytes]],
        ended: Sequence[int],
        disconnected: Sequence[int],
        writable: Sequence[int],
    ) -> None:
        """Handle events of open requests."""
        find, unwritten = self._open.get, self._unwritten
        for call, piece in pieces:
            if (answer := find(call)) is not None:
                answer.on_body(piece)
        for call in ended:
            if (answer := find(call)) is not None:
                answer.on_body_end()
        for call in writable:
            if (answer := find(call) or unwritten.pop(call, None)) is not None:
                answer.on_writable()
        for call in disconnected:
            if (answer := find(call) or unwritten.pop(call, None)) is not None:
                answer.on_disconnect()
        self._notify()

    def on_notice(self, notice: str) -> None:
        """Pass on a line for the log."""
        if self._on_notice is not None:
            self._on_notice(notice)

    def on_failure(self, error: ComponentError) -> None:
        """Fail all requests, because the transport failed."""
        self._failure = error
        for answer in [*self._open.values(), *self._unwritten.values()]:
            answer.on_disconnect()
        self._unwritten.clear()
        self._report("the HTTP server failed", error)
        self._notify()

    # The end of a handler.

    def _end(self, answer: Answer, error: BaseException | None) -> None:
        """End the answer of a handler that has returned or failed."""
        self._open.pop(answer.call, None)
        answer.waiting = None  # which has the answer in its `on_end`
        is_cancelled = isinstance(error, asyncio.CancelledError)
        is_too_large = isinstance(error, BodyTooLargeError)
        if answer.state is State.NONE:
            if is_too_large:
                self._refuse(answer, 413, str(error))
            elif is_cancelled:
                self._refuse(answer, 503, "the server is stopping")
            else:
                self._refuse(answer, 500, "internal error")
                error = error or RuntimeError("the request was not answered")
        elif error is None or (is_cancelled and answer.is_endless):
            answer.finish()
        else:
            answer.abort()
        if answer.on_written is not None:
            self._unwritten[answer.call] = answer
        if (
            error is not None
            and not is_cancelled
            and not answer.is_disconnected
            and not is_too_large
        ):
            self._report("an HTTP handler failed", error)
        if self._waiters:
            self._notify()

    def _refuse(self, answer: Answer, status: int, text: str) -> None:
        answer.send(status, [*_PLAIN, _CLOSE], f"{text}\n".encode())

    def _report(self, message: str, error: BaseException) -> None:
        if self._loop is not None:
            self._loop.call_exception_handler({"message": message, "exception": error})

    def _is_drained(self) -> bool:
        if any(not answer.is_endless for answer in self._open.values()):
            return False
        return self._transport.is_drained or self._failure is not None

    async def _next_event(self) -> None:
        """Wait for the next event that may end a drain or a stop."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def _notify(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
