"""What processes took of the processors, and how long they waited for one: Linux counts both.

    before_s = queued_s(pid)
    ...                                  something is asked of the process, and timed
    took_s - (queued_s(pid) - before_s)  what it took where other programs run beside it

A thread is queued while it could run and another runs. Of a process all threads count: where one
of them holds a lock and is queued, the others wait for it. Of threads that ended nothing is known.
"""

import contextlib
import time
from pathlib import Path


def queued_s(pid: int) -> float:
    """Return how long the threads of a process have been queued since they began."""
    return _counted_ns(pid)[1] / 1e9


def busy_share(pid: int, over_s: float) -> float:
    """Return which share of the time in which it could a process computes, from now on.

    One that spins has 1, however many others run beside it. Takes over_s.
    """
    ran_ns, queued_ns = _counted_ns(pid)
    begin_ns = time.monotonic_ns()
    time.sleep(over_s)  # what is measured is a time of nothing
    passed_ns = time.monotonic_ns() - begin_ns
    now_ran_ns, now_queued_ns = _counted_ns(pid)
    ran_ns, queued_ns = now_ran_ns - ran_ns, now_queued_ns - queued_ns
    return ran_ns / max(passed_ns - queued_ns, ran_ns, 1)


def _counted_ns(pid: int) -> tuple[int, int]:
    ran_ns = queued_ns = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            ran, queued, _ = (task / "schedstat").read_text().split()
            ran_ns, queued_ns = ran_ns + int(ran), queued_ns + int(queued)
    return ran_ns, queued_ns
