"""Where the loop thread leaves what arrived and the driver thread takes it, all at once.

    loop thread                          driver thread
    add_call, add_frame, ... ──► Inbox ──► take(timeout)

Law: one lock, held for a few appends or one swap; at most one wake-up per wait. The order within
one stream is kept: opened, its frames, half-closed, gone.

Limits: what waits untaken is bounded in calls (`add_call` refuses) and in bytes (readers pause),
and one `take` hands out at most `calls_max` calls and about `bytes_max` bytes; the rest stays for
the next.

Under load a take waits a moment for more. The two threads share one interpreter lock, so each
wake-up and each turn takes time from the loop thread; fewer and larger turns carry more. A lone
client never waits, because it has one call at a time.

It knows no sockets and no gRPC.
"""

import contextlib
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

from kvstore.batch import Inbox, Metadata


@dataclass(frozen=True, slots=True)
class MailboxLimits:
    """How much one take hands out, and how much may wait for it."""

    calls_max: int = 8192  # per take
    bytes_max: int = 64 << 20  # per take; one message more than this is still handed out
    waiting_calls_max: int = 65_536
    waiting_bytes_max: int = 256 << 20  # what is being read when it is reached still comes in
    stream_frames_max: int = 256  # per stream, untaken
    stream_bytes_max: int = 4 << 20  # per stream, untaken; one frame more is still accepted
    gather_from: int = 4  # a take of so many calls and frames lets the next one gather
    gather_s: float = 0.001  # for so long, unless it is woken


class ReadAhead:
    """How much of one stream has been read but not taken; reset by every full take."""

    __slots__ = ("bytes", "frames", "generation")

    def __init__(self) -> None:
        self.frames = 0
        self.bytes = 0
        self.generation = 0


class Mailbox:
    """An Inbox filled by one thread and taken by another."""

    def __init__(self, limits: MailboxLimits, resume: Callable[[], None]) -> None:
        """Make an empty box; resume is called after a take that lets paused streams go on."""
        self._limits = limits
        self._resume = resume
        self._lock = threading.Lock()
        self._inbox = Inbox()
        self._bytes = 0
        self._generation = 0
        self._paused = False
        self._waiting = False
        self._busy = False  # the last take was large
        self._pending = False  # something is in the inbox, or a wake-up was asked for
        self._wakeups: queue.SimpleQueue[None] = queue.SimpleQueue()

    def add_call(
        self, call_id: int, method_id: int, body: bytes, metadata: Metadata | None
    ) -> bool:
        """Leave a unary or server-stream call; False means too much is waiting already."""
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
        """Tell whether a request may be read now; if not, resume is called when one may."""
        if self._bytes < self._limits.waiting_bytes_max:
            return True
        with self._lock:
            if self._bytes < self._limits.waiting_bytes_max:
                return True
            self._paused = True
        return False

    def add_opened(self, stream_id: int, method_id: int, metadata: Metadata | None) -> bool:
        """Leave a new bidi stream; False means too much is waiting already."""
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
        """Leave a stream's message; False asks the reader to pause until resume is called."""
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
        """Leave the news that the client will send no more on a stream."""
        with self._lock:
            self._inbox.half_closed.append(stream_id)
            self._signal()

    def add_gone(self, call_id: int) -> None:
        """Leave the news that nobody waits for a call or stream any more."""
        with self._lock:
            self._inbox.gone.append(call_id)
            self._signal()

    def wake(self) -> None:
        """Make a waiting take return; safe in any thread and in signal handlers (no lock)."""
        self._pending = True
        self._wakeups.put(None)

    def take(self, timeout_s: float) -> Inbox:
        """Wait until something is here, wake() was called or timeout_s is over; take it all."""
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
            if not self._inbox.frames:  # else the readers of these have had their share
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
        """Put an empty inbox, or the rest that is over the limits, in the place of the full one."""
        self._waiting = self._pending = False
        taken, self._inbox = self._inbox, Inbox()
        if self._bytes > self._limits.bytes_max or len(taken.calls) > self._limits.calls_max:
            self._leave_rest(taken)
        else:
            self._bytes = 0
        return taken

    def _signal(self) -> None:
        self._pending = True
        if self._waiting:
            self._waiting = False
            self._wakeups.put(None)

    def _leave_rest(self, taken: Inbox) -> None:
        """Move what is over one take's limits from taken back into the new inbox."""
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
    """Return how many of items fit in both limits (one always may), and the bytes left over."""
    left_bytes = bytes_max
    for position, item in enumerate(items):
        size = len(item[-1])  # type: ignore[arg-type]
        if position >= count_max or (size > left_bytes and position):
            return position, left_bytes
        left_bytes = max(0, left_bytes - size)
    return len(items), left_bytes
