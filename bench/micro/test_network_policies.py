"""What one pod's change costs a node: 1,000 pods of the cluster, 200 policies, 100 pods of its own.

`pytest bench/micro/test_network_policies.py` prints the table; inside the whole test run each body
runs once. Own CPU alone: what the program nft takes comes on top, and grows with the transaction.
"""

import itertools
from collections import deque
from collections.abc import Iterator
from typing import Any

from pytest_benchmark.fixture import BenchmarkFixture

from kvstack.agents.network_policy.cluster import Cluster, OwnPod
from kvstack.agents.network_policy.nftables.table import Table
from kvstack.agents.network_policy.pods import PodFacts
from kvstack.agents.network_policy.policies import policy_of

SPACES, PODS, POLICIES, OWN = 10, 1_000, 200, 100


def do(steps: Iterator[None]) -> None:
    deque(steps, maxlen=0)


def facts(number: int, **labels: str) -> PodFacts:
    own = {"app": f"app-{number % 50}", "tier": f"tier-{number % 3}", **labels}
    address = f"10.244.{number >> 8}.{number & 255}"
    return PodFacts(f"space-{number % SPACES}", own, (address,))


def policy(number: int) -> dict[str, Any]:
    """Return one that selects every pod of its namespace, and names peers in all namespaces."""
    peers = [
        {"podSelector": {"matchLabels": {"app": f"app-{number % 50}"}}, "namespaceSelector": {}},
        {"podSelector": {}},
        {"namespaceSelector": {"matchLabels": {"team": f"team-{number}"}}},
    ]
    ports = [{"port": 8000 + number, "protocol": "TCP"}]
    meta = {"namespace": f"space-{number % SPACES}", "name": f"p-{number}"}
    rules = {"ingress": [{"from": peers, "ports": ports}], "egress": [{"to": peers}]}
    return {"metadata": meta, "spec": {"podSelector": {}, **rules}}


def node() -> tuple[Cluster, Table]:
    """Return a node that has written all there is."""
    cluster, table = Cluster(), Table("bench", (4,))
    for number in range(SPACES):
        do(cluster.set_namespace(f"space-{number}", {"team": f"team-{number}"}))
    for number in range(POLICIES):
        obj = policy(number)
        key = f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
        do(cluster.set_policy(key, policy_of(obj)))
    for number in range(PODS):
        do(cluster.set_pod(f"pod-{number}", facts(number)))
    for number in range(OWN):
        found = facts(number)
        do(cluster.set_own(f"pod-{number}", OwnPod(*found[:3])))
    table.whole(cluster)
    return cluster, table


def test_the_labels_of_a_pod_change(benchmark: BenchmarkFixture) -> None:
    cluster, table = node()
    labels = itertools.cycle(("app-1", "app-2"))

    def change() -> str:
        do(cluster.set_pod("pod-7", facts(7, app=next(labels))))
        return table.change(cluster.take_changes())

    assert change()
    text = benchmark(change)
    assert set(text.split("\n")[0].split()[:2]) <= {"add", "delete", "element"}


def test_a_pod_of_this_node_comes_and_goes(benchmark: BenchmarkFixture) -> None:
    cluster, table = node()

    def come_and_go() -> int:
        found = facts(PODS)
        do(cluster.set_pod("new", found))
        do(cluster.set_own("new", OwnPod(*found[:3])))
        come = table.change(cluster.take_changes())
        do(cluster.set_own("new", None))
        do(cluster.set_pod("new", None))
        return len(come) + len(table.change(cluster.take_changes()))

    assert benchmark(come_and_go) > 0


def test_the_labels_of_a_namespace_change(benchmark: BenchmarkFixture) -> None:
    cluster, table = node()
    teams = itertools.cycle(("team-1", "team-2"))

    def change() -> str:
        do(cluster.set_namespace("space-3", {"team": next(teams)}))
        return table.change(cluster.take_changes())

    assert change()
    assert benchmark(change)


def test_the_whole_table(benchmark: BenchmarkFixture) -> None:
    cluster, table = node()
    assert benchmark(lambda: table.whole(cluster))
