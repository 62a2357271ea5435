"""Whether a member can be reached, and since when, as its links find out.

    inactive ──a dial or POST that worked──► active(since) ──one that failed──► inactive

A stream the other side closed in good order does not count as a failure: the next dial tells.
"""

import threading
import time

from kvstore.logger import Logger
from kvstore.peers.counters import PeerCounters


class PeerStatus:
    """One member's reachability; for any thread."""

    def __init__(self, member_id: int, counters: PeerCounters, logger: Logger) -> None:
        self._name = f"{member_id:x}"
        self._counters = counters
        self._logger = logger
        self._lock = threading.Lock()
        self.since_ns: int | None = None  # monotonic; None: inactive

    def activate(self) -> None:
        """Note that the member answered."""
        if self.since_ns is None:
            self._become_active()

    def deactivate(self, source: str, action: str, reason: str) -> None:
        """Note that an action on it failed."""
        with self._lock:
            was_active = self.since_ns is not None
            self.since_ns = None
            self._counters.active = 0
            self._counters.disconnected += was_active
        text = f"failed to {action} {self._name} on {source} ({reason})"
        if was_active:
            self._logger.warning(
                "peer became inactive (message send to peer failed)",
                peer_id=self._name,
                error=text,
            )
        else:
            self._logger.debug("peer deactivated again", peer_id=self._name, error=text)

    def _become_active(self) -> None:
        with self._lock:
            is_new = self.since_ns is None
            if is_new:
                self.since_ns = time.monotonic_ns()
                self._counters.active = 1
        if is_new:
            self._logger.info("peer became active", peer_id=self._name)


class UrlPicker:
    """Which of a member's URLs to use: one until it fails, then the next; for any thread."""

    def __init__(self, urls: tuple[str, ...]) -> None:
        self._lock = threading.Lock()
        self._urls = urls
        self._at = 0

    @property
    def urls(self) -> tuple[str, ...]:
        """All of them."""
        return self._urls

    def update(self, urls: tuple[str, ...]) -> None:
        """Take new URLs, and begin with the first."""
        with self._lock:
            self._urls = urls
            self._at = 0

    def pick(self) -> str:
        """Return the URL to use."""
        with self._lock:
            return self._urls[self._at]

    def unreachable(self, url: str) -> None:
        """Pass on to the next if it is url that is in use."""
        with self._lock:
            if self._urls[self._at] == url:
                self._at = (self._at + 1) % len(self._urls)
