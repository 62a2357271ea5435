"""Suppression of calls to other servers: counted instead of made.

    outbound = Outbound(clock.unix_ms, is_open=False)
    if not outbound.may_ask(WEBHOOK, "check.example.com", "CREATE pods shop/web"): …

A copy of a cluster has the webhooks, API servers and nodes of its original in its objects. Calls to
them would reach the original, so a copy makes none. The counts show what was decided without them.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

WEBHOOK: Final = "admission webhook"
CONVERSION: Final = "conversion webhook"
API_SERVER: Final = "aggregated API server"
NODE: Final = "node, pod or Service"
NAMES_MAX: Final = 1_000
OTHERS: Final = "others"
CLOSED: Final = "this cluster makes no outbound calls"


class Unasked(NamedTuple):
    """Suppressed calls to one server."""

    what: str
    """One of the kinds above."""
    name: str
    times: int
    last: str
    """The subject of the last call."""
    last_unix_ms: int


class Outbound:
    """Decides whether calls are made."""

    def __init__(self, unix_ms: Callable[[], int], *, is_open: bool = True) -> None:
        """unix_ms: returns the time; is_open: whether calls are allowed."""
        self._unix_ms: Final = unix_ms
        self.is_open: Final = is_open
        self._unasked: dict[tuple[str, str], Unasked] = {}

    def may_ask(self, what: str, name: str, about: str) -> bool:
        """Return whether a call is allowed; if not, it is counted."""
        if self.is_open:
            return True
        key = (what, name)
        if key not in self._unasked and len(self._unasked) >= NAMES_MAX:
            key = (what, OTHERS)
        before = self._unasked.get(key)
        times = 1 if before is None else before.times + 1
        self._unasked[key] = Unasked(*key, times, about, self._unix_ms())
        return False

    @property
    def unasked(self) -> list[Unasked]:
        """The suppressed calls, by kind and name."""
        return [self._unasked[key] for key in sorted(self._unasked)]
