"""Whether a member can be reached, and since when, as its links report.

    inactive ──dial or POST succeeded──► active(since) ──dial or POST failed──► inactive

A stream that the other side closed properly is not a failure: the next dial decides.

Each reason why TLS to an inactive member fails is logged once as a warning: it needs the operator.
"""

import threading
import time

from kvstack.component.logger import Logger
from kvstore.peers.counters import PeerCounters


class PeerStatus:
    """The reachability of one member; for any thread."""

    def __init__(self, member_id: int, counters: PeerCounters, logger: Logger) -> None:
        self._name = f"{member_id:x}"
        self._counters = counters
        self._logger = logger
        self._lock = threading.Lock()
        self._tls_reason = ""  # the last that was logged
        self.since_ns: int | None = None  # monotonic; None: inactive

    def activate(self) -> None:
        """Report that the member answered."""
        if self.since_ns is None:
            self._become_active()

    def deactivate(self, source: str, action: str, reason: str) -> None:
        """Report that an action failed, with the reason."""
        with self._lock:
            was_active = self.since_ns is not None
            self.since_ns = None
            self._counters.active = 0
            self._counters.disconnected += was_active
            is_new_reason = "tls" in reason.lower() and reason != self._tls_reason
            if is_new_reason:
                self._tls_reason = reason
        text = f"failed to {action} {self._name} on {source} ({reason})"
        if was_active:
            self._logger.warning(
                "peer became inactive (message send to peer failed)",
                peer_id=self._name,
                error=text,
            )
        elif is_new_reason:
            self._logger.warning(
                "the TLS handshake with the peer fails", peer_id=self._name, error=text
            )
        else:
            self._logger.debug("peer deactivated again", peer_id=self._name, error=text)

    def _become_active(self) -> None:
        with self._lock:
            is_new = self.since_ns is None
            if is_new:
                self.since_ns = time.monotonic_ns()
                self._counters.active = 1
                self._tls_reason = ""
        if is_new:
            self._logger.info("peer became active", peer_id=self._name)


class UrlPicker:
    """Selects one of a member's URLs: one until it fails, then the next; for any thread."""

    def __init__(self, urls: tuple[str, ...]) -> None:
        self._lock = threading.Lock()
        self._urls = urls
        self._at = 0

    @property
    def urls(self) -> tuple[str, ...]:
        """All URLs."""
        return self._urls

    def update(self, urls: tuple[str, ...]) -> None:
        """Set new URLs; the first is used."""
        with self._lock:
            self._urls = urls
            self._at = 0

    def pick(self) -> str:
        """Return the URL to use."""
        with self._lock:
            return self._urls[self._at]

    def unreachable(self, url: str) -> None:
        """Switch to the next URL if url is in use."""
        with self._lock:
            if self._urls[self._at] == url:
                self._at = (self._at + 1) % len(self._urls)
