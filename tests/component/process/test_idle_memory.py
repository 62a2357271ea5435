"""Memory is given back in the quiet periods after work, and no more often."""

import asyncio
import ctypes
import subprocess
import sys

import pytest

from kvstack.component.process.idle_memory import (
    PERIOD_S,
    QUIET_PERIODS,
    QUIET_SHARE,
    WORKED_S,
    IdleMemory,
    give_back_when_idle,
)

BUSY_S = PERIOD_S * QUIET_SHARE + 1


class World:
    def __init__(self) -> None:
        self.trimmed: list[int] = []
        self.collected = 0
        self.collected_young = 0
        self.idle = IdleMemory(self.trimmed.append, self.collect, self.collect_young)
        self.cpu_s = 0.0

    def collect(self) -> None:
        self.collected += 1

    def collect_young(self) -> None:
        assert len(self.trimmed) % QUIET_PERIODS == 0, "before memory is given back"
        self.collected_young += 1

    def period(self, used_s: float) -> int:
        """Let a period go by; return how often memory was given back in it."""
        self.cpu_s += used_s
        before = len(self.trimmed)
        self.idle.look(self.cpu_s)
        return len(self.trimmed) - before


def test_memory_is_given_back_in_the_quiet_periods_after_work() -> None:
    world = World()
    assert [world.period(BUSY_S) for _ in range(3)] == [0, 0, 0]
    assert world.collected_young == 0
    assert [world.period(0.1) for _ in range(QUIET_PERIODS - 1)] == [1] * (QUIET_PERIODS - 1)
    assert (world.collected, world.collected_young) == (0, 1)
    assert world.period(0.1) == 1
    assert world.collected == 1, "in the last"
    assert [world.period(0.1) for _ in range(3)] == [0, 0, 0]
    assert set(world.trimmed) == {0}


def test_a_process_that_is_never_busy_works_too() -> None:
    world = World()
    used_s = WORKED_S / 10 + 0.01
    assert [world.period(used_s) for _ in range(10)] == [0] * 9 + [1]


def test_what_an_operator_set_is_left_alone() -> None:
    asyncio.run(asyncio.wait_for(give_back_when_idle({"MALLOC_TRIM_THRESHOLD_": "1"}), 10))


# Leaves holes in the heap, and prints how many KiB of memory were given back.
PROGRAM = """
import ctypes
from pathlib import Path
from kvstack.component.process.idle_memory import WORKED_S, IdleMemory

def resident_kib():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(each.split()[1]) for each in lines if each.startswith("RssAnon"))

kept = [bytes(20_000) for _ in range(2_000)]
del kept[::2]
idle = IdleMemory(ctypes.CDLL(None).malloc_trim)
before = resident_kib()
idle.look(WORKED_S)
print(before - resident_kib())
"""


def test_holes_in_the_heap_are_given_back() -> None:
    if not hasattr(ctypes.CDLL(None), "malloc_trim"):
        pytest.skip("this C library has no mallopt: freed memory is its own affair")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    assert int(done.stdout) > 10_000
