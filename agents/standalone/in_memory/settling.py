"""Whether a cluster is settled: nothing is under way, or due soon.

    state = await look(cluster, within_s=1.0)
    state.is_settled, state.revision, state.moving, state.due

    queues are empty           of controllers, scheduler and nodes, and no write is under way
    watches are caught up      every informer was handed the last change of its resource
    nothing is due soon        except periodic checks, which find nothing to write,
                               and repeated Events about what still waits

Clients elsewhere are not part of it: what they will still do is unknown here; `settled.others`
reports what can be known of them.

    state = await settle(cluster)      waits for that; in virtual time, lets it go by until then
"""

import asyncio
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kvstack.agents.client.activity import Activity, Due, Moving
from kvstack.component.errors import ComponentError

if TYPE_CHECKING:
    from kvstack.agents.standalone.in_memory.cluster_time import ClusterTime
    from kvstack.apiserver.server.assembly import ApiServer

WITHIN_S: Final = 1.0
"""What is due later than this is not waited for."""
TIMEOUT_S: Final = 60.0
SHOWN_MAX: Final = 100
"""The maximum number of pending items that are listed."""
LATEST_S: Final = 10.0
STEP_S: Final = 0.05
"""The step of virtual time between two checks."""
LOOK_S: Final = 0.02
_NAMED: Final = 5


class Active(Protocol):
    """A part of the cluster that reports its activity."""

    def activity(self) -> Activity:
        """Return the current work, and what is due."""
        ...


class Cluster(Protocol):
    """A cluster in this process."""

    @property
    def server(self) -> "ApiServer":
        """Its API server."""
        ...

    @property
    def agents(self) -> Active:
        """Its controllers, scheduler and nodes."""
        ...

    @property
    def time(self) -> "ClusterTime | None":
        """Its virtual time; None: it uses the machine's."""
        ...


class ClusterParts(NamedTuple):
    """A cluster of its parts."""

    server: "ApiServer"
    agents: Active
    time: "ClusterTime | None" = None


class Settled(NamedTuple):
    """The state of a cluster at a revision."""

    revision: int
    moving: tuple[Moving, ...]
    """Why it is not settled; none: it is."""
    due: tuple[Due, ...]
    """What is due later, the soonest first."""

    @property
    def is_settled(self) -> bool:
        """Whether nothing moves."""
        return not self.moving


class NotSettledError(ComponentError):
    """A cluster has not settled in time; the text names what moves."""

    def __init__(self, state: Settled, after: str) -> None:
        """after: how long it was waited for."""
        named = [f"{each.who} {each.what} {each.why}" for each in state.moving[:_NAMED]]
        more = len(state.moving) - len(named)
        rest = f", and {more} more" if more > 0 else ""
        super().__init__(f"not settled after {after}: {', '.join(named)}{rest}")
        self.state: Final = state


async def look(cluster: Cluster, within_s: float = WITHIN_S) -> Settled:
    """Return how a cluster is now; what is due within so many seconds moves."""
    own = cluster.time
    with nullcontext() if own is None else own.at_once():
        revision = await cluster.server.registry.watch_cache.latest(LATEST_S)
    found = cluster.agents.activity()
    due = sorted(found.due, key=lambda each: each.in_s)
    moving = found.moving
    moving += [
        Moving(each.who, each.what, f"is due in {each.in_s:.2f} s")
        for each in due
        if each.in_s <= within_s
    ]
    later = [each for each in due if each.in_s > within_s]
    return Settled(revision, tuple(moving[:SHOWN_MAX]), tuple(later[:SHOWN_MAX]))


async def settle(
    cluster: Cluster, *, within_s: float = WITHIN_S, timeout_s: float = TIMEOUT_S
) -> Settled:
    """Return once a cluster is settled; NotSettledError names what still moves.

    In virtual time it advances by at most that. timeout_s: by the cluster's and the real clock.
    """
    loop, own = asyncio.get_running_loop(), cluster.time
    began_s, began_real_s = loop.time(), time.monotonic()
    last = -1
    while True:
        if own is not None:
            await own.idle()
        state = await look(cluster, within_s)
        # In a thread of its own the store may have received more requests meanwhile.
        if state.is_settled and (own is not None or state.revision == last):
            return state
        last = state.revision
        passed_s = max(loop.time() - began_s, time.monotonic() - began_real_s)
        if passed_s >= timeout_s:
            raise NotSettledError(state, f"{passed_s:.0f} s")
        if own is not None:
            await own.advance(STEP_S)
        else:
            await asyncio.sleep(LOOK_S)
