"""With which controllers and options the stories were recorded."""

from dataclasses import replace

from kvstack.agents.controllers.options import AutoscalerOptions, NodeLifecycleOptions, Options
from tests.agents.support.cluster import TestCluster

CHOSEN = "*,+bootstrapsigner,+tokencleaner"

_QUICK = frozenset(("node-lost", "node-never", "node-deleted", "podgc-threshold"))
"""Stories that were recorded with short periods for nodes, and few ended pods kept."""
_NEVER_S = 7200.0


def story_options(cluster: TestCluster, name: str) -> Options:
    """Return the options of the controllers with which a story was recorded."""
    options = replace(cluster.controller_options(), autoscaler=AutoscalerOptions(sync_period_s=2.0))
    if name in _QUICK:
        nodes = NodeLifecycleOptions(1.0, 5.0, 6.0)
        return replace(options, nodes=nodes, terminated_pods_max=2)
    period_s = 1.0 if name == "node-taints" else _NEVER_S
    return replace(options, nodes=NodeLifecycleOptions(period_s, _NEVER_S, _NEVER_S))
