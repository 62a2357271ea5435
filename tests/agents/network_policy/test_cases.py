"""Who may talk to whom: the cases of upstream's feature tests, and those that are easily mistaken.

Namespaces x, y, z with pods a, b, c each; each case says who is refused which connection to x/a,
or from it.
"""

from typing import Any, NamedTuple

import pytest

from kvstack.agents.network_policy.cluster import Cluster
from kvstack.agents.network_policy.policies import RULES_MAX, SELECTORS_MAX, policy_of
from kvstack.apimachinery.objects.json_object import Object
from tests.agents.network_policy.naive import Connection, World
from tests.agents.network_policy.objects import (
    allows,
    do,
    namespace,
    pod,
    policy,
    put_namespace,
    put_pod,
    put_policy,
)

SPACES, NAMES = "xyz", "abc"
PORTS = [
    {"name": "serve-80-tcp", "containerPort": 80},
    {"name": "serve-81-tcp", "containerPort": 81},
    {"name": "serve-81-udp", "containerPort": 81, "protocol": "UDP"},
]
ADDRESSES = {
    f"{space}/{name}": f"10.244.0.{10 * (SPACES.index(space) + 1) + NAMES.index(name)}"
    for space in SPACES
    for name in NAMES
}
OUTSIDE = "203.0.113.9"
EVERYBODY = frozenset(ADDRESSES) | {"outside"}
TARGET = "x/a"


class Case(NamedTuple):
    """A case: the refused are those who may not connect with x/a (or may not be reached by it)."""

    name: str
    policies: list[Object]
    refused: frozenset[str]
    direction: str = "ingress"
    protocol: str = "TCP"
    port: int = 80


def others(*allowed: str) -> frozenset[str]:
    return EVERYBODY - {TARGET} - set(allowed)


def of(space: str) -> set[str]:
    return {f"{space}/{name}" for name in NAMES}


def ns(*names: str) -> Object:
    key = "kubernetes.io/metadata.name"
    return {"matchExpressions": [{"key": key, "operator": "In", "values": list(names)}]}


def labelled(name: str) -> Object:
    return {"matchLabels": {"pod": name}}


def own(name: str, **spec: Any) -> Object:
    """Return a policy of the target alone, unless it says of whom."""
    return policy("x", name, **{"podSelector": labelled("a"), **spec})


def ingress(*rules: Object, **spec: Any) -> list[Object]:
    return [own("p", policyTypes=["Ingress"], ingress=list(rules), **spec)]


def egress(*rules: Object, **spec: Any) -> list[Object]:
    return [own("p", policyTypes=["Egress"], egress=list(rules), **spec)]


def port(number: int | str, protocol: str = "TCP", **more: int) -> Object:
    return {"port": number, "protocol": protocol, **more}


NOBODY: frozenset[str] = frozenset()
ALL = others()
BOTH = [own("p", policyTypes=["Ingress", "Egress"],
            ingress=[{"from": [{"podSelector": labelled("b")}]}],
            egress=[{"to": [{"namespaceSelector": ns("y")}]}])]  # fmt: skip
CASES = [
    Case("no policy", [], NOBODY),
    Case("default deny of ingress", ingress(), ALL),
    Case("default deny by a missing list", [own("p")], ALL),
    Case("default deny of egress", egress(), ALL, "egress"),
    Case("ingress alone does not isolate egress", ingress(), NOBODY, "egress"),
    Case("types by default, with egress", [own("p", egress=[{}])], ALL),
    Case("types by default, and what egress allows", [own("p", egress=[{}])], NOBODY, "egress"),
    Case("types by default, empty egress", [own("p", egress=[])], NOBODY, "egress"),
    Case("an empty rule allows all", ingress({}), NOBODY),
    Case("an empty list of peers is all", ingress({"from": []}), NOBODY),
    Case("an empty list of ports is all", ingress({"ports": []}), NOBODY, port=9),
    Case("of another namespace", [policy("y", "p")], NOBODY),
    Case("of other pods", ingress(podSelector=labelled("b")), NOBODY),
    Case("of this pod", ingress(podSelector=labelled("a")), ALL),
    Case("pods of the namespace", ingress({"from": [{"podSelector": {}}]}), others(*of("x"))),
    Case("pods by label", ingress({"from": [{"podSelector": labelled("b")}]}), others("x/b")),
    Case("all pods, but nobody outside", ingress({"from": [{"namespaceSelector": {}}]}),
         frozenset({"outside"})),
    Case("a namespace", ingress({"from": [{"namespaceSelector": ns("y")}]}), others(*of("y"))),
    Case("a namespace by its own label",
         ingress({"from": [{"namespaceSelector": {"matchLabels": {"ns": "z"}}}]}),
         others(*of("z"))),
    Case("namespaces but one", ingress({"from": [{"namespaceSelector": {"matchExpressions": [
        {"key": "ns", "operator": "NotIn", "values": ["x"]}]}}]}), others(*of("y"), *of("z"))),
    Case("a pod of a namespace", ingress({"from": [
        {"namespaceSelector": ns("y"), "podSelector": labelled("a")}]}), others("y/a")),
    Case("a pod or a namespace", ingress({"from": [
        {"namespaceSelector": ns("y")}, {"podSelector": labelled("b")}]}), others("x/b", *of("y"))),
    Case("two rules", ingress({"from": [{"podSelector": labelled("b")}]},
         {"from": [{"namespaceSelector": ns("z")}]}), others("x/b", *of("z"))),
    Case("by expressions", ingress({"from": [{"podSelector": {"matchExpressions": [
        {"key": "pod", "operator": "In", "values": ["b", "c"]}]}, "namespaceSelector": {}}]}),
         others(*(f"{s}/{p}" for s in SPACES for p in "bc"))),
    Case("by the absence of a label", ingress({"from": [{"podSelector": {"matchExpressions": [
        {"key": "pod", "operator": "DoesNotExist"}]}}]}), ALL),
    Case("several policies are a union", [
        *ingress({"from": [{"podSelector": labelled("b")}]}),
        own("q", ingress=[{"from": [{"namespaceSelector": ns("z")}]}])],
        others("x/b", *of("z"))),
    Case("deny is no more than allow nothing", [*ingress({}), own("q")], NOBODY),
    Case("a port", ingress({"ports": [port(80)]}), NOBODY),
    Case("another port", ingress({"ports": [port(81)]}), ALL),
    Case("a port of another protocol", ingress({"ports": [port(80, "UDP")]}), ALL),
    Case("a port of UDP", ingress({"ports": [port(80, "UDP")]}), NOBODY, protocol="UDP"),
    Case("SCTP is not TCP", ingress({"ports": [port(80, "SCTP")]}), ALL),
    Case("a port of SCTP", ingress({"ports": [port(80, "SCTP")]}), NOBODY, protocol="SCTP"),
    Case("another port of UDP", ingress({"ports": [port(80, "UDP")]}), ALL, protocol="UDP",
         port=81),
    Case("another port of SCTP", ingress({"ports": [port(80, "SCTP")]}), ALL, protocol="SCTP",
         port=81),
    Case("default deny of UDP", ingress(), ALL, protocol="UDP"),
    Case("default deny of SCTP", ingress(), ALL, protocol="SCTP"),
    Case("a pod of a namespace, by UDP", ingress({"from": [
        {"namespaceSelector": ns("y"), "podSelector": labelled("a")}],
        "ports": [port(80, "UDP")]}), others("y/a"), protocol="UDP"),
    Case("a pod of a namespace, by SCTP", ingress({"from": [
        {"namespaceSelector": ns("y"), "podSelector": labelled("a")}],
        "ports": [port(80, "SCTP")]}), others("y/a"), protocol="SCTP"),
    Case("pods or namespaces by several selectors", ingress({"from": [
        {"podSelector": labelled("b"), "namespaceSelector": ns("y", "z")},
        {"podSelector": {"matchExpressions": [
            {"key": "pod", "operator": "NotIn", "values": ["a", "b"]}]},
         "namespaceSelector": ns("z")}]}), others("y/b", "z/b", "z/c")),
    Case("all ports of a protocol", ingress({"ports": [{"protocol": "UDP"}]}), NOBODY,
         protocol="UDP", port=4242),
    Case("all ports of the other protocol", ingress({"ports": [{"protocol": "UDP"}]}), ALL),
    Case("a range", ingress({"ports": [port(79, endPort=81)]}), NOBODY),
    Case("the end of a range", ingress({"ports": [port(70, endPort=80)]}), NOBODY),
    Case("beside a range", ingress({"ports": [port(70, endPort=79)]}), ALL),
    Case("ranges that overlap", ingress({"ports": [port(70, endPort=79), port(75, endPort=85)]}),
         NOBODY),
    Case("a port by name", ingress({"ports": [port("serve-80-tcp")]}), NOBODY),
    Case("a name of another number", ingress({"ports": [port("serve-81-tcp")]}), ALL),
    Case("a name of another protocol", ingress({"ports": [port("serve-80-tcp", "UDP")]}), ALL),
    Case("a name that no port has", ingress({"ports": [port("nothing")]}), ALL),
    Case("a port of some peers", ingress({"from": [{"namespaceSelector": ns("y")}],
         "ports": [port(80)]}, {"from": [{"namespaceSelector": ns("z")}], "ports": [port(81)]}),
         others(*of("y"))),
    Case("egress to a pod", egress({"to": [{"podSelector": labelled("b")}]}), others("x/b"),
         "egress"),
    Case("egress to a port by name", egress({"ports": [port("serve-81-tcp")]}),
         frozenset({"outside"}), "egress", port=81),
    Case("egress to a namespace and port", egress({"to": [{"namespaceSelector": ns("y")}],
         "ports": [port(80)]}), others(*of("y")), "egress"),
    Case("egress without what the other side lets in", [policy("y", "p")], frozenset(of("y")),
         "egress"),
    Case("egress and ingress", [*egress({"to": [{"podSelector": labelled("b")}]}),
         policy("x", "q", podSelector=labelled("b"))], ALL, "egress"),
    Case("egress to a pod of a namespace", egress({"to": [
        {"namespaceSelector": ns("y"), "podSelector": labelled("a")}]}), others("y/a"), "egress"),
    Case("both directions, as a client", BOTH, others(*of("y")), "egress"),
    Case("both directions, as a server", BOTH, others("x/b")),
    Case("egress, several policies are a union", [*egress(),
         own("q", policyTypes=["Egress"], egress=[{}])], NOBODY, "egress"),
    Case("a block", egress({"to": [{"ipBlock": {"cidr": "203.0.113.0/24"}}]}), others("outside"),
         "egress"),
    Case("a block of pods", egress({"to": [{"ipBlock": {"cidr": f"{ADDRESSES['y/a']}/32"}}]}),
         others("y/a"), "egress"),
    Case("a block with an exception", egress({"to": [{"ipBlock": {
        "cidr": "0.0.0.0/0", "except": [f"{ADDRESSES['y/a']}/32", "203.0.113.0/24"]}}]}),
        frozenset({"y/a", "outside"}), "egress"),
    Case("an exception that another block allows", egress({"to": [
        {"ipBlock": {"cidr": "0.0.0.0/0", "except": [f"{ADDRESSES['y/a']}/32"]}},
        {"ipBlock": {"cidr": f"{ADDRESSES['y/a']}/32"}}]}), NOBODY, "egress"),
    Case("an exception that another policy allows", [
        *egress({"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["203.0.113.0/24"]}}]}),
        own("q", policyTypes=["Egress"],
               egress=[{"to": [{"ipBlock": {"cidr": "203.0.113.9/32"}}]}])], NOBODY, "egress"),
    Case("a block of ingress", ingress({"from": [{"ipBlock": {"cidr": "203.0.113.0/24"}}]}),
         others("outside")),
    Case("a block of the other family", ingress({"from": [{"ipBlock": {"cidr": "::/0"}}]}), ALL),
    Case("names that nobody may write into a rule", [
        own('p"; flush ruleset; #', ingress=[
            {"ports": [port('"; drop')], "from": [{"podSelector": labelled("b")}]}])], ALL),
]  # fmt: skip


def objects() -> tuple[list[Object], list[Object]]:
    spaces = [namespace(each, ns=each) for each in SPACES]
    pods = [
        pod(key.partition("/")[0], key.partition("/")[2], address, ports=PORTS)
        for key, address in ADDRESSES.items()
    ]
    return spaces, pods


def connection(case: Case, other: str) -> Connection:
    here, far = ADDRESSES[TARGET], ADDRESSES.get(other, OUTSIDE)
    ends = (far, here) if case.direction == "ingress" else (here, far)
    return Connection(*ends, case.protocol, case.port)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Case) -> None:
    spaces, pods = objects()
    cluster = Cluster()
    put_policy(cluster, *case.policies)
    put_namespace(cluster, *spaces)
    put_pod(cluster, *pods)
    everybody = EVERYBODY - {TARGET}
    found = {each for each in everybody if not allows(cluster, connection(case, each))}
    assert found == case.refused - {TARGET}
    world = World(spaces, pods, case.policies)
    assert found == {each for each in everybody if not world.allows(connection(case, each))}
    assert allows(cluster, connection(case, TARGET))  # a pod reaches itself


def is_allowed(cluster: Cluster, source: str, target: str = "10.0.0.1") -> bool:
    return allows(cluster, Connection(source, target, "TCP", 80))


def test_labels_of_pods_and_namespaces_take_effect_without_the_policy() -> None:
    cluster = Cluster()
    put_policy(
        cluster,
        policy(
            "x",
            "p",
            ingress=[
                {
                    "from": [
                        {
                            "namespaceSelector": {"matchLabels": {"team": "red"}},
                            "podSelector": labelled("b"),
                        }
                    ]
                }
            ],
        ),
    )
    put_pod(cluster, pod("x", "a", "10.0.0.1"), pod("y", "b", "10.0.0.2"))
    assert not is_allowed(cluster, "10.0.0.2")
    put_namespace(cluster, namespace("y", team="red"))
    assert is_allowed(cluster, "10.0.0.2")
    put_pod(cluster, pod("y", "b", "10.0.0.2", labels={}))
    assert not is_allowed(cluster, "10.0.0.2")
    put_pod(cluster, pod("y", "b", "10.0.0.2"))
    assert is_allowed(cluster, "10.0.0.2")
    put_namespace(cluster, namespace("y", team="blue"))
    assert not is_allowed(cluster, "10.0.0.2")
    put_pod(cluster, pod("x", "a", "10.0.0.1", labels={"pod": "b"}))
    put_policy(cluster, policy("x", "p", podSelector=labelled("a")))
    assert is_allowed(cluster, "10.0.0.2")  # it is selected no more


def test_a_policy_that_changes_or_goes_takes_effect() -> None:
    cluster = Cluster()
    put_pod(cluster, pod("x", "a", "10.0.0.1"), pod("x", "b", "10.0.0.2"))
    put_policy(cluster, policy("x", "p", podSelector=labelled("a")))
    assert not is_allowed(cluster, "10.0.0.2")
    from_b = [{"from": [{"podSelector": labelled("b")}]}]
    put_policy(cluster, policy("x", "p", podSelector=labelled("a"), ingress=from_b))
    assert is_allowed(cluster, "10.0.0.2")
    put_policy(cluster, policy("x", "p"), policy("x", "q", policyTypes=["Egress"]))
    assert not is_allowed(cluster, "10.0.0.2")
    do(cluster.set_policy("x/p", None))
    assert not is_allowed(cluster, "10.0.0.2")
    do(cluster.set_policy("x/q", None))
    assert is_allowed(cluster, "10.0.0.2")


def test_pods_that_ended_and_those_that_share_their_nodes_address_are_no_peers() -> None:
    cluster = Cluster()
    put_policy(cluster, policy("x", "p", ingress=[{"from": [{"podSelector": {}}]}]))
    put_pod(cluster, pod("x", "a", "10.0.0.1"), pod("x", "b", "10.0.0.2"))
    put_pod(cluster, pod("x", "c", "192.0.2.1", hostNetwork=True))
    assert is_allowed(cluster, "10.0.0.2")
    assert not is_allowed(cluster, "192.0.2.1")
    assert is_allowed(cluster, "10.0.0.1", "192.0.2.1")  # nor isolated
    put_pod(cluster, pod("x", "b", "10.0.0.2", phase="Succeeded"))
    assert not is_allowed(cluster, "10.0.0.2")
    put_pod(cluster, pod("x", "d", "10.0.0.2"), pod("x", "b", "10.0.0.2"))
    put_pod(cluster, pod("x", "b", "10.0.0.2", phase="Failed"))
    assert is_allowed(cluster, "10.0.0.2")  # of another pod by now


def test_what_is_too_much_allows_nothing_and_says_so() -> None:
    many = [{"from": [{"podSelector": {"matchLabels": {"n": str(n)}}}]} for n in range(RULES_MAX)]
    found = policy_of(policy("x", "p", ingress=[*many, {}]))
    assert (found.ingress, found.egress) == ((), None)
    assert "more than 1,000 rules" in found.problem
    peers = [{"podSelector": {"matchLabels": {"n": str(n)}}} for n in range(SELECTORS_MAX + 1)]
    found = policy_of(policy("x", "p", ingress=[{"from": peers}]))
    assert found.ingress == ()
    assert "more than 1,000 selectors" in found.problem
    same = [{"podSelector": {"matchLabels": {"n": "1"}}}] * (SELECTORS_MAX + 1)
    assert not policy_of(policy("x", "p", ingress=[{"from": same}])).problem


def test_a_selector_that_is_invalid_selects_nothing() -> None:
    bad = {"matchExpressions": [{"key": "a", "operator": "In", "values": ["not ok!"]}]}
    found = policy_of(policy("x", "p", ingress=[{"from": [{"podSelector": bad}]}]))
    assert "selects nothing" in found.problem
    cluster = Cluster()
    put_policy(cluster, policy("x", "p", ingress=[{"from": [{"podSelector": bad}]}]))
    put_pod(cluster, pod("x", "a", "10.0.0.1"), pod("x", "b", "10.0.0.2"))
    assert not is_allowed(cluster, "10.0.0.2")
