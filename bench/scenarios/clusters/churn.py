"""Memory of a cluster after pods were made and deleted: what it holds once it is empty again.

Deployments of hollow pods come and go, one after the other. Only anonymous memory has a limit: file
pages are the page cache seen through the mapped database, which grows with the history between two
compactions. The history is kept for one to two intervals of compaction, five minutes each, and with
it what is known of deleted keys: so the limit holds after two of them. Events outlive their pods by
an hour, here as upstream.
"""

import time
from typing import Final

from bench import stacks
from bench.procfs import Memory
from bench.reporting.figures import OURS, Better, Measure
from bench.restarts import MIB
from bench.run import Run, Scenario
from bench.scenarios.clusters.stack import inside, make, remove
from bench.stacks import Stack

_PODS: Final = 10_000
_WAVE: Final = 250
_NODES: Final = 20
_IDLES_S: Final = (120.0, 720.0)
"""Memory is noted so long after the last pod; the last time after its history was compacted."""
_GROWTH_MAX: Final = 1.3
_PARTS: Final = 4
"""Of the churn; memory is noted after each."""


def play(run: Run) -> None:
    """Make a first pod, note the memory, make and delete many, and note it again."""
    pods, wave = run.size(_PODS, 8, "pods"), run.size(_WAVE, 2)
    nodes = run.size(_NODES, 2)
    for number in range(run.round_count):
        label = f"round {number + 1}"
        with stacks.started(run.directory / f"churn-{number}", *inside(nodes)) as stack:
            stack.wait_ready()
            stack.wait_nodes(nodes)
            make(stack, "first", 1)
            remove(stack, "first")
            begun = stack.memory()
            _note(run, "after its first pod", begun)
            for part in range(_PARTS):
                done = part * pods // _PARTS
                until = (part + 1) * pods // _PARTS
                with run.step(f"{label}: {until:,} of {pods:,} pods made and deleted"):
                    _churn(stack, done, until, wave)
                _note(run, f"after {until:,} pods", stack.memory())
            stack.close()
            idle_s = 0.0
            for until_s in _IDLES_S:
                with run.step(f"{label}: idle until {until_s:g} s have passed"):
                    time.sleep(run.seconds(until_s - idle_s))
                idle_s = until_s
                ended = stack.memory()
                when = f"idle {until_s:g} s after {pods:,} pods"
                _note(run, when, ended)
                is_limited = until_s == _IDLES_S[-1] and not run.is_quick
                limit = _GROWTH_MAX if is_limited else None
                growth = Measure(f"growth, {when}", "x", Better.LOWER, limit=limit)
                run.figures.add(growth, OURS, ended.anon_bytes / begun.anon_bytes)
    run.note("Growth: anonymous memory over that after the first pod.")


def _churn(stack: Stack, done: int, until: int, wave: int) -> None:
    while done < until:
        pods = min(wave, until - done)
        make(stack, f"churn-{done}", pods)
        remove(stack, f"churn-{done}")
        done += pods


def _note(run: Run, when: str, found: Memory) -> None:
    for kind, value in (("anonymous", found.anon_bytes), ("file", found.file_bytes)):
        run.figures.add(Measure(f"{when}: {kind}", "MiB", Better.LOWER), OURS, value / MIB)


SCENARIO: Final = Scenario(
    "churn",
    "Memory after pods have come and gone",
    "`kvstack up` with 20 hollow nodes; Deployments of 250 pods, made and deleted",
    rounds=1,
    play=play,
    sizes=("pods",),
    columns=("kvstack", "kubernetes, etcd"),
)
