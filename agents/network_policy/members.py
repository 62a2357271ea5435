"""Sets of addresses that rules name, kept as pods come, change and go.

    sets = PodSets()
    name = sets.acquire_peers((peer, …))     "peers-5f3c…": one set for equal lists of peers
    list(sets.set_pod("shop/web", facts))    steps
    sets.take_changes()                      SetChanges: only what differs since the last time

A set is there while a rule names it. Several pods may have one address for a while; it is in a set
while one of them is.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from kvstack.agents.network_policy.pods import PodFacts
from kvstack.agents.network_policy.policies import Peer, PortName
from kvstack.agents.network_policy.ranges import Family, Ranges

Element: TypeAlias = tuple[str, ...]
"""An address; or an address, a protocol and a number."""

PEERS: Final = "peers"
PORTS: Final = "ports"
RANGES: Final = "ranges"
_STEP: Final = 500
"""Comparisons of a selector with a pod between two steps: a fraction of a millisecond."""
_DIGITS: Final = 16


class Content(NamedTuple):
    """What a set is made of."""

    kind: str
    ranges: tuple[Family, Ranges] | None = None


class SetChanges(NamedTuple):
    """What differs, by the name of a set."""

    created: Mapping[str, Content]
    gone: Mapping[str, Content]
    added: Mapping[str, list[Element]]
    removed: Mapping[str, list[Element]]


class _Set:
    def __init__(self, name: str, content: Content) -> None:
        self.name = name
        self.content = content
        self.users = 0
        self.counts: dict[Element, int] = {}  # by how many pods


class _PeerSet(_Set):
    def __init__(self, name: str, peers: tuple[Peer, ...]) -> None:
        super().__init__(name, Content(PEERS))
        self.peers = peers

    def has(self, pod: PodFacts, namespace: Mapping[str, str]) -> bool:
        for own, namespaces, pods in self.peers:
            is_there = own == pod.namespace if namespaces is None else namespaces.matches(namespace)
            if is_there and pods.matches(pod.labels):
                return True
        return False


class _PortSet(_Set):
    def __init__(self, name: str, names: frozenset[PortName]) -> None:
        super().__init__(name, Content(PORTS))
        self.names = names


class PodSets:
    """The sets of one node."""

    def __init__(self) -> None:
        """Know no pod and no set."""
        self.pods: Final[dict[str, PodFacts]] = {}
        self.namespaces: Final[dict[str, Mapping[str, str]]] = {}
        self._by_namespace: dict[str, dict[str, None]] = {}  # keys of pods
        self._sets: dict[str, _Set] = {}
        self._peers: dict[str, _PeerSet] = {}
        self._ports: dict[str, _PortSet] = {}
        self._parts: dict[str, dict[str, tuple[Element, ...]]] = {}  # pod → set → its elements
        self._log: dict[str, dict[Element, bool]] = {}  # whether it was there
        self._known: dict[str, Content] = {}  # sets, when changes were last taken
        self._unused: dict[str, None] = {}

    # What rules name.

    def acquire_peers(self, peers: tuple[Peer, ...]) -> Iterator[None]:
        """Keep the set of peers, in steps; its name is that of `peers_name`."""
        name = peers_name(peers)
        made = self._peers.get(name)
        if made is None:
            made = self._peers[name] = _PeerSet(name, peers)
            self._sets[name] = made
            made.users += 1  # it stays, whoever else comes between two steps
            yield from self._fill(made, self._candidates(peers))
        else:
            made.users += 1

    def acquire_ports(self, names: frozenset[PortName]) -> Iterator[None]:
        """Keep the set of the ports that have names, in steps."""
        name = ports_name(names)
        made = self._ports.get(name)
        if made is None:
            made = self._ports[name] = _PortSet(name, names)
            self._sets[name] = made
            made.users += 1
            yield from self._fill(made, list(self.pods))
        else:
            made.users += 1

    def acquire_ranges(self, family: Family, ranges: Ranges) -> None:
        """Keep a set of ranges."""
        name = ranges_name(family, ranges)
        made = self._sets.get(name)
        if made is None:
            made = self._sets[name] = _Set(name, Content(RANGES, (family, ranges)))
        made.users += 1

    def release(self, name: str) -> None:
        """A rule names a set no more."""
        found = self._sets[name]
        found.users -= 1
        if not found.users:
            # It goes when changes are taken: until then it may be named again, and is as written.
            self._unused[name] = None

    # What is in them.

    def set_pod(self, key: str, facts: PodFacts | None) -> Iterator[None]:
        """Take a pod as it is now (None: it is gone), in steps."""
        old = self.pods.get(key)
        if facts == old:
            return
        if old is not None:
            self._by_namespace[old.namespace].pop(key)
            if not self._by_namespace[old.namespace]:
                del self._by_namespace[old.namespace]
        if facts is None:
            self.pods.pop(key, None)
            for name in list(self._parts.get(key) or ()):
                self._put(key, name, ())
            self._parts.pop(key, None)
            return
        self.pods[key] = facts
        self._by_namespace.setdefault(facts.namespace, {})[key] = None
        yield from self._put_into_sets(key)

    def set_namespace(self, name: str, labels: Mapping[str, str] | None) -> Iterator[None]:
        """Take the labels of a namespace (None: it is gone), in steps."""
        if self.namespaces.get(name) == labels:
            return
        if labels is None:
            self.namespaces.pop(name, None)
        else:
            self.namespaces[name] = labels
        for key in list(self._by_namespace.get(name) or ()):
            yield from self._put_into_sets(key)

    def elements(self, name: str) -> list[Element]:
        """Return what a set of pods or ports has."""
        return list(self._sets[name].counts)

    def has(self, name: str, element: Element) -> bool:
        """Whether an element is in a set."""
        return element in self._sets[name].counts

    def contents(self) -> dict[str, Content]:
        """Return all sets."""
        return {name: each.content for name, each in self._sets.items()}

    def take_changes(self) -> SetChanges:
        """Return what differs since the last time."""
        self._drop_unused()
        now, before = self.contents(), self._known
        self._known = now
        added: dict[str, list[Element]] = {}
        removed: dict[str, list[Element]] = {}
        created = {name: each for name, each in now.items() if name not in before}
        for name, elements in self._log.items():
            if name in created:
                continue
            for element, was_there in elements.items():
                if (element in self._sets[name].counts) is not was_there:
                    (removed if was_there else added).setdefault(name, []).append(element)
        for name, content in created.items():
            if content.kind != RANGES:
                added[name] = self.elements(name)
        self._log.clear()
        gone = {name: each for name, each in before.items() if name not in now}
        return SetChanges(created, gone, added, removed)

    @property
    def has_changes(self) -> bool:
        """Whether something may differ."""
        return bool(self._log or self._unused) or self._known.keys() != self._sets.keys()

    def _drop_unused(self) -> None:
        for name in self._unused:
            if self._sets[name].users:
                continue
            made = self._sets.pop(name)
            self._peers.pop(name, None)
            self._ports.pop(name, None)
            self._log.pop(name, None)
            if made.counts:
                for parts in self._parts.values():
                    parts.pop(name, None)
        self._unused.clear()

    def _candidates(self, peers: tuple[Peer, ...]) -> list[str]:
        if any(each.namespaces is not None for each in peers):
            return list(self.pods)
        names = {each.namespace for each in peers}
        return [key for name in names for key in self._by_namespace.get(name) or ()]

    def _fill(self, made: _PeerSet | _PortSet, keys: list[str]) -> Iterator[None]:
        weight = len(made.peers) if isinstance(made, _PeerSet) else 1
        count = 0
        for key in keys:
            facts = self.pods.get(key)
            if facts is not None:  # it may be gone since the last step
                self._put(key, made.name, self._elements_of(facts, made, _single(facts)))
            count += weight
            if count >= _STEP:
                count = 0
                yield

    def _put_into_sets(self, key: str) -> Iterator[None]:
        """Put a pod into the sets that it is in now."""
        count, facts = 0, self.pods[key]
        single = _single(facts)  # held once, in however many sets
        every: list[_PeerSet | _PortSet] = [*self._peers.values(), *self._ports.values()]
        for made in every:
            self._put(key, made.name, self._elements_of(facts, made, single))
            count += len(made.peers) if isinstance(made, _PeerSet) else 1
            if count >= _STEP:
                count = 0
                yield

    def _elements_of(
        self, facts: PodFacts, made: _PeerSet | _PortSet, single: tuple[Element, ...]
    ) -> tuple[Element, ...]:
        """Return what a pod adds to a set; single: its addresses, as elements."""
        if not single:
            return ()
        if isinstance(made, _PeerSet):
            return single if made.has(facts, self.namespaces.get(facts.namespace) or {}) else ()
        return tuple(
            (address, port.protocol.lower(), str(number))
            for port, number in sorted(facts.ports)
            if port in made.names
            for address in facts.addresses
        )

    def _put(self, key: str, name: str, elements: tuple[Element, ...]) -> None:
        """Let a pod have these elements in a set, and no others."""
        parts = self._parts.setdefault(key, {})
        old = parts.get(name, ())
        if old == elements:
            return
        if elements:
            parts[name] = elements
        else:
            del parts[name]
        counts, log = self._sets[name].counts, self._log.setdefault(name, {})
        for element in elements:
            log.setdefault(element, element in counts)
            counts[element] = counts.get(element, 0) + 1
        for element in old:
            log.setdefault(element, element in counts)
            counts[element] -= 1
            if not counts[element]:
                del counts[element]


def _single(facts: PodFacts) -> tuple[Element, ...]:
    return tuple((address,) for address in facts.addresses)


def peers_name(peers: tuple[Peer, ...]) -> str:
    """Return the name of the set of a list of peers."""
    return _name(PEERS, tuple(each.key for each in peers))


def ports_name(names: frozenset[PortName]) -> str:
    """Return the name of the set of the ports that have one of these names."""
    return _name(PORTS, tuple(sorted(tuple(each) for each in names)))


def ranges_name(family: Family, ranges: Ranges) -> str:
    """Return the name of a set of ranges."""
    return _name(RANGES, (family, ranges))


def _name(kind: str, content: object) -> str:
    digest = hashlib.sha256(repr(content).encode()).hexdigest()
    return f"{kind}-{digest[:_DIGITS]}"
