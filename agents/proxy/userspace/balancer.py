"""Which endpoint the next connection goes to: each in turn, or the client's last one.

balancer.next("192.0.2.7", now_s)     the endpoints to try, the best first
"""

from collections import OrderedDict
from typing import Final

from kvstack.agents.proxy.endpoints import Endpoint

CLIENTS_MAX: Final = 10_000
"""Clients that are remembered; the one that was away for longest goes first."""


class Balancer:
    """Chooses for one port."""

    def __init__(self) -> None:
        """Know of no endpoint."""
        self._endpoints: tuple[Endpoint, ...] = ()
        self._affinity_s = 0
        self._at = 0
        self._clients: OrderedDict[str, tuple[Endpoint, float]] = OrderedDict()

    def use(self, endpoints: tuple[Endpoint, ...], affinity_s: int) -> None:
        """Take endpoints as they are now."""
        if not affinity_s:
            self._clients.clear()
        if {each.text for each in endpoints} != {each.text for each in self._endpoints}:
            self._at = 0
        self._endpoints, self._affinity_s = endpoints, affinity_s
        texts = {each.text for each in endpoints}
        for client in [c for c, (one, _) in self._clients.items() if one.text not in texts]:
            del self._clients[client]

    def next(self, client: str, now_s: float) -> list[Endpoint]:
        """Return all endpoints in the order in which they are to be tried."""
        if not self._endpoints:
            return []
        at = self._at % len(self._endpoints)
        order = [*self._endpoints[at:], *self._endpoints[:at]]
        known = self._clients.get(client)
        if known is not None and now_s - known[1] <= self._affinity_s:
            order.sort(key=lambda each: each.text != known[0].text)
        else:
            self._at = at + 1
        return order

    def took(self, client: str, endpoint: Endpoint, now_s: float) -> None:
        """A connection of a client was made; it is to come back here."""
        if not self._affinity_s:
            return
        self._clients[client] = (endpoint, now_s)
        self._clients.move_to_end(client)
        if len(self._clients) > CLIENTS_MAX:
            self._clients.popitem(last=False)
