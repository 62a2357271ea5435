"""The commands that run worlds: one seed after the other, or a swarm on all processors for hours.

    python -m tests.sim.api --seed 7 --seeds 3 --verbose
    python -m tests.sim.api --hours 2

A swarm takes ascending seeds from a random one, or from --seed. A seed that fails is told with the
command that repeats it, and a swarm goes on. The exit code is 1 if any failed.
"""

import argparse
import multiprocessing
import os
import secrets
import sys
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from tests.sim.trace import Trace

if TYPE_CHECKING:
    from multiprocessing.pool import AsyncResult

_TELL_S: Final = 60.0
_LINES: Final = 400
_say = partial(print, flush=True)


class World(Protocol):
    """What can be run."""

    virtual_s: float

    @property
    def trace(self) -> Trace:
        """Its trace."""
        ...

    @property
    def counts(self) -> Counter[str]:
        """What happened in it."""
        ...

    def run(self) -> None:
        """Live."""
        ...


Make = Callable[[int, int, bool], World]
"""Of seed, steps, and whether the lines of the trace are kept."""


class Outcome(NamedTuple):
    """The result of one seed; error empty: it passed."""

    seed: int
    virtual_s: float
    seconds: float
    counts: Counter[str]
    trace: str
    error: str


def run_seeds(name: str, make: Make, steps: int, arguments: list[str]) -> int:
    """Run what a command line asks for; return the exit code."""
    parser = argparse.ArgumentParser(prog=f"python -m {name}")
    parser.add_argument("--seed", type=int, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds to run")
    parser.add_argument("--steps", type=int, default=steps, help="steps of each world")
    parser.add_argument("--hours", type=float, default=0.0, help="run a swarm for so long")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--verbose", action="store_true", help="print the end of a failed trace")
    given = parser.parse_args(arguments)
    if given.hours:
        first = secrets.randbelow(1 << 40) if given.seed is None else given.seed
        outcomes = _swarm(make, given.steps, first, given.hours, given.workers)
    else:
        first = 1 if given.seed is None else given.seed
        seeds = range(first, first + given.seeds)
        outcomes = (live(make, given.steps, seed, is_verbose=given.verbose) for seed in seeds)
    worlds = failed = 0
    virtual_s = 0.0
    told_s = time.monotonic()
    for each in outcomes:
        worlds, virtual_s = worlds + 1, virtual_s + each.virtual_s
        if each.error:
            failed += 1
            _say(f"seed {each.seed} FAILED: {each.error}")
            _say(f"repeat: python -m {name} --seed {each.seed} --steps {given.steps} --verbose")
        elif not given.hours:
            counts = ", ".join(f"{count} {what}" for what, count in each.counts.items())
            _say(
                f"seed {each.seed}: {each.virtual_s:.1f} s virtual in {each.seconds:.1f} s, "
                f"trace {each.trace}; {counts}"
            )
        if given.hours and time.monotonic() - told_s > _TELL_S:
            told_s = time.monotonic()
            _say(f"{worlds} worlds, {virtual_s:.0f} s of virtual time, {failed} failed")
    _say(f"{worlds} worlds, {virtual_s:.0f} s of virtual time, {failed} failed")
    return 1 if failed else 0


def live(make: Make, steps: int, seed: int, *, is_verbose: bool = False) -> Outcome:
    """Run one world."""
    began_s = time.monotonic()
    world = make(seed, steps, is_verbose)
    error = ""
    try:
        world.run()
    except Exception as failure:  # noqa: BLE001 - part of the report
        where = traceback.extract_tb(failure.__traceback__)[-2:]
        places = ", ".join(f"{each.name}:{each.lineno}" for each in where)
        error = f"{type(failure).__name__}: {failure} ({places})".replace("\n", " ")[:1500]
        if is_verbose:
            _say(*world.trace.lines[-_LINES:], sep="\n")
            traceback.print_exc(file=sys.stdout)
    seconds = time.monotonic() - began_s
    return Outcome(seed, world.virtual_s, seconds, world.counts, world.trace.hexdigest(), error)


def _swarm(make: Make, steps: int, first: int, hours: float, workers: int) -> Iterator[Outcome]:
    """Yield outcomes as they come, until the time is up."""
    until_s = time.monotonic() + hours * 3600

    def seeds() -> Iterator[int]:
        seed = first
        while time.monotonic() < until_s:
            yield seed
            seed += 1

    _say(f"seeds from {first} on, {workers} at a time")
    with multiprocessing.get_context("spawn").Pool(workers, maxtasksperchild=50) as pool:
        waiting: deque[AsyncResult[Outcome]] = deque()
        for seed in seeds():
            waiting.append(pool.apply_async(live, (make, steps, seed)))
            if len(waiting) >= 2 * workers:
                yield waiting.popleft().get()
        for each in waiting:
            yield each.get()
