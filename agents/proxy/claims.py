"""What several ports of Services may claim at once: a cluster IP, a node port, a pod's hairpin.

    claims.change({name: ({key: value}, {key: new value})})    [(key, before, now), …]

Each port claims keys and says what they lead to. A key is there while one port claims it; of
several the oldest decides, so that nobody takes what another Service has. What is returned are the
keys for which that differs.
"""

from collections.abc import Hashable, Iterator, Mapping
from typing import Generic, Protocol, TypeVar

from kvstack.agents.proxy.services import PortName


class Dated(Protocol):
    """What a key leads to."""

    @property
    def since(self) -> str:
        """When the Service was created that it leads to."""
        ...


K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Dated)


class Claims(Generic[K, V]):
    """The claims of all ports."""

    def __init__(self) -> None:
        """Nobody claims anything."""
        self._owners: dict[K, dict[PortName, V]] = {}

    def change(
        self, ports: Mapping[PortName, tuple[Mapping[K, V], Mapping[K, V]]]
    ) -> list[tuple[K, V | None, V | None]]:
        """Take the claims of ports, which were the first and are the second.

        Return the keys whose value is another one now, with what it was and is; None: not there.
        """
        before: dict[K, V | None] = {}
        for name, (old, new) in ports.items():
            for key in (*old, *new):
                if key not in before:
                    before[key] = self.value(key)
            self._own(name, old, new)
        differing = ((key, was, self.value(key)) for key, was in before.items())
        return [(key, was, now) for key, was, now in differing if was != now]

    def value(self, key: K) -> V | None:
        """Return what a key leads to; None: nobody claims it."""
        owners = self._owners.get(key)
        if not owners:
            return None
        if len(owners) == 1:
            return next(iter(owners.values()))
        return owners[min(owners, key=lambda name: (owners[name].since, name))]

    def __iter__(self) -> Iterator[K]:
        """Give the keys that are claimed."""
        return iter(self._owners)

    def items(self) -> Iterator[tuple[K, V]]:
        """Give all that is claimed."""
        for key in self._owners:
            value = self.value(key)
            assert value is not None, "it has an owner"
            yield key, value

    def _own(self, name: PortName, old: Mapping[K, V], new: Mapping[K, V]) -> None:
        for key in old:
            owners = self._owners[key]
            del owners[name]
            if not owners:
                del self._owners[key]
        for key, value in new.items():
            self._owners.setdefault(key, {})[name] = value
