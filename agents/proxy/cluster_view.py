"""The Services and EndpointSlices of a cluster in one family, and what has changed of them.

    view = ClusterView(4, Here("node-1"))
    view.set_service(None, service); view.set_slice(None, slice_)
    view.take_changes()      {port: Served, gone port: None}: only of Services that were touched

What a change costs depends on the Service that it is about, and not on how many there are.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

from kvstack.agents.proxy.choice import Here, Served, choose
from kvstack.agents.proxy.endpoints import Endpoint, Endpoints, endpoints_of, merged, service_of
from kvstack.agents.proxy.services import Family, PortName, ServicePort, ports_of
from kvstack.apimachinery.objects.json_object import Object

Changes: TypeAlias = dict[PortName, Served | None]


class Refused(NamedTuple):
    """An object that cannot be served."""

    what: str
    why: str


class ClusterView:
    """What one node serves in one family."""

    def __init__(self, family: Family, here: Here) -> None:
        """Know of nothing yet."""
        self.family: Final[Family] = family
        self.refused: list[Refused] = []
        """Since it was last emptied."""
        self._here = here
        self._ports: dict[str, tuple[ServicePort, ...]] = {}  # by namespace/name
        self._slices: dict[str, dict[str, Endpoints]] = {}  # by Service, then by slice
        self._served: dict[PortName, Served] = {}
        self._known: dict[str, tuple[PortName, ...]] = {}  # those served, by namespace/name
        self._touched: set[str] = set()

    @property
    def count(self) -> int:
        """How many ports are served."""
        return len(self._served)

    @property
    def has_changes(self) -> bool:
        """Whether something was touched since changes were taken."""
        return bool(self._touched)

    def served(self) -> Iterator[Served]:
        """Give all that was served when changes were last taken."""
        return iter(self._served.values())

    def set_service(self, old: Object | None, new: Object | None) -> None:
        """Take a Service as it is now; None: it was not there, or is there no more."""
        key = _key((new or old or {})["metadata"])
        ports: tuple[ServicePort, ...] = ()
        if new is not None:
            try:
                ports = ports_of(new, self.family)
            except (ValueError, KeyError, TypeError) as error:
                self.refused.append(Refused(f"Service {key}", repr(error)))
        if ports != self._ports.get(key, ()):
            self._touched.add(key)
            if ports:
                self._ports[key] = ports
            else:
                del self._ports[key]

    def set_slice(self, old: Object | None, new: Object | None) -> None:
        """Take an EndpointSlice as it is now."""
        name = (new or old or {})["metadata"]["name"]
        before = service_of(old, self.family) if old is not None else ""
        after = service_of(new, self.family) if new is not None else ""
        if before and before != after:
            self._put(before, name, None)
        if after and new is not None:
            try:
                found = endpoints_of(new, self._here.node)
            except (ValueError, KeyError, TypeError) as error:
                self.refused.append(Refused(f"EndpointSlice {_key(new['metadata'])}", repr(error)))
                found = {}
            self._put(after, name, found)

    def move_to(self, here: Here) -> bool:
        """Take the node's labels as they are now; return whether all is to be chosen anew."""
        if here == self._here:
            return False
        self._here = here
        self._touched.update(self._ports)
        return True

    def take_changes(self) -> Changes:
        """Return what is served now of the Services that were touched."""
        changes: Changes = {}
        touched, self._touched = self._touched, set()
        for key in touched:
            ports = self._ports.get(key, ())
            slices = self._slices.get(key, {}).values()
            changes.update(dict.fromkeys(self._known.get(key, ())))
            for port in ports:
                name = port.name
                endpoints = merged(slices, (name.port, name.protocol))
                changes[name] = choose(port, endpoints, self._here)
        for name, served in list(changes.items()):
            if served is None:
                del self._served[name]
            elif self._served.get(name) == served:
                del changes[name]
            else:
                self._served[name] = served
        self._index(touched)
        return changes

    def answering(self, name: PortName) -> set[str]:
        """Return the endpoints of a port that answer, wherever they are, as texts."""
        slices = self._slices.get(f"{name.namespace}/{name.service}", {}).values()
        endpoints: tuple[Endpoint, ...] = merged(slices, (name.port, name.protocol))
        return {each.text for each in endpoints if each.is_serving}

    def _put(self, service: str, name: str, endpoints: Endpoints | None) -> None:
        slices = self._slices.get(service, {})
        if slices.get(name) == endpoints:
            return
        if endpoints is None:
            del slices[name]
            if not slices:
                del self._slices[service]
        else:
            self._slices.setdefault(service, {})[name] = endpoints
        self._touched.add(service)

    def _index(self, keys: set[str]) -> None:
        for key in keys:
            ports = self._ports.get(key)
            if ports:
                self._known[key] = tuple(each.name for each in ports)
            else:
                self._known.pop(key, None)


def _key(meta: Object) -> str:
    return f"{meta['namespace']}/{meta['name']}"
