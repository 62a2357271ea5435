"""Collections walk what is new, and what lives long once at most; new cycles are collected."""

import subprocess
import sys

import pytest

LIVE = 1_000_000

# Prints how many objects the longest collection can have walked, how many are out of reach of later
# ones, and how many of 1000 new cycles are left once others have been made after them.
PROGRAM = f"""
import gc, weakref
from kvstack.component.process.collector import keep_collections_short

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


# Has cycles frozen while they live; prints how many are left, before and after a look at them, and
# whether what lives is frozen again.
FROZEN = """
import gc, sys, weakref
from kvstack.component.process import collector

class Knot:
    def __init__(self):
        self.own = self

collector.FROZEN_MAX = int(sys.argv[1])
collector.collect_frozen()
assert not gc.get_freeze_count(), "nobody asked for short collections"
knots = [Knot() for _ in range(100)]
collector.keep_collections_short()
left = [weakref.ref(each) for each in knots]
del knots
gc.collect()
before = sum(each() is not None for each in left)
collector.collect_frozen()
print(before, sum(each() is not None for each in left), gc.get_freeze_count() > 1000)
"""


@pytest.mark.parametrize(("most", "left"), [(10_000_000, "0"), (10, "100")])
def test_frozen_cycles_are_collected_where_that_is_quick(most: int, left: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FROZEN, str(most)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.split() == ["100", left, "True"]


# Loads much, and ends its start; prints how many objects were walked, and how many dead cycles of
# the start are left, before and after a look at what is frozen.
STARTED = f"""
import gc, weakref
from kvstack.component.process import collector
from kvstack.component.process.program import settle

class Knot:
    def __init__(self):
        self.own = self

collector.FROZEN_MAX = 10 * {LIVE}
gc.disable()
live = [[number] for number in range({LIVE})]
knots = [weakref.ref(Knot()) for _ in range(100)]
walked = []
gc.callbacks.append(lambda phase, info: phase == "start" and walked.append(
    sum(map(len, map(gc.get_objects, range(info["generation"] + 1))))))
settle()
before, most = sum(knot() is not None for knot in knots), max(walked)
collector.collect_frozen()
print(most, before, sum(knot() is not None for knot in knots), gc.isenabled())
"""


def test_the_end_of_a_start_walks_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STARTED], capture_output=True, text=True, check=True, timeout=120
    )
    walked_max, *rest = done.stdout.split()
    assert int(walked_max) < LIVE // 100
    assert rest == ["100", "0", "True"]
