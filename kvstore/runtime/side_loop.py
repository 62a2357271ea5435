"""The side loop: an asyncio loop in a thread beside the turn, for HTTP and for composite services.

    driver's thread                         side loop's thread
    inbox.requests ──fill──►  on_request(request)   ──respond──┐
    out.services  ──drain──►  on_service(call)      ──reply────┤
                  ◄─drain─────────── what is to be sent ◄──────┘

The JSON gateway, status pages, locks and elections run here. They reach the node only through
`client`, as a remote client would. A call belongs to the loop until its handler returns: its frames
and half-close go to the loop and not to the node, and the handler is cancelled when its client goes
away.

A handler answers its own errors. An exception that it lets pass is logged, and the call is answered
with INTERNAL.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Final, TypeVar

from kvstack.component.logger import Logger
from kvstore.batch import Inbox, Outbox, PortRequest, PortResponse, ServiceCall
from kvstore.errors import Code, KvstoreError
from kvstore.runtime.local_client import LocalClient

_STOP_S: Final = 5.0
TASKS_MAX: Final = 4096  # requests and calls being served; more are refused

T = TypeVar("T")
OnRequest = Callable[[PortRequest], Coroutine[None, None, None]]
OnService = Callable[[ServiceCall], Coroutine[None, None, None]]
OnFrames = Callable[[list[tuple[int, bytes]], list[int], list[int]], None]


class SideLoop:
    """The thread, its loop, its client of the node, and the tasks it serves."""

    def __init__(
        self, wake: Callable[[], None], logger: Logger, *, tasks_max: int = TASKS_MAX
    ) -> None:
        """Make the loop; wake makes the driver run a turn."""
        self._wake = wake
        self._tasks_max = tasks_max
        self._logger = logger
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="side-loop", daemon=True)
        self._lock = threading.Lock()
        self._outgoing = Outbox()
        self._has_outgoing = False
        self._owned: set[int] = set()  # calls that are handled here, from their arrival on
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._is_stopping = False
        self._is_over = False  # with _lock: nothing more is submitted to the loop
        self.backlog: dict[int, int] = {}  # id → unsent bytes, as of the last turn
        self.client: Final = LocalClient(self._loop, wake)
        self.on_request: OnRequest | None = None
        self.on_service: OnService | None = None
        self.on_frames: OnFrames | None = None  # (frames, half-closed, gone) of owned ids

    # Start and stop.

    def start(self) -> None:
        """Run the loop in its thread."""
        self._thread.start()

    def run(self, coroutine: Coroutine[None, None, None], name: str) -> None:
        """Run a background coroutine until it ends or the loop stops."""

        def begin() -> None:
            task = self._loop.create_task(self._guarded(coroutine, name), name=name)
            self._background.add(task)
            task.add_done_callback(self._background.discard)

        self._loop.call_soon_threadsafe(begin)

    def call(self, function: Callable[[], None]) -> None:
        """Call a function on the loop, soon."""
        self._loop.call_soon_threadsafe(function)

    def submit(self, coroutine: Coroutine[None, None, T]) -> Future[T]:
        """Run a coroutine on the loop; another thread may wait for the future.

        The future is cancelled when the loop stops, or if it has stopped.
        """
        with self._lock:
            if not self._is_over:
                return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        coroutine.close()
        refused: Future[T] = Future()
        refused.cancel()
        return refused

    def stop(self) -> None:
        """Cancel all tasks and end the thread."""
        if not self._thread.is_alive():
            return
        self._loop.call_soon_threadsafe(self._begin_stop)
        self._thread.join(_STOP_S)
        if self._thread.is_alive():
            raise KvstoreError(f"the side loop did not stop within {_STOP_S} s")

    def _begin_stop(self) -> None:
        self._is_stopping = True
        self._loop.create_task(self._cancel_all())

    async def _cancel_all(self) -> None:
        tasks = [*self._tasks.values(), *self._background]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._loop.stop()

    async def _cancel_submitted(self) -> None:
        """Cancel all other tasks, so that no thread waits for a future that is never set."""
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            with self._lock:
                self._is_over = True
            self._loop.run_until_complete(self._cancel_submitted())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    async def _guarded(self, coroutine: Coroutine[None, None, None], name: str) -> None:
        try:
            await coroutine
        except Exception as error:  # noqa: BLE001 - logged; other tasks go on
            self._logger.error("a task of the side loop failed", task=name, error=repr(error))

    # Answers (on the loop).

    def respond(self, response: PortResponse) -> None:
        """Answer an HTTP request."""
        self._enqueue(lambda out: out.responses.append(response))

    def reply(self, call_id: int, code: int, body: bytes) -> None:
        """Answer a unary service call; for a code other than 0, body is the error's text."""
        self._enqueue(lambda out: out.replies.append((call_id, code, body)))

    def deliver(self, stream_id: int, message: bytes) -> None:
        """Send one message of a streamed answer."""
        self._enqueue(lambda out: out.deliveries.append((stream_id, message, b"")))

    def end(self, stream_id: int, code: int = Code.OK, text: str = "") -> None:
        """End a streamed answer."""
        self._enqueue(lambda out: out.ends.append((stream_id, code, text.encode())))

    def _enqueue(self, add: Callable[[Outbox], None]) -> None:
        with self._lock:
            add(self._outgoing)
            self._has_outgoing = True
        self._wake()

    def request_turn(self) -> None:
        """Make the driver run a turn, which updates `backlog`."""
        self._wake()

    # For the driver.

    def fill(self, inbox: Inbox) -> None:
        """Remove the loop's calls and frames from the inbox, and add the calls of its client."""
        if inbox.requests:
            requests, inbox.requests = inbox.requests, []
            self._owned.update([request[0] for request in requests])
            self._loop.call_soon_threadsafe(self._begin_requests, requests)
        if self._owned:
            self._take_owned(inbox)
        self.client.fill(inbox)

    def drain(self, out: Outbox) -> None:
        """Pass service calls to the loop and answers to its client; add the loop's answers."""
        if out.services:
            services, out.services = out.services, []
            self._owned.update([call[0] for call in services])
            self._loop.call_soon_threadsafe(self._begin_services, services)
        if self._has_outgoing:
            with self._lock:
                outgoing, self._outgoing = self._outgoing, Outbox()
                self._has_outgoing = False
            out.responses += outgoing.responses
            out.replies += outgoing.replies
            out.deliveries += outgoing.deliveries
            out.ends += outgoing.ends
        self.client.drain(out)

    def _take_owned(self, inbox: Inbox) -> None:
        owned = self._owned
        self.backlog = inbox.backlog
        frames = [frame for frame in inbox.frames if frame[0] in owned]
        half_closed = [each for each in inbox.half_closed if each in owned]
        if frames:
            inbox.frames = [frame for frame in inbox.frames if frame[0] not in owned]
        if half_closed:
            inbox.half_closed = [each for each in inbox.half_closed if each not in owned]
        gone = [each for each in inbox.gone if each in owned]
        if frames or half_closed or gone:
            self._loop.call_soon_threadsafe(self._on_arrivals, frames, half_closed, gone)

    # On the loop.

    def _on_arrivals(
        self, frames: list[tuple[int, bytes]], half_closed: list[int], gone: list[int]
    ) -> None:
        if self.on_frames is not None:
            self.on_frames(frames, half_closed, gone)
        for each in gone:
            if (task := self._tasks.get(each)) is not None:
                task.cancel()

    def _begin_requests(self, requests: list[PortRequest]) -> None:
        for request in requests:
            if self.on_request is None:
                self._owned.discard(request[0])
                self.respond((request[0], 404, [], b"404 page not found\n"))
            elif len(self._tasks) >= self._tasks_max or self._is_stopping:
                self._owned.discard(request[0])
                self.respond((request[0], 503, [], b"too many requests\n"))
            else:
                self._begin(request[0], self.on_request(request), self._failed_request)

    def _begin_services(self, calls: list[ServiceCall]) -> None:
        for call in calls:
            if self.on_service is None:
                self._owned.discard(call[0])
                self.reply(call[0], Code.UNIMPLEMENTED, b"unknown service")
            elif len(self._tasks) >= self._tasks_max or self._is_stopping:
                self._owned.discard(call[0])
                self.reply(call[0], Code.RESOURCE_EXHAUSTED, b"too many calls in the server")
            else:
                self._begin(call[0], self.on_service(call), self._failed_service)

    def _begin(
        self,
        call_id: int,
        coroutine: Coroutine[None, None, None],
        failed: Callable[[int], None],
    ) -> None:
        task = self._loop.create_task(coroutine, name=f"call {call_id}")
        self._tasks[call_id] = task

        def over(task: asyncio.Task[None]) -> None:
            del self._tasks[call_id]
            self._owned.discard(call_id)
            error = None if task.cancelled() else task.exception()
            if error is not None:
                self._logger.error("a handler failed", call=call_id, error=repr(error))
                failed(call_id)

        task.add_done_callback(over)

    def _failed_request(self, call_id: int) -> None:
        self.respond((call_id, 500, [], b"internal error\n"))

    def _failed_service(self, call_id: int) -> None:
        self.reply(call_id, Code.INTERNAL, b"internal error")
        self.end(call_id, Code.INTERNAL, "internal error")
