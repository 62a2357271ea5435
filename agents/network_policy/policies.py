"""One NetworkPolicy, read: whom it isolates, and what its rules allow.

    policy_of(object)    Policy("shop", selector, ingress=(Rule(…),), egress=None)

A direction of which the policy says nothing is None; one without rules is empty, and allows
nothing. In a rule None stands for everything (an empty list, or none), and never for nothing.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kvstack.agents.network_policy.ranges import Family, Range, Ranges, merged, ranges_of
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.labels import NOTHING, Selector, SelectorError, from_object

PROTOCOLS: Final = ("TCP", "UDP", "SCTP")
"""Those that rules are written for; one that the schema gains is not among them."""
ALL_PORTS: Final[Range] = (0, 65535)
SELECTORS_MAX: Final = 1_000
"""Different peers by selector that the rules of one policy may name, in one direction."""
RULES_MAX: Final = 1_000
"""Rules of one policy in one direction."""


class PortName(NamedTuple):
    """A port of a container, as rules may name it."""

    name: str
    protocol: str


class Peer(NamedTuple):
    """Pods by selector."""

    namespace: str
    """Whose pods; empty: of the namespaces that are selected."""
    namespaces: Selector | None
    pods: Selector

    @property
    def key(self) -> tuple[str, ...]:
        """What is equal for equal ones, and can be sorted."""
        across = "-" if self.namespaces is None else _text(self.namespaces)
        return self.namespace, across, _text(self.pods)


class Ports(NamedTuple):
    """Ports that a rule allows."""

    numbers: Mapping[str, Ranges]
    """By protocol."""
    names: frozenset[PortName]
    """Which number each stands for is the destination's affair."""


class Rule(NamedTuple):
    """One rule; what is None is not looked at."""

    peers: tuple[Peer, ...] | None
    blocks: Mapping[Family, Ranges]
    ports: Ports | None


class Policy(NamedTuple):
    """One policy."""

    namespace: str
    pods: Selector
    ingress: tuple[Rule, ...] | None
    egress: tuple[Rule, ...] | None
    problem: str = ""
    """Why it allows less than it says; empty: it does not."""


def policy_of(obj: Object) -> Policy:
    """Return what a NetworkPolicy says."""
    namespace, spec = obj["metadata"]["namespace"], obj.get("spec") or {}
    types = spec.get("policyTypes") or (
        ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    )
    problems: list[str] = []
    reader = _Reader(namespace, problems)
    pods = reader.selector(spec.get("podSelector") or {})
    ingress = reader.rules(spec.get("ingress"), "from") if "Ingress" in types else None
    egress = reader.rules(spec.get("egress"), "to") if "Egress" in types else None
    return Policy(namespace, pods, ingress, egress, "; ".join(dict.fromkeys(problems)))


class _Reader:
    def __init__(self, namespace: str, problems: list[str]) -> None:
        self._namespace = namespace
        self._problems = problems

    def selector(self, obj: Object) -> Selector:
        try:
            return from_object(obj)
        except SelectorError as error:
            self._problems.append(f"a selector that is invalid selects nothing: {error}")
            return NOTHING

    def rules(self, given: list[Object] | None, side: str) -> tuple[Rule, ...]:
        """Return the rules of one direction; none of them if they are too many."""
        if len(given or ()) > RULES_MAX:
            self._problems.append(f"more than {RULES_MAX:,} rules in a direction allow nothing")
            return ()
        found = tuple(self._rule(each or {}, side) for each in given or ())
        if len({peer.key for rule in found for peer in rule.peers or ()}) > SELECTORS_MAX:
            text = f"more than {SELECTORS_MAX:,} selectors of peers in a direction allow nothing"
            self._problems.append(text)
            return ()
        return found

    def _rule(self, rule: Object, side: str) -> Rule:
        ports = _ports(rule.get("ports") or ())
        if not rule.get(side):
            return Rule(None, {}, ports)
        items = [each for each in rule[side] if each]
        peers = {
            peer.key: peer
            for peer in (self._peer(each) for each in items if each.get("ipBlock") is None)
        }
        blocks = ranges_of(each["ipBlock"] for each in items if each.get("ipBlock") is not None)
        return Rule(tuple(peers[key] for key in sorted(peers)), blocks, ports)

    def _peer(self, item: Object) -> Peer:
        pods = self.selector(item.get("podSelector") or {})
        if item.get("namespaceSelector") is None:
            return Peer(self._namespace, None, pods)
        return Peer("", self.selector(item["namespaceSelector"]), pods)


def _ports(given: Iterable[Object]) -> Ports | None:
    numbers: dict[str, list[Range]] = {}
    names: set[PortName] = set()
    is_limited = False
    for each in given:
        is_limited = True
        protocol, port = each.get("protocol") or "TCP", each.get("port")
        if protocol not in PROTOCOLS:
            continue  # which the API does not take
        if isinstance(port, str):
            names.add(PortName(port, protocol))
        elif port is None:
            numbers.setdefault(protocol, []).append(ALL_PORTS)
        else:
            numbers.setdefault(protocol, []).append((port, each.get("endPort") or port))
    if not is_limited:
        return None
    return Ports({key: merged(ranges) for key, ranges in numbers.items()}, frozenset(names))


def _text(selector: Selector) -> str:
    return "?" if selector is NOTHING else str(selector)
