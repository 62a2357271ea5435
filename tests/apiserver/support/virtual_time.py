"""Virtual time for tests: the product's loop, with limits of a world that is closed.

run(story())     time passes only while everybody waits, as fast as it can
"""

from typing_extensions import override

from kvstack.component.virtual_time import clock
from kvstack.component.virtual_time.loop import VirtualLoop as VirtualLoop
from kvstack.component.virtual_time.loop import run as run

BEGAN_MS = 1_800_000_000_000


class LoopClock(clock.LoopClock):
    """The clock of the running loop; set `jumped_ms` to let the wall clock jump."""

    jumped_ms = 0

    def __init__(self) -> None:
        super().__init__(BEGAN_MS)

    @override
    def unix_ms(self) -> int:
        """Return a time of day that goes on with the loop."""
        return super().unix_ms() + self.jumped_ms
