"""Gives free memory back to the system while a process has little to do.

    task = asyncio.create_task(give_back_when_idle())

What a busy process frees stays with its allocator, in pieces between what is in use; the next
request takes it from there. glibc by itself returns the end of its heap alone. So once a process
has worked for a while, all free pages are returned (malloc_trim) in its next quiet periods; in
several, because caches give up what is old in these minutes. It takes some milliseconds, and is not
done while a process is busy. In the first of them dead cycles are looked for among the objects of
the work that is over, in the last among old ones, too (`collector`).

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
"""Of a processor, below which a period is quiet."""
WORKED_S: Final = 5.0
"""Of a processor, after which there may be something to give back."""
QUIET_PERIODS: Final = 24
"""In which memory is then given back: twelve minutes, two compactions of a store's history."""


class IdleMemory:
    """Looks at the end of each period."""

    def __init__(
        self,
        trim: Callable[[int], object],
        collect: Callable[[], None] = collect_frozen,
        collect_young: Callable[[], object] = gc.collect,
    ) -> None:
        """Give back by trim, which takes the bytes to keep.

        collect: finds dead cycles. collect_young: finds those of objects that were not frozen yet.
        """
        self._trim: Final = trim
        self._collect: Final = collect
        self._collect_young: Final = collect_young
        self._cpu_s = 0.0
        self._worked_s = 0.0
        self._periods = 0
        """Quiet ones in which memory is still to be given back."""

    def look(self, cpu_s: float) -> None:
        """A period is over; cpu_s: what the process has used of processors since it began."""
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
    """Give memory back from time to time until cancelled; return at once where that cannot be."""
    trim = _trim_of(environment)
    if trim is None:
        return
    idle = IdleMemory(trim)
    while True:
        await asyncio.sleep(PERIOD_S)
        idle.look(time.process_time())


def give_back(environment: Mapping[str, str] = os.environ) -> None:
    """Give free memory back now, as after a start; nothing where that cannot be."""
    if trim := _trim_of(environment):
        trim(0)


def _trim_of(environment: Mapping[str, str]) -> Callable[[int], object] | None:
    if is_set_by_operator(environment):
        return None
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
