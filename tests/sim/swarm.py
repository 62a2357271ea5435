"""Many worlds for hours, on all processors: python -m tests.sim.swarm --hours 2 [--workers N].

Seeds ascend from a random one, unless --first is given. A seed that fails is written to a file in
the format of seeds.txt, with what it found, and the swarm continues. Each minute and at the end it
prints how many worlds there were and how much virtual time passed. The exit code is 1 if any
failed.
"""

import argparse
import multiprocessing
import os
import secrets
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.pool import AsyncResult, Pool
from pathlib import Path
from typing import NamedTuple

from tests.sim.world import World

STEPS = 200
TELL_S = 60.0

_say = partial(print, flush=True)


class Outcome(NamedTuple):
    """The result of one seed; error empty: it passed."""

    seed: int
    virtual_ns: int
    error: str


def live(steps: int, members: int | None, seed: int) -> Outcome:
    """Run one world."""
    world = World(seed, members=members)
    began_ns = world.clock.now_ns
    error = ""
    try:
        world.run(steps)
    except Exception as failure:  # noqa: BLE001 - part of the report
        where = traceback.extract_tb(failure.__traceback__)[-2:]
        text = f"{type(failure).__name__}: {failure}".replace("\n", " ")[:500]
        places = ", ".join(f"{Path(each.filename).name}:{each.lineno}" for each in where)
        error = f"{text} ({places})"
    return Outcome(seed, world.clock.now_ns - began_ns, error)


def main(argv: list[str]) -> int:
    """Run until the time is up."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.swarm", description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of each world")
    parser.add_argument("--members", type=int, help="members at first, if not to be drawn")
    parser.add_argument("--first", type=int, default=secrets.randbelow(1 << 40), help="first seed")
    parser.add_argument("--failures", type=Path, default=Path("swarm-failures.txt"))
    given = parser.parse_args(argv)
    until_s = time.monotonic() + given.hours * 3600
    next_tell_s = time.monotonic() + TELL_S
    worlds = failed = virtual_ns = 0

    def tell() -> None:
        _say(f"{worlds} worlds, {virtual_ns / 1e9:.0f} s of virtual time, {failed} failed")

    def seeds() -> Iterator[int]:
        seed = given.first
        while time.monotonic() < until_s:
            yield seed
            seed += 1

    _say(f"seeds from {given.first} on, {given.workers} at a time; failures go to {given.failures}")
    context = multiprocessing.get_context("spawn")
    with context.Pool(given.workers, maxtasksperchild=100) as pool:
        run = partial(live, given.steps, given.members)
        for outcome in _few_ahead(pool, run, seeds(), 2 * given.workers):
            worlds += 1
            virtual_ns += outcome.virtual_ns
            if outcome.error:
                failed += 1
                _say(f"seed {outcome.seed} FAILED: {outcome.error}")
                with given.failures.open("a") as file:
                    members = given.members or "-"
                    file.write(f"# {outcome.error}\n{outcome.seed} {given.steps} {members}\n")
            if time.monotonic() >= next_tell_s:
                next_tell_s += TELL_S
                tell()
    tell()
    return 1 if failed else 0


def _few_ahead(
    pool: Pool, run: Callable[[int], Outcome], seeds: Iterator[int], ahead: int
) -> Iterator[Outcome]:
    """Yield outcomes in order, with at most `ahead` seeds under way."""
    waiting: deque[AsyncResult[Outcome]] = deque()
    for seed in seeds:
        waiting.append(pool.apply_async(run, (seed,)))
        if len(waiting) >= ahead:
            yield waiting.popleft().get()
    while waiting:
        yield waiting.popleft().get()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
