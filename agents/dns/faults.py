"""Queries at which this program failed: counted, logged, and answered with SERVFAIL.

One query, be it as odd as it may, must not take the answers of the others: they share a loop.
"""

import traceback
from typing import Final

from kvstack.agents.dns.prepared import problem
from kvstack.agents.dns.query import SERVFAIL, read
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger

LOGGED_S: Final = 60.0
"""The minimum time between two lines of the log: whoever knows such a query may send many."""
WIRE_MAX: Final = 256
"""Bytes of a query in the log."""


class Faults:
    """Counts them."""

    def __init__(self, clock: Clock, logger: Logger) -> None:
        self._clock = clock
        self._logger = logger
        self._logged_s = float("-inf")
        self.count = 0

    def answer(self, data: bytes, error: Exception, *, is_recursing: bool) -> bytes | None:
        """Return what a query is answered with; None: it cannot be read."""
        self.count += 1
        now_s = self._clock.monotonic_s()
        if now_s - self._logged_s >= LOGGED_S:
            self._logged_s = now_s
            self._logger.error(
                "failed at a query",
                query=data[:WIRE_MAX].hex(),
                count=self.count,
                error="".join(traceback.format_exception(error)),
            )
        try:
            query = read(data)
        except Exception:  # noqa: BLE001 - it may be what failed
            return None
        return None if query is None else problem(query, SERVFAIL, is_recursing=is_recursing)
