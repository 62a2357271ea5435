"""Stages in which a request waits, and the time spent in each.

    spent: Spent = {}
    found = await timed(clock, spent, STORE, asked)      spent[STORE] grows by what that took

Only what is awaited is measured: a request that never waits does not read the clock here. A stage
within another one counts only for itself. The rest of a request's time is its own work, and that of
other tasks of the event loop.
"""

from collections.abc import Awaitable
from typing import Final, TypeAlias, TypeVar

from kvstack.component.clock import Clock

Spent: TypeAlias = dict[str, int]
"""Nanoseconds by stage."""

AUTHENTICATION: Final = "authentication"
QUEUE: Final = "queue"
"""Waiting in priority and fairness."""
AUTHORIZATION: Final = "authorization"
BODY: Final = "body"
"""Receiving the body."""
READING: Final = "reading"
"""Waiting for the watch cache, or reading from the store."""
ADMISSION: Final = "admission"
"""Plugins and webhooks."""
STORE: Final = "store"
"""Transactions."""
ANSWER: Final = "answer"
"""Writing a list, at the speed of the client."""
PROCESSING: Final = "processing"
"""The rest."""

_T = TypeVar("_T")


async def timed(clock: Clock, spent: Spent, stage: str, waiting: Awaitable[_T]) -> _T:
    """Return the awaited result; adds the time taken to a stage, also on failure."""
    began_ns = clock.monotonic_ns()
    inside_ns = sum(spent.values())
    try:
        return await waiting
    finally:
        took_ns = clock.monotonic_ns() - began_ns - (sum(spent.values()) - inside_ns)
        spent[stage] = spent.get(stage, 0) + took_ns


def split(took_ns: int, spent: Spent) -> Spent:
    """Return the stages of a request and the rest of its time, longest first."""
    rest_ns = max(took_ns - sum(spent.values()), 0)
    stages = {**spent, PROCESSING: spent.get(PROCESSING, 0) + rest_ns}
    return dict(sorted(stages.items(), key=lambda each: -each[1]))
