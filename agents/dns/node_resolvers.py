"""The resolvers of the node, as its resolv.conf says: read again when the file changes."""

from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from kvstack.agents.client.timing import Clock
from kvstack.agents.dns.exchange import Resolver
from kvstack.component.errors import ConfigError
from kvstack.component.net import resolv_conf
from kvstack.component.net.resolv_conf import Resolving

LOOKED_S: Final = 5.0
"""So long what was read is believed."""
RESOLVERS_MAX: Final = 15


class NodeResolvers:
    """Called, it returns the resolvers as they are now."""

    def __init__(
        self,
        clock: Clock,
        path: str = resolv_conf.FILE,
        read: Callable[[str], Resolving] = resolv_conf.for_pods,
    ) -> None:
        """Read nothing yet."""
        self._clock = clock
        self._path = Path(path)
        self._read = read
        self._looked_s = float("-inf")
        self._stamp: tuple[int, int] | None = None
        self._found: tuple[Resolver, ...] = ()

    def __call__(self) -> tuple[Resolver, ...]:
        """Return them; none where the file is not there or cannot be read."""
        now_s = self._clock.monotonic_s()
        if now_s - self._looked_s < LOOKED_S:
            return self._found
        self._looked_s = now_s
        try:
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_ino)
            if stamp != self._stamp:
                servers = self._read(str(self._path)).servers
                self._found = tuple(Resolver(each) for each in servers if _is_usable(each))
                self._found = self._found[:RESOLVERS_MAX]
                self._stamp = stamp
        except (OSError, ConfigError):
            self._found, self._stamp = (), None
        return self._found


def _is_usable(server: str) -> bool:
    try:
        ip_address(server)
    except ValueError:
        return False
    return True
