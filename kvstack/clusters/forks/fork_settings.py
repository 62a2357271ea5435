"""What runs in a fork."""

from typing import Final, NamedTuple

from kvstack.agents.standalone.in_memory.cluster_time import MACHINE

NO_NODES: Final = "none"
"""Nobody acts for the nodes of the contents."""


class ForkSettings(NamedTuple):
    """What runs in a fork."""

    nodes: str = ""
    """`none`, or how many hollow nodes there are in place of those of the contents; empty: those of
    the contents."""
    without: frozenset[str] = frozenset()
    """Parts as of `kvstack up`."""
    asks_others: bool = False
    """Whether webhooks, aggregated servers and nodes are asked."""
    is_read_only: bool = False
    ready_after_s: float = 0.0
    """How long pods run before they are ready."""
    clock: str = MACHINE
    """One of CLOCKS of `cluster_time`."""
