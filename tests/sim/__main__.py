"""Run seeded worlds: python -m tests.sim --seed 7 [--seeds N] [--steps N] [--verbose].

Prints a line a seed. The first seed that fails ends the run with exit code 1 and a command that
repeats it.
"""

import argparse
import sys
import traceback
from functools import partial

from tests.sim.world import World

STEPS = 200
LINES = 60  # of a trace that are shown

_say = partial(print, flush=True)


def main(argv: list[str]) -> int:
    """Run the given seeds."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds to run")
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of each world")
    parser.add_argument("--members", type=int, help="members at first, if not to be drawn")
    parser.add_argument("--auth", action="store_true", help="with users in every world")
    parser.add_argument("--verbose", action="store_true", help="print the end of a failed trace")
    given = parser.parse_args(argv)
    steps = virtual_ns = 0
    for seed in range(given.seed, given.seed + given.seeds):
        world = World(
            seed, members=given.members, auth=given.auth or None, keep_lines=given.verbose
        )
        try:
            report = world.run(given.steps)
        except Exception:  # noqa: BLE001 - printed with the trace of the world
            traceback.print_exc(file=sys.stdout)
            _say(*world.trace.lines[-LINES:], sep="\n")
            _say(f"seed {seed} FAILED at step {world.steps}; its options: {world.options}")
            auth = " --auth" if given.auth else ""
            _say(f"repeat: python -m tests.sim --seed {seed} --steps {given.steps}{auth} --verbose")
            return 1
        steps += report.steps
        virtual_ns += report.virtual_ns
        _say(
            f"seed {report.seed}: {report.members} members, {report.steps} steps, "
            f"{report.virtual_ns / 1e9:.1f} s virtual, "
            f"{report.operations} operations, {report.answers} answers, {report.events} events, "
            f"{report.crashes} crashes, {report.terms} terms, trace {report.trace}",
        )
    _say(
        f"{given.seeds} seeds, {steps} steps, {virtual_ns / 1e9:.0f} s of virtual time: no failure"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
