"""The node's own name resolution, from a resolv.conf."""

from ipaddress import ip_address
from pathlib import Path
from typing import Final, NamedTuple

from kvstack.component.errors import ConfigError

FILE: Final = "/etc/resolv.conf"
_BEHIND_RESOLVED: Final = "/run/systemd/resolve/resolv.conf"
"""systemd-resolved's file of upstream servers."""


class Resolving(NamedTuple):
    """Servers, searches and options."""

    servers: list[str]
    searches: list[str]
    options: list[str]


def read(path: str) -> Resolving:
    """Return the settings of a file; path empty: the machine's own. Raises ConfigError."""
    if not path:
        return Resolving(["127.0.0.1"], ["."], [])
    try:
        lines = Path(path).read_text().splitlines()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    resolving = Resolving([], [], [])
    for line in lines:
        words = line.split()
        if words[:1] == ["nameserver"]:
            resolving.servers.extend(words[1:2])
        elif words[:1] == ["search"]:
            # With and without its last dot it is the same domain.
            resolving = resolving._replace(
                searches=[each.rstrip(".") or each for each in words[1:]]
            )
        elif words[:1] == ["options"]:
            resolving = resolving._replace(options=words[1:])
    return resolving


def for_pods(path: str = FILE, behind: str = _BEHIND_RESOLVED) -> Resolving:
    """Return the settings for pods of this machine, which cannot reach a server on its loopback.

    A machine without such a file resolves no names.
    """
    if not Path(path).exists():
        return Resolving([], [], [])
    found = read(path)
    if found.servers and all(_is_loopback(each) for each in found.servers):
        return read(behind) if Path(behind).exists() else found
    return found


def _is_loopback(server: str) -> bool:
    try:
        return ip_address(server.partition("%")[0]).is_loopback
    except ValueError:
        return False
