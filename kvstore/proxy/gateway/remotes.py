"""The choice of the endpoint for the gateway's next connection.

    those of the lowest priority that has an active endpoint
        some have a weight     at random by weight; in one of a hundred cases one without a weight
        none has a weight      in turn

An endpoint that could not be reached is inactive until it can be reached again. No IO is here.
"""

import random
from collections.abc import Iterable
from typing import Final

from kvstore.proxy.endpoints import join
from kvstore.server.discovery.dns import Service

_WEIGHTLESS_PART: Final = 100


class Remote:
    """One endpoint."""

    def __init__(self, service: Service) -> None:
        self.service: Final = service
        self.address: Final = join(service.target, service.port)
        self.is_active = True


class Remotes:
    """All endpoints."""

    def __init__(self, services: Iterable[Service], rng: random.Random) -> None:
        self.all: Final = [Remote(each) for each in services]
        self._rng = rng
        self._count = 0

    def pick(self) -> Remote | None:
        """Return the endpoint to try next; None if all are inactive."""
        active = [each for each in self.all if each.is_active]
        if not active:
            return None
        best = min(each.service.priority for each in active)
        candidates = [each for each in active if each.service.priority == best]
        weighted = [each for each in candidates if each.service.weight]
        unweighted = [each for each in candidates if not each.service.weight]
        if not weighted:
            return self._next_of(unweighted)
        if unweighted and self._rng.randrange(_WEIGHTLESS_PART) == 1:
            return self._next_of(unweighted)
        return self._rng.choices(weighted, [each.service.weight for each in weighted])[0]

    def _next_of(self, candidates: list[Remote]) -> Remote:
        chosen = candidates[self._count % len(candidates)]
        self._count += 1
        return chosen
