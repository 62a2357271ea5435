"""All scenarios, in the order they are played and reported."""

from typing import Final

from bench.run import Scenario
from bench.scenarios import (
    catch_up,
    cluster_fanout,
    cluster_rates,
    defrag,
    failover,
    fanout,
    history,
    keys,
    kubernetes,
    latency,
    leases,
    rates,
    security,
    slow_link,
    snapshot,
    watches,
)

SCENARIOS: Final[tuple[Scenario, ...]] = (
    rates.SCENARIO,
    fanout.SCENARIO,
    latency.SCENARIO,
    keys.SCENARIO,
    history.SCENARIO,
    watches.SCENARIO,
    leases.SCENARIO,
    defrag.SCENARIO,
    cluster_rates.SCENARIO,
    cluster_fanout.SCENARIO,
    catch_up.SCENARIO,
    snapshot.SCENARIO,
    slow_link.SCENARIO,
    failover.SCENARIO,
    security.SCENARIO,
    kubernetes.SCENARIO,
)
