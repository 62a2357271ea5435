"""The pauses between attempts to open a stream again: doubled up to a limit, with jitter."""

import asyncio
import random
from typing import Final

PAUSE_S: Final = 0.1
PAUSE_MAX_S: Final = 2.0
_JITTER: Final = (0.5, 1.5)


class Backoff:
    """The pauses of one stream."""

    def __init__(self) -> None:
        self._pause_s = PAUSE_S

    def reset(self) -> None:
        """Begin again with the shortest pause: the stream works."""
        self._pause_s = PAUSE_S

    async def wait(self) -> None:
        """Pause, and double the next pause."""
        await asyncio.sleep(self._pause_s * random.SystemRandom().uniform(*_JITTER))
        self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)
