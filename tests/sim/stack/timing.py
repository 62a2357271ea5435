"""The clock of agents in a world."""

from typing_extensions import override

from kvstack.component.virtual_time.clock import LoopClock
from tests.apiserver.support.virtual_time import BEGAN_MS


class SimClock(LoopClock):
    """The loop's time; set `jumped_s` to let the wall clock jump."""

    jumped_s = 0.0

    def __init__(self) -> None:
        super().__init__(BEGAN_MS)

    @override
    def now_s(self) -> float:
        """Return a time of day."""
        return super().now_s() + self.jumped_s
