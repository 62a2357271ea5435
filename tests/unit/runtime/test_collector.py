"""Collections walk what is new: what lives long is walked once; new cycles are collected."""

import subprocess
import sys

LIVE = 1_000_000

# Prints how many objects the longest collection can have walked, how many are out of reach of later
# ones, and how many of 1000 new cycles are left once others have been made after them.
PROGRAM = f"""
import gc, weakref
from kvstore.runtime.collector import keep_collections_short

class Knot:
    def __init__(self):
        self.own = self

walked = []
gc.callbacks.append(lambda phase, info: phase == "start" and walked.append(
    sum(map(len, map(gc.get_objects, range(info["generation"] + 1))))))
keep_collections_short()
walked.clear()
live = [[number] for number in range({LIVE})]
frozen = gc.get_freeze_count()
knots = [weakref.ref(Knot()) for _ in range(1000)]
filling = [[number] for number in range({LIVE})]
print(max(walked), frozen, sum(knot() is not None for knot in knots))
"""


def test_no_collection_walks_what_lives_long() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=120
    )
    walked_max, frozen, left = map(int, done.stdout.split())
    assert walked_max < LIVE // 3
    assert frozen > LIVE // 2
    assert left == 0
