"""Objects of the tests of policies, and a cluster that takes them."""

from collections import deque
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any

from kvstack.agents.network_policy.cluster import Cluster, Direction, NamedRule, OwnPod
from kvstack.agents.network_policy.pods import facts_of
from kvstack.agents.network_policy.policies import policy_of
from kvstack.apimachinery.objects.json_object import Object
from tests.agents.network_policy.naive import Connection

WEB = [
    {"name": "web", "containerPort": 80},
    {"name": "dns", "containerPort": 53, "protocol": "UDP"},
]


def namespace(name: str, **labels: str) -> Object:
    own = {"kubernetes.io/metadata.name": name, **labels}
    return {"metadata": {"name": name, "labels": own}}


def pod(
    where: str,
    name: str,
    address: str = "",
    *,
    labels: dict[str, str] | None = None,
    ports: list[Object] | None = None,
    phase: str = "Running",
    **spec: Any,
) -> Object:
    status: Object = {"phase": phase}
    if address:
        status |= {"podIP": address, "podIPs": [{"ip": address}]}
    containers = [{"name": "it", "ports": WEB if ports is None else ports}]
    return {
        "metadata": {
            "name": name,
            "namespace": where,
            "uid": f"{where}-{name}",
            "labels": {"pod": name} if labels is None else labels,
        },
        "spec": {"containers": containers, "nodeName": "here", **spec},
        "status": status,
    }


def policy(where: str, name: str, **spec: Any) -> Object:
    return {
        "metadata": {"name": name, "namespace": where, "uid": f"policy-{where}-{name}"},
        "spec": {"podSelector": {}, **spec},
    }


def do(steps: Iterator[None]) -> None:
    deque(steps, maxlen=0)


def key_of(obj: Object) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def put_policy(cluster: Cluster, *objects: Object) -> None:
    for obj in objects:
        do(cluster.set_policy(key_of(obj), policy_of(obj)))


def put_pod(cluster: Cluster, *objects: Object) -> None:
    """Take pods, all of which are on this node."""
    for obj in objects:
        facts = facts_of(obj)
        do(cluster.set_pod(key_of(obj), facts))
        own = OwnPod(facts.namespace, facts.labels, facts.addresses)
        do(cluster.set_own(obj["metadata"]["uid"], own if facts.addresses else None))


def put_namespace(cluster: Cluster, *objects: Object) -> None:
    for obj in objects:
        do(cluster.set_namespace(obj["metadata"]["name"], obj["metadata"]["labels"]))


def allows(cluster: Cluster, it: Connection) -> bool:
    """Judge a connection as the rules that the cluster has now do."""
    if it.source == it.target:
        return True
    return _side_allows(cluster, "egress", it) and _side_allows(cluster, "ingress", it)


def _side_allows(cluster: Cluster, direction: Direction, it: Connection) -> bool:
    own, other = (it.source, it.target) if direction == "egress" else (it.target, it.source)
    chosen = cluster.chosen((direction, own))
    return chosen is None or any(
        _rule_allows(cluster, rule, other, it)
        for key in chosen
        for rule in cluster.rules[direction, key]
    )


def _rule_allows(cluster: Cluster, named: NamedRule, other: str, it: Connection) -> bool:
    rule = named.rule
    if rule.peers is not None:
        number = int(ip_address(other))
        ranges = rule.blocks.get(6 if ":" in other else 4, ())
        in_range = any(first <= number <= last for first, last in ranges)
        if not in_range and not (named.peers and cluster.sets.has(named.peers, (other,))):
            return False
    if rule.ports is None:
        return True
    numbers = rule.ports.numbers.get(it.protocol, ())
    if any(first <= it.port <= last for first, last in numbers):
        return True
    element = (it.target, it.protocol.lower(), str(it.port))
    return bool(named.ports) and cluster.sets.has(named.ports, element)
