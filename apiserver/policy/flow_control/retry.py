"""The Retry-After of refused requests, in seconds.

It doubles while many are refused, up to 32, and decreases by one when few are.
"""

from collections import deque
from typing import Final

RETRY_MAX_S: Final = 32


class RetryAfter:
    """The Retry-After of one priority level."""

    def __init__(self) -> None:
        self.seconds = 1
        self._second = 0
        self._count = 0
        self._doubled_at = 0
        self._history: deque[tuple[int, int]] = deque()

    def refused(self, unix_s: int) -> int:
        """Count a refusal; return the seconds to answer."""
        if unix_s == self._second:
            self._count += 1
            return self.seconds
        self._history.append((self._second, self._count))
        horizon = min(2 * self.seconds, RETRY_MAX_S)
        while unix_s - self._history[0][0] > horizon:
            self._history.popleft()
            if not self._history:
                break
        self._second, self._count = unix_s, 1
        self._adjust(unix_s)
        return self.seconds

    def _adjust(self, unix_s: int) -> None:
        seconds = self.seconds
        lately = sum(n for at, n in self._history if unix_s - seconds <= at < unix_s)
        if unix_s - self._doubled_at >= seconds and lately >= 3 * seconds:
            self.seconds = min(2 * seconds, RETRY_MAX_S)
            self._doubled_at = unix_s
        elif lately < seconds and seconds > 1:
            self.seconds -= 1
