"""Whatever happens in whatever order: the cluster judges as the objects do, and tells changes."""

from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kvstack.agents.network_policy.cluster import Chosen, Cluster, Isolated
from kvstack.agents.network_policy.members import RANGES, Content, Element
from kvstack.agents.network_policy.pods import facts_of
from kvstack.agents.network_policy.ranges import ranges_of
from kvstack.apimachinery.objects.json_object import Object
from tests.agents.network_policy.naive import Connection, World
from tests.agents.network_policy.objects import (
    allows,
    do,
    key_of,
    namespace,
    pod,
    policy,
    put_namespace,
    put_pod,
    put_policy,
)

SPACES, NAMES, VALUES = ("x", "y"), ("a", "b", "c"), ("1", "2")
ADDRESSES = tuple(f"10.0.0.{number}" for number in range(6))
PROTOCOLS = ("TCP", "UDP")
PORT_NUMBERS = (79, 80, 81)


def labels() -> st.SearchStrategy[dict[str, str]]:
    return st.dictionaries(st.sampled_from(("k", "l")), st.sampled_from(VALUES))


def selectors() -> st.SearchStrategy[Object]:
    key, values = st.sampled_from(("k", "l")), st.lists(st.sampled_from(VALUES), min_size=1)
    expression = st.one_of(
        st.fixed_dictionaries(
            {"key": key, "operator": st.sampled_from(("In", "NotIn")), "values": values}
        ),
        st.fixed_dictionaries(
            {"key": key, "operator": st.sampled_from(("Exists", "DoesNotExist"))}
        ),
    )
    return st.fixed_dictionaries(
        {}, optional={"matchLabels": labels(), "matchExpressions": st.lists(expression, max_size=1)}
    )


@st.composite
def blocks(draw: st.DrawFn) -> Object:
    prefix = draw(st.integers(28, 31))
    whole = ip_network((draw(st.sampled_from(ADDRESSES)), prefix), strict=False)
    parts = list(whole.subnets(new_prefix=draw(st.integers(prefix + 1, 32))))
    return {
        "cidr": str(whole),
        "except": [str(each) for each in draw(st.lists(st.sampled_from(parts), max_size=2))],
    }


def peers() -> st.SearchStrategy[Object]:
    return st.one_of(
        st.fixed_dictionaries({"podSelector": selectors()}),
        st.fixed_dictionaries({"namespaceSelector": selectors()}),
        st.fixed_dictionaries({"podSelector": selectors(), "namespaceSelector": selectors()}),
        st.fixed_dictionaries({"ipBlock": blocks()}),
    )


def ports() -> st.SearchStrategy[Object]:
    protocol = {"protocol": st.sampled_from(PROTOCOLS)}
    number = {"port": st.sampled_from(PORT_NUMBERS)}
    name = {"port": st.sampled_from(("web", "dns"))}
    return st.one_of(
        st.fixed_dictionaries({}, optional=protocol),
        st.fixed_dictionaries(number, optional=protocol),
        st.fixed_dictionaries(name, optional=protocol),
        st.fixed_dictionaries({"port": st.just(79), "endPort": st.integers(79, 81), **protocol}),
    )


def rules(side: str) -> st.SearchStrategy[Object]:
    several = {side: st.lists(peers(), max_size=3), "ports": st.lists(ports(), max_size=2)}
    return st.fixed_dictionaries({}, optional=several)


@st.composite
def policies(draw: st.DrawFn) -> Object:
    spec: Object = {"podSelector": draw(selectors())}
    if draw(st.booleans()):
        types = st.lists(st.sampled_from(("Ingress", "Egress")), min_size=1, unique=True)
        spec["policyTypes"] = draw(types)
    if draw(st.booleans()):
        spec["ingress"] = draw(st.lists(rules("from"), max_size=2))
    if draw(st.booleans()):
        spec["egress"] = draw(st.lists(rules("to"), max_size=2))
    return policy(draw(st.sampled_from(SPACES)), draw(st.sampled_from("pq")), **spec)


@st.composite
def pods(draw: st.DrawFn) -> Object:
    at = draw(st.integers(0, len(SPACES) * len(NAMES) - 1))
    containers = draw(
        st.lists(
            st.fixed_dictionaries(
                {
                    "name": st.sampled_from(("web", "dns")),
                    "containerPort": st.sampled_from(PORT_NUMBERS),
                    "protocol": st.sampled_from(PROTOCOLS),
                }
            ),
            max_size=2,
        )
    )
    return pod(
        SPACES[at // len(NAMES)],
        NAMES[at % len(NAMES)],
        ADDRESSES[at],
        labels=draw(labels()),
        ports=containers,
        phase=draw(st.sampled_from(("Running", "Running", "Failed"))),
        hostNetwork=draw(st.sampled_from((False, False, True))),
    )


def spaces() -> st.SearchStrategy[Object]:
    return st.builds(lambda name, own: namespace(name, **own), st.sampled_from(SPACES), labels())


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("policy"), policies()),
        st.tuples(st.just("pod"), pods()),
        st.tuples(st.just("namespace"), spaces()),
        st.tuples(st.sampled_from(("no policy", "no pod", "take")), st.integers(0, 9)),
    ),
    min_size=1,
    max_size=14,
)


class Mirror:
    """What somebody knows who hears of changes alone."""

    def __init__(self) -> None:
        self.sets: dict[str, Content] = {}
        self.elements: dict[str, set[Element]] = {}
        self.isolated: dict[Isolated, Chosen] = {}
        self.rules: dict[Any, Any] = {}

    def take(self, cluster: Cluster) -> None:
        changes = cluster.take_changes()
        assert not cluster.has_changes
        for name, content in changes.sets.created.items():
            assert name not in self.sets
            self.sets[name], self.elements[name] = content, set()
        for name, removed in changes.sets.removed.items():
            assert self.elements[name] >= set(removed)
            self.elements[name] -= set(removed)
        for name, added in changes.sets.added.items():
            assert not self.elements[name] & set(added)
            self.elements[name] |= set(added)
        for name in changes.sets.gone:
            del self.sets[name], self.elements[name]
        for key, found in changes.rules.items():
            self.rules[key] = found
        for where, chosen in changes.isolated.items():
            if chosen is None:
                del self.isolated[where]
            else:
                self.isolated[where] = chosen
        self.rules = {key: found for key, found in self.rules.items() if found is not None}
        self.compare(cluster)

    def compare(self, cluster: Cluster) -> None:
        assert self.sets == cluster.sets.contents()
        assert self.isolated == cluster.isolated()
        assert self.rules == cluster.rules
        for name, content in self.sets.items():
            if content.kind != RANGES:
                assert self.elements[name] == set(cluster.sets.elements(name))
        named = {name for found in self.rules.values() for rule in found for name in rule.sets}
        assert named == self.sets.keys()  # nothing is kept that no rule names


def connections() -> Iterator[Connection]:
    for source in (*ADDRESSES, "10.0.0.9"):
        for target in (*ADDRESSES, "10.0.0.9"):
            for protocol in PROTOCOLS:
                for number in PORT_NUMBERS:
                    yield Connection(source, target, protocol, number)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_the_cluster_judges_as_the_objects_do(steps: list[tuple[str, Any]]) -> None:
    cluster, mirror = Cluster(), Mirror()
    known: dict[str, dict[str, Object]] = {"policy": {}, "pod": {}, "namespace": {}}
    for kind, obj in steps:
        if kind == "take":
            mirror.take(cluster)
        elif kind.startswith("no "):
            of = known[kind.removeprefix("no ")]
            if of:
                key = sorted(of)[obj % len(of)]
                gone = of.pop(key)
                if kind == "no policy":
                    do(cluster.set_policy(key, None))
                else:
                    do(cluster.set_pod(key, None))
                    do(cluster.set_own(gone["metadata"]["uid"], None))
        elif kind == "namespace":
            known[kind][obj["metadata"]["name"]] = obj
            put_namespace(cluster, obj)
        else:
            known[kind][key_of(obj)] = obj
            put = put_policy if kind == "policy" else put_pod
            put(cluster, obj)
    mirror.take(cluster)
    world = World(*(list(known[kind].values()) for kind in ("namespace", "pod", "policy")))
    for it in connections():
        assert allows(cluster, it) == world.allows(it), it


@given(st.lists(blocks(), max_size=5))
def test_ranges_have_what_blocks_allow(given_blocks: list[Object]) -> None:
    found = ranges_of(given_blocks).get(4, ())
    assert list(found) == sorted(found)
    assert all(one[1] + 1 < other[0] for one, other in pairwise(found))
    for number in range(24):
        address = ip_address(f"10.0.0.{number}")
        is_allowed = any(
            address in ip_network(each["cidr"])
            and all(address not in ip_network(part) for part in each["except"])
            for each in given_blocks
        )
        assert is_allowed == any(first <= int(address) <= last for first, last in found)


def test_blocks_as_old_objects_have_them() -> None:
    assert ranges_of([{"cidr": "010.0.0.0/30"}]) == {4: ((0x0A000000, 0x0A000003),)}
    assert ranges_of([{"cidr": "::ffff:10.0.0.0/126"}]) == {4: ((0x0A000000, 0x0A000003),)}
    assert ranges_of([{"cidr": "nonsense"}]) == {}
    assert ranges_of([{"cidr": "fd00::/127"}]) == {6: ((0xFD << 120, (0xFD << 120) + 1),)}
    assert ranges_of([{"cidr": "0.0.0.0/0"}]) == {4: ((0, (1 << 32) - 1),)}
    assert facts_of(pod("x", "a", "010.0.0.1")).addresses == ("10.0.0.1",)
