"""Worlds of everything: python -m tests.sim.whole --seed 7 [--seeds N] [--steps N] [--hours H]."""

import sys

from tests.sim.stack.commands import run_seeds
from tests.sim.whole.world import STEPS, make_world

if __name__ == "__main__":
    sys.exit(run_seeds("tests.sim.whole", make_world, STEPS, sys.argv[1:]))
