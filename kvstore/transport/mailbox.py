"""A queue between two threads: the loop thread adds calls and frames, the driver takes them all.

    loop thread                          driver thread
    add_call, add_frame, ... ──► Inbox ──► take(timeout)

Rule: one lock, held for a few appends or one swap; at most one wake-up per wait. The order within
one stream is kept: opened, its frames, half-closed, gone.

Limits: the number of waiting calls is bounded (`add_call` refuses) and so are their bytes (readers
pause). One `take` returns at most `calls_max` calls and about `bytes_max` bytes; the rest stays for
the next.

Under load a take waits a moment for more. The two threads share the interpreter lock, so each
wake-up and each turn takes time from the loop thread; fewer and larger turns carry more. A single
client never waits, because it has one call at a time.

It contains nothing about sockets or gRPC.
"""

import contextlib
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

from kvstore.batch import Inbox, Metadata


@dataclass(frozen=True, slots=True)
class MailboxLimits:
    """Limits on one take, and on what may wait for it."""

    calls_max: int = 8192  # per take
    bytes_max: int = 64 << 20  # per take; the message that exceeds it is still returned
    waiting_calls_max: int = 65_536
    waiting_bytes_max: int = 256 << 20  # requests that are being read at this point still come in
    stream_frames_max: int = 256  # per stream, not taken
    stream_bytes_max: int = 4 << 20  # per stream, not taken; the frame that exceeds it is accepted
    gather_from: int = 4  # after a take of this many calls and frames, the next one waits for more
    gather_s: float = 0.001  # for this long, unless it is woken


class ReadAhead:
    """What was read of one stream and not yet taken; reset by every full take."""

    __slots__ = ("bytes", "frames", "generation")

    def __init__(self) -> None:
        self.frames = 0
        self.bytes = 0
        self.generation = 0


class Mailbox:
    """An Inbox filled by one thread and taken by another."""

    def __init__(self, limits: MailboxLimits, resume: Callable[[], None]) -> None:
        """Make an empty mailbox; resume is called after a take that lets paused readers go on."""
        self._limits = limits
        self._resume = resume
        self._lock = threading.Lock()
        self._inbox = Inbox()
        self._bytes = 0
        self._generation = 0
        self._paused = False
        self._waiting = False
        self._busy = False  # the last take was large
        self._pending = False  # something is in the inbox, or wake() was called
        self._wakeups: queue.SimpleQueue[None] = queue.SimpleQueue()

    def add_call(
        self, call_id: int, method_id: int, body: bytes, metadata: Metadata | None
    ) -> bool:
        """Add a unary or server-stream call; False: too many are waiting, it was not added."""
        with self._lock:
            inbox = self._inbox
            if len(inbox.calls) >= self._limits.waiting_calls_max:
                return False
            inbox.calls.append((call_id, method_id, body))
            if metadata is not None:
                inbox.metadata[call_id] = metadata
            self._bytes += len(body)
            self._signal()
        return True

    def has_room(self) -> bool:
        """Return whether a request may be read now; if not, resume is called once one may."""
        if self._bytes < self._limits.waiting_bytes_max:
            return True
        with self._lock:
            if self._bytes < self._limits.waiting_bytes_max:
                return True
            self._paused = True
        return False

    def add_opened(self, stream_id: int, method_id: int, metadata: Metadata | None) -> bool:
        """Add a new bidi stream; False: too many are waiting, it was not added."""
        with self._lock:
            inbox = self._inbox
            if len(inbox.opened) >= self._limits.waiting_calls_max:
                return False
            inbox.opened.append((stream_id, method_id))
            if metadata is not None:
                inbox.metadata[stream_id] = metadata
            self._signal()
        return True

    def add_frame(self, stream_id: int, message: bytes, ahead: ReadAhead) -> bool:
        """Add a stream's message; False: the reader must pause until resume is called."""
        with self._lock:
            self._inbox.frames.append((stream_id, message))
            self._bytes += len(message)
            if ahead.generation != self._generation:
                ahead.generation = self._generation
                ahead.frames = ahead.bytes = 0
            ahead.frames += 1
            ahead.bytes += len(message)
            self._signal()
            full = (
                ahead.frames >= self._limits.stream_frames_max
                or ahead.bytes >= self._limits.stream_bytes_max
                or self._bytes >= self._limits.waiting_bytes_max
            )
            if full:
                self._paused = True
        return not full

    def add_half_closed(self, stream_id: int) -> None:
        """Note that the client will send no more on a stream."""
        with self._lock:
            self._inbox.half_closed.append(stream_id)
            self._signal()

    def add_gone(self, call_id: int) -> None:
        """Note that the client of a call or stream has gone."""
        with self._lock:
            self._inbox.gone.append(call_id)
            self._signal()

    def wake(self) -> None:
        """Make a waiting take return; from any thread or signal handler (it takes no lock)."""
        self._pending = True
        self._wakeups.put(None)

    def take(self, timeout_s: float) -> Inbox:
        """Wait for arrivals, wake() or the end of timeout_s; return what arrived."""
        if self._busy and timeout_s > 0:
            self._sleep(min(self._limits.gather_s, timeout_s))
        with self._lock:
            self._waiting = wait = not self._pending and timeout_s > 0
        if wait:
            self._sleep(timeout_s)
        while not self._wakeups.empty():
            self._wakeups.get_nowait()
        with self._lock:
            taken = self._swap()
            resume = self._paused and not self._inbox.frames
            if not self._inbox.frames:  # else the streams of these frames are still over the limit
                self._generation += 1
                self._paused = False
        if resume:
            self._resume()
        self._busy = len(taken.calls) + len(taken.frames) >= self._limits.gather_from
        return taken

    def _sleep(self, timeout_s: float) -> None:
        with contextlib.suppress(queue.Empty):
            self._wakeups.get(timeout=timeout_s)

    def _swap(self) -> Inbox:
        """Replace the inbox by an empty one, or by what exceeds one take; return the old one."""
        self._waiting = self._pending = False
        taken, self._inbox = self._inbox, Inbox()
        if self._bytes > self._limits.bytes_max or len(taken.calls) > self._limits.calls_max:
            self._put_back_rest(taken)
        else:
            self._bytes = 0
        return taken

    def _signal(self) -> None:
        self._pending = True
        if self._waiting:
            self._waiting = False
            self._wakeups.put(None)

    def _put_back_rest(self, taken: Inbox) -> None:
        """Move what exceeds the limits of one take from taken into the new inbox."""
        rest, limits = self._inbox, self._limits
        calls_end, left_bytes = _fit(taken.calls, limits.calls_max, limits.bytes_max)
        frames_end, _ = _fit(taken.frames, len(taken.frames), left_bytes)
        rest.calls = taken.calls[calls_end:]
        rest.frames = taken.frames[frames_end:]
        del taken.calls[calls_end:], taken.frames[frames_end:]
        later_ids = {call[0] for call in rest.calls} | {frame[0] for frame in rest.frames}
        for name in ("half_closed", "gone"):
            ids: list[int] = getattr(taken, name)
            setattr(rest, name, [i for i in ids if i in later_ids])
            setattr(taken, name, [i for i in ids if i not in later_ids])
        for call in rest.calls:
            if (metadata := taken.metadata.pop(call[0], None)) is not None:
                rest.metadata[call[0]] = metadata
        self._bytes = sum(len(c[2]) for c in rest.calls) + sum(len(f[1]) for f in rest.frames)
        self._pending = True


def _fit(
    items: list[tuple[int, int, bytes]] | list[tuple[int, bytes]], count_max: int, bytes_max: int
) -> tuple[int, int]:
    """Return how many items fit both limits (at least one does), and the bytes that are left."""
    left_bytes = bytes_max
    for position, item in enumerate(items):
        size = len(item[-1])  # type: ignore[arg-type]
        if position >= count_max or (size > left_bytes and position):
            return position, left_bytes
        left_bytes = max(0, left_bytes - size)
    return len(items), left_bytes
