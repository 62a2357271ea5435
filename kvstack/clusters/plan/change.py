"""The interface of changes that are planned.

    outcome = await change.make(site)

A change is made on a fork, as its administrator. What cannot be made at all is a PlanError, which
says what and why.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from kvstack.agents.client.api import Api
from kvstack.clusters.plan.writes import Writes
from kvstack.component.errors import ComponentError


class PlanError(ComponentError):
    """A plan cannot be made; the text says why."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where a change is made."""

    api: Api
    """As the administrator of the fork."""
    kubeconfig: Path
    """The same for programs."""
    writes: Writes
    """What was written so far."""
    pass_time: Callable[[float], Awaitable[None]]
    """Lets so many seconds of the fork's time go by at once."""
    going_at: Callable[[float], AbstractContextManager[None]]
    """Lets the fork's time go so many times as fast as real time meanwhile."""


class Outcome(NamedTuple):
    """How a change went."""

    ended_s: float
    """After how much of the fork's time it was made."""
    stopped: str = ""
    """Why it was stopped; empty: it ended by itself."""
    exit_code: int = 0
    """Of a command."""


class Change(Protocol):
    """What is planned."""

    async def make(self, site: Site) -> Outcome:
        """Make it; raises PlanError."""
        ...
