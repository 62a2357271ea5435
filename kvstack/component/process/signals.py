"""SIGTERM and SIGINT: the process is asked to stop.

    call_on_stop_signal(driver.stop, logger)

A handler runs in the main thread between two bytecodes, whatever the process is doing then: `stop`
takes no lock that the main thread may hold.
"""

import signal
from collections.abc import Callable
from types import FrameType
from typing import Final

from kvstack.component.logger import Logger

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def call_on_stop_signal(stop: Callable[[], None], logger: Logger) -> None:
    """Log each signal to stop from now on, and call stop; only from the main thread."""

    def on_signal(number: int, _frame: FrameType | None) -> None:
        logger.info("received signal; shutting down", signal=signal.Signals(number).name)
        stop()

    for number in STOP_SIGNALS:
        signal.signal(number, on_signal)
