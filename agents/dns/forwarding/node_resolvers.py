"""The node's resolv.conf, read again when the file changes."""

from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from kvstack.agents.dns.forwarding.exchange import Resolver
from kvstack.component.clock import Clock
from kvstack.component.errors import ConfigError
from kvstack.component.net import resolv_conf
from kvstack.component.net.resolv_conf import Resolving

LOOKED_S: Final = 5.0
"""So long what was read is believed."""
RESOLVERS_MAX: Final = 15
SEARCHES_MAX: Final = 29
"""The maximum number of search domains: a pod may have 32, of which three are of the cluster."""


class NodeResolvers:
    """Called, it returns the resolvers as they are now."""

    def __init__(
        self,
        clock: Clock,
        path: str = resolv_conf.FILE,
        read: Callable[[str], Resolving] = resolv_conf.for_pods,
    ) -> None:
        self._clock = clock
        self._path = Path(path)
        self._read = read
        self._looked_s = float("-inf")
        self._stamp: tuple[int, int] | None = None
        self._resolvers: tuple[Resolver, ...] = ()
        self._searches: tuple[str, ...] = ()

    def __call__(self) -> tuple[Resolver, ...]:
        """Return them; none where the file is not there or cannot be read."""
        self._look()
        return self._resolvers

    def searches(self) -> tuple[str, ...]:
        """Return the domains that the node searches."""
        self._look()
        return self._searches

    def _look(self) -> None:
        now_s = self._clock.monotonic_s()
        if now_s - self._looked_s < LOOKED_S:
            return
        self._looked_s = now_s
        try:
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_ino)
            if stamp != self._stamp:
                read = self._read(str(self._path))
                servers = (Resolver(each) for each in read.servers if _is_usable(each))
                self._resolvers = tuple(servers)[:RESOLVERS_MAX]
                searches = (each.lower() for each in read.searches if each != ".")
                self._searches = tuple(searches)[:SEARCHES_MAX]
                self._stamp = stamp
        except (OSError, ConfigError):
            self._resolvers, self._searches, self._stamp = (), (), None


def _is_usable(server: str) -> bool:
    try:
        ip_address(server)
    except ValueError:
        return False
    return True
