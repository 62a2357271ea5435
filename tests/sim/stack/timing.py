"""The clock of agents in a world."""

import asyncio
from typing import Final

from tests.apiserver.support.virtual_time import BEGAN_MS

_BEGAN_S: Final = BEGAN_MS / 1000


class SimClock:
    """The loop's time; set `jumped_s` to let the wall clock jump."""

    jumped_s = 0.0

    def now_s(self) -> float:
        """Return a time of day."""
        return _BEGAN_S + self.jumped_s + asyncio.get_running_loop().time()

    def monotonic_s(self) -> float:
        """Return the time since the world began."""
        return asyncio.get_running_loop().time()
