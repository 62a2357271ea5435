"""Which pods of a node are isolated, by which policies, and what these allow.

    cluster = Cluster()
    run(cluster.set_policy("shop/db", policy)); run(cluster.set_pod("shop/web", facts))
    run(cluster.set_own("uid", OwnPod("shop", labels, ("10.244.0.7",))))
    cluster.take_changes()       Changes: what differs since the last time

Every setter works in steps (`for _ in …`), between which others may have their turn; it is done
when the steps are over. Policies that select no pod of this node, and what they name, cost nothing.
Namespaces have the label `kubernetes.io/metadata.name` from the API.
"""

from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

from kvstack.agents.network_policy.members import (
    PodSets,
    SetChanges,
    peers_name,
    ports_name,
    ranges_name,
)
from kvstack.agents.network_policy.pods import PodFacts
from kvstack.agents.network_policy.policies import Policy, Rule

Direction: TypeAlias = Literal["ingress", "egress"]
PolicyKey: TypeAlias = tuple[Direction, str]
Chosen: TypeAlias = tuple[str, ...]
"""The policies that isolate a pod in one direction, in order."""
Isolated: TypeAlias = tuple[Direction, str]
"""A direction, and the address of a pod."""

DIRECTIONS: Final[tuple[Direction, ...]] = ("ingress", "egress")


class OwnPod(NamedTuple):
    """A pod of this node."""

    namespace: str
    labels: Mapping[str, str]
    addresses: tuple[str, ...]


class NamedRule(NamedTuple):
    """A rule, and the sets that it names."""

    rule: Rule
    peers: str
    """Empty: none."""
    ports: str
    """Empty: none."""
    ranges: tuple[str, ...]

    @property
    def sets(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(filter(None, (self.peers, self.ports, *self.ranges)))


class Changes(NamedTuple):
    """What differs."""

    sets: SetChanges
    rules: Mapping[PolicyKey, tuple[NamedRule, ...] | None]
    """Of policies in a direction; None: they isolate no pod of this node any more."""
    isolated: Mapping[Isolated, Chosen | None]
    """None: the address is not isolated any more."""


class Cluster:
    """What one node knows of policies."""

    def __init__(self) -> None:
        """Know nothing."""
        self.sets: Final = PodSets()
        self.rules: Final[dict[PolicyKey, tuple[NamedRule, ...]]] = {}
        self._policies: dict[str, dict[str, Policy]] = {}  # by namespace, then by key
        self._own: dict[str, OwnPod] = {}
        self._chosen: dict[str, dict[Direction, Chosen]] = {}  # by uid
        self._users: dict[PolicyKey, int] = {}
        self._owners: dict[Isolated, dict[str, Chosen]] = {}  # by uid
        self._changed_rules: dict[PolicyKey, None] = {}
        self._changed: dict[Isolated, Chosen | None] = {}  # as they were

    def set_pod(self, key: str, facts: PodFacts | None) -> Iterator[None]:
        """Take a pod of the cluster as it is now; None: it is gone."""
        return self.sets.set_pod(key, facts)

    def set_namespace(self, name: str, labels: Mapping[str, str] | None) -> Iterator[None]:
        """Take the labels of a namespace; None: it is gone."""
        return self.sets.set_namespace(name, labels)

    def set_policy(self, key: str, policy: Policy | None) -> Iterator[None]:
        """Take a policy as it is now; None: it is gone."""
        namespace = key.partition("/")[0]
        known = self._policies.setdefault(namespace, {})
        old = known.get(key)
        if policy == old:
            return
        if policy is None:
            del known[key]
        else:
            known[key] = policy
        if not known:
            del self._policies[namespace]
        for direction in DIRECTIONS:
            if policy is not None and (direction, key) in self.rules:
                yield from self._write_rules((direction, key), _of(policy, direction) or ())
        for uid, own in list(self._own.items()):
            if own.namespace == namespace:
                yield from self._choose(uid)

    def set_own(self, uid: str, own: OwnPod | None) -> Iterator[None]:
        """Take a pod of this node; None: it is gone, and nothing of it can send any more."""
        if self._own.get(uid) == own:
            return
        for direction, chosen in self._chosen.get(uid, {}).items():
            self._isolate(uid, direction, chosen, is_so=False)
        if own is None:
            self._own.pop(uid, None)
        else:
            self._own[uid] = own
        for direction, chosen in self._chosen.get(uid, {}).items():
            self._isolate(uid, direction, chosen, is_so=True)
        yield from self._choose(uid)

    def own_uids(self) -> list[str]:
        """Return the pods of this node."""
        return list(self._own)

    def is_selected(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether a policy isolates pods with these labels."""
        known = self._policies.get(namespace) or {}
        return any(each.pods.matches(labels) for each in known.values())

    def isolated(self) -> dict[Isolated, Chosen]:
        """Return all isolated addresses, and by which policies."""
        return {key: chosen for key in self._owners if (chosen := self._of_address(key))}

    def chosen(self, isolated: Isolated) -> Chosen | None:
        """Return the policies of an address; None: it is not isolated."""
        return self._of_address(isolated)

    @property
    def has_changes(self) -> bool:
        """Whether something may differ."""
        return bool(self._changed or self._changed_rules) or self.sets.has_changes

    def take_changes(self) -> Changes:
        """Return what differs since the last time."""
        rules = {key: self.rules.get(key) for key in self._changed_rules}
        isolated = {
            key: now for key, was in self._changed.items() if (now := self._of_address(key)) != was
        }
        self._changed_rules.clear()
        self._changed.clear()
        return Changes(self.sets.take_changes(), rules, isolated)

    def _choose(self, uid: str) -> Iterator[None]:
        """Find the policies of a pod of this node."""
        own, before = self._own.get(uid), self._chosen.get(uid, {})
        now: dict[Direction, Chosen] = {}
        if own is not None:
            known = self._policies.get(own.namespace) or {}
            selecting = {k: each for k, each in known.items() if each.pods.matches(own.labels)}
            for direction in DIRECTIONS:
                keys = sorted(k for k, p in selecting.items() if _of(p, direction) is not None)
                if keys:
                    now[direction] = tuple(keys)
        if now == before:
            return
        # What comes is made before what goes is let go: a set of both is not made anew.
        for direction, chosen in now.items():
            for key in chosen:
                yield from self._acquire((direction, key))
        for direction, chosen in before.items():
            self._isolate(uid, direction, chosen, is_so=False)
        self._chosen[uid] = now
        for direction, chosen in now.items():
            self._isolate(uid, direction, chosen, is_so=True)
        for direction, chosen in before.items():
            for key in chosen:
                self._release((direction, key))
        if not now:
            del self._chosen[uid]

    def _isolate(self, uid: str, direction: Direction, chosen: Chosen, *, is_so: bool) -> None:
        own = self._own.get(uid)
        for address in own.addresses if own is not None else ():
            key: Isolated = (direction, address)
            self._changed.setdefault(key, self._of_address(key))
            owners = self._owners.setdefault(key, {})
            if is_so:
                owners[uid] = chosen
            else:
                owners.pop(uid, None)
                if not owners:
                    del self._owners[key]

    def _of_address(self, key: Isolated) -> Chosen | None:
        """Return the policies of an address: of the pod that came last, if several have it."""
        owners = self._owners.get(key)
        return next(reversed(owners.values())) if owners else None

    def _acquire(self, key: PolicyKey) -> Iterator[None]:
        self._users[key] = self._users.get(key, 0) + 1
        if key not in self.rules:
            namespace = key[1].partition("/")[0]
            rules = _of(self._policies[namespace][key[1]], key[0]) or ()
            yield from self._write_rules(key, rules)

    def _release(self, key: PolicyKey) -> None:
        self._users[key] -= 1
        if not self._users[key]:
            del self._users[key]
            for rule in self.rules.pop(key):
                for name in rule.sets:
                    self.sets.release(name)
            self._changed_rules[key] = None

    def _write_rules(self, key: PolicyKey, rules: tuple[Rule, ...]) -> Iterator[None]:
        """Take the rules of a policy, and keep the sets that they name."""
        found = tuple(_named(each) for each in rules)
        for each in found:
            rule = each.rule
            if each.peers and rule.peers:
                yield from self.sets.acquire_peers(rule.peers)
            if each.ports and rule.ports:
                yield from self.sets.acquire_ports(rule.ports.names)
            for family, ranges in rule.blocks.items():
                self.sets.acquire_ranges(family, ranges)
        for each in self.rules.get(key, ()):
            for name in each.sets:
                self.sets.release(name)
        self.rules[key] = found
        self._changed_rules[key] = None


def _of(policy: Policy, direction: Direction) -> tuple[Rule, ...] | None:
    return policy.ingress if direction == "ingress" else policy.egress


def _named(rule: Rule) -> NamedRule:
    return NamedRule(
        rule,
        peers_name(rule.peers) if rule.peers else "",
        ports_name(rule.ports.names) if rule.ports and rule.ports.names else "",
        tuple(ranges_name(family, ranges) for family, ranges in rule.blocks.items()),
    )
