"""Worlds of API servers: python -m tests.sim.api --seed 7 [--seeds N] [--steps N] [--hours H]."""

import sys

from tests.sim.api.world import STEPS, make_world
from tests.sim.stack.commands import run_seeds

if __name__ == "__main__":
    sys.exit(run_seeds("tests.sim.api", make_world, STEPS, sys.argv[1:]))
