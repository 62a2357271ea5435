"""Gives free memory back to the system while a process has little to do.

    task = asyncio.create_task(give_back_when_idle())

What a busy process frees stays with its allocator, in fragments; the next request reuses it. On its
own, glibc returns only the end of its heap. So once a process
has worked for a while, all free pages are returned (malloc_trim) in its next quiet periods; in
several, because caches drop old entries in these minutes. It takes some milliseconds, and is not
done while a process is busy. In the first of them dead cycles among the objects of that work are
collected, in the last those among old objects, too (`collector`).

Another C library, or an operator's settings (`allocator`), are left alone.
"""

import asyncio
import ctypes
import gc
import os
import time
from collections.abc import Callable, Mapping
from typing import Final

from kvstack.component.process.allocator import is_set_by_operator
from kvstack.component.process.collector import collect_frozen

PERIOD_S: Final = 30.0
QUIET_SHARE: Final = 0.25
"""Share of a processor below which a period is quiet."""
WORKED_S: Final = 5.0
"""Processor time after which there may be memory to give back."""
QUIET_PERIODS: Final = 24
"""Quiet periods in which memory is given back: twelve minutes, two compactions of a store."""


class IdleMemory:
    """Decides at the end of each period whether to give memory back."""

    def __init__(
        self,
        trim: Callable[[int], object],
        collect: Callable[[], None] = collect_frozen,
        collect_young: Callable[[], object] = gc.collect,
    ) -> None:
        """trim returns memory and takes the bytes to keep.

        collect: collects dead cycles. collect_young: only those among objects not yet frozen.
        """
        self._trim: Final = trim
        self._collect: Final = collect
        self._collect_young: Final = collect_young
        self._cpu_s = 0.0
        self._worked_s = 0.0
        self._periods = 0
        """The remaining quiet periods in which memory is given back."""

    def look(self, cpu_s: float) -> None:
        """Handle the end of a period; cpu_s: the processor time of the process since its start."""
        used_s, self._cpu_s = cpu_s - self._cpu_s, cpu_s
        self._worked_s += used_s
        if self._worked_s >= WORKED_S:
            self._worked_s, self._periods = 0.0, QUIET_PERIODS
        if self._periods and used_s <= PERIOD_S * QUIET_SHARE:
            if self._periods == QUIET_PERIODS:
                self._collect_young()
            self._periods -= 1
            if not self._periods:
                self._collect()
            self._trim(0)


async def give_back_when_idle(environment: Mapping[str, str] = os.environ) -> None:
    """Give memory back periodically until cancelled; return immediately if unsupported."""
    trim = _trim_of(environment)
    if trim is None:
        return
    idle = IdleMemory(trim)
    while True:
        await asyncio.sleep(PERIOD_S)
        idle.look(time.process_time())


def give_back(environment: Mapping[str, str] = os.environ) -> None:
    """Give free memory back now, as after a start; does nothing if unsupported."""
    if trim := _trim_of(environment):
        trim(0)


def _trim_of(environment: Mapping[str, str]) -> Callable[[int], object] | None:
    if is_set_by_operator(environment):
        return None
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
