"""The transport of a member without a client port: nothing arrives, poll sleeps until it is woken.

Clients of such a member are in its own process and take part in the turn as sources.
"""

import contextlib
import queue

from kvstore.batch import Inbox, Outbox


class NoPort:
    """`kvstore.transport.base.Transport` without sockets."""

    def __init__(self) -> None:
        # Unlike a lock, it is safe in a signal handler.
        self._wakes: queue.SimpleQueue[None] = queue.SimpleQueue()

    def poll(self, timeout_s: float) -> Inbox:
        """Wait until wake() is called or the time is over; return an empty inbox."""
        with contextlib.suppress(queue.Empty):
            self._wakes.get(timeout=timeout_s)
        while not self._wakes.empty():
            self._wakes.get_nowait()
        return Inbox()

    def flush(self, outbox: Outbox) -> None:
        """Do nothing: there are no clients but the sources."""

    def wake(self) -> None:
        """Make a waiting poll return; from any thread or signal handler."""
        self._wakes.put(None)

    def peer_of(self, call_id: int) -> str | None:
        """Return None: no call has a client address."""
        del call_id
        return None

    def drain(self) -> None:
        """Do nothing: there are no clients."""

    @property
    def is_drained(self) -> bool:
        """Whether every call is answered: always."""
        return True

    def stop(self, grace_s: float) -> None:
        """Do nothing: nothing is open."""
