"""What objects hold, counted: memory of a process cannot be compared from run to run.

held = reachable([cache])
len(held), sum(map(sys.getsizeof, held.values()))
"""

import gc
from collections import deque
from collections.abc import Iterable


def reachable(roots: Iterable[object]) -> dict[int, object]:
    """Return the objects that others hold, by address; types and functions are not followed."""
    reached: dict[int, object] = {}
    waiting = deque(roots)
    while waiting:
        obj = waiting.popleft()
        if id(obj) not in reached and not isinstance(obj, type) and not callable(obj):
            reached[id(obj)] = obj
            waiting.extend(gc.get_referents(obj))
    return reached
