"""All scenarios, in the order they are played and reported."""

from typing import Final

from bench.run import Scenario
from bench.scenarios import (
    api_pods,
    api_server,
    catch_up,
    clients,
    cluster_fanout,
    cluster_rates,
    defrag,
    embedded,
    failover,
    fanout,
    history,
    http,
    keys,
    kubernetes,
    latency,
    leases,
    rates,
    scheduling,
    security,
    slow_link,
    snapshot,
    watches,
)
from bench.scenarios.clusters import churn, forks, stack

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
    clients.SCENARIO,
    api_server.SCENARIO,
    api_pods.SCENARIO,
    scheduling.SCENARIO,
    stack.SCENARIO,
    churn.SCENARIO,
    embedded.SCENARIO,
    forks.SCENARIO,
    http.SCENARIO,
)
