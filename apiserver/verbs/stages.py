"""The stages of a request in which it waits, and how long it spent in each.

    spent: Spent = {}
    found = await timed(clock, spent, STORE, asked)      spent[STORE] grows by what that took

Only what is awaited is measured: a request that never waits costs no reading of the clock here. A
stage that waits inside another one counts for itself alone. The rest of a request's time is its own
work, and that of others which the event loop did meanwhile.
"""

from collections.abc import Awaitable
from typing import Final, TypeAlias, TypeVar

from kvstack.apiserver.registry.timing import Clock

Spent: TypeAlias = dict[str, int]
"""Nanoseconds by stage."""

AUTHENTICATION: Final = "authentication"
QUEUE: Final = "queue"
"""Of priority and fairness."""
AUTHORIZATION: Final = "authorization"
BODY: Final = "body"
"""Until the client has sent it."""
READING: Final = "reading"
"""Until the copy in memory is as new as the store, or the store has answered."""
ADMISSION: Final = "admission"
"""Plugins and webhooks."""
STORE: Final = "store"
"""Transactions."""
ANSWER: Final = "answer"
"""Writing a list, at the speed at which the client takes it."""
PROCESSING: Final = "processing"
"""All the rest."""

_T = TypeVar("_T")


async def timed(clock: Clock, spent: Spent, stage: str, waiting: Awaitable[_T]) -> _T:
    """Return what is waited for; how long that took is added to a stage, also if it fails."""
    began_ns = clock.monotonic_ns()
    inside_ns = sum(spent.values())
    try:
        return await waiting
    finally:
        took_ns = clock.monotonic_ns() - began_ns - (sum(spent.values()) - inside_ns)
        spent[stage] = spent.get(stage, 0) + took_ns


def split(took_ns: int, spent: Spent) -> Spent:
    """Return the stages of a request that took so long, with the rest; the longest is the first."""
    rest_ns = max(took_ns - sum(spent.values()), 0)
    stages = {**spent, PROCESSING: spent.get(PROCESSING, 0) + rest_ns}
    return dict(sorted(stages.items(), key=lambda each: -each[1]))
