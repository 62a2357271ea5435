"""The checks of `Host`, `Origin` and `Sec-Fetch-Site` in requests of browsers.

    --host-whitelist not given, listening on loopback only
        Host: localhost:2379 · 127.0.0.1:2379 · an own listen or advertised host    → served
        Host: evil.example (a name that was pointed at 127.0.0.1)                   → 421
    --cors not given
        no Origin (curl, libraries), or the page's own origin                       → served
        Origin: http://evil.example, Origin: null                                   → 403

A browser sends `Origin` with every POST, every WebSocket and every request whose answer a page of
another origin could read. `--cors=*` and `--host-whitelist=*` have etcd's meaning if set:
all. TLS needs no check of `Host`, because no other host has the certificate; a unix socket
needs none, because no browser can open it.

Nothing is answered here; `access` does that.
"""

from collections.abc import Collection, Iterable
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from kvstore.http.exchange import PageRequest

ALL: Final = "*"
_FOREIGN_SITES: Final = frozenset({"cross-site", "same-site"})
_HARMLESS_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class BrowserRules:
    """Which hosts and origins are served."""

    def __init__(
        self,
        origins: Collection[str] = (),
        hosts: Collection[str] = (),
        *,
        listen_urls: Iterable[str] = (),
        advertised_urls: Iterable[str] = (),
    ) -> None:
        """origins, hosts: as --cors and --host-whitelist name them; empty: not given."""
        listening = [name for url in listen_urls if (name := _host_of_url(url))]
        advertised = [name for url in advertised_urls if (name := _host_of_url(url))]
        self._origins = frozenset(origins)
        self._hosts = frozenset(hosts)
        self._own = frozenset(
            each for each in (*listening, *advertised) if not _is_unspecified(each)
        )
        self._is_on_loopback = all(map(_is_loopback, listening))

    def is_host_served(self, request: PageRequest, name: str) -> bool:
        """Return whether a plaintext request may name a host (without its port)."""
        if self._hosts:
            return ALL in self._hosts or name in self._hosts
        if not self._is_on_loopback or not request.remote_ip or not name:
            return True
        return self._is_own(name)

    def refused_origin(self, request: PageRequest, host: str) -> str:
        """Return the origin for which a request is refused; empty: it is not.

        host: as the request names it, without its port.
        """
        origin = request.header("origin")
        if ALL in self._origins:
            return ""
        if not origin:
            site = request.header("sec-fetch-site")
            is_foreign = site in _FOREIGN_SITES and request.method not in _HARMLESS_METHODS
            return site if is_foreign else ""
        if origin in self._origins or self._is_same_origin(request, origin, host):
            return ""
        return origin

    def allowed_origin(self, request: PageRequest) -> str:
        """Return the value of Access-Control-Allow-Origin; empty: none is sent."""
        if ALL in self._origins:
            return ALL
        origin = request.header("origin")
        return origin if origin in self._origins else ""

    def _is_same_origin(self, request: PageRequest, origin: str, host: str) -> bool:
        """Return whether the request is of a page that this server sent.

        A name that is not one of this server's may belong to an attacker who pointed it here.
        """
        scheme = "https" if request.is_tls else "http"
        if origin.lower() != f"{scheme}://{request.host}".lower():
            return False
        return request.is_tls or self._is_own(host) or host in self._hosts or _is_address(host)

    def _is_own(self, name: str) -> bool:
        return _is_loopback(name) or name.lower() in self._own


def _host_of_url(url: str) -> str:
    """Return the host of an http or https URL in lower case; empty: it has none."""
    return (urlsplit(url).hostname or "") if url.startswith("http") else ""


def _is_loopback(name: str) -> bool:
    if name.lower() == "localhost":
        return True
    return _is_address(name) and ip_address(_bare(name)).is_loopback


def _is_unspecified(name: str) -> bool:
    return _is_address(name) and ip_address(_bare(name)).is_unspecified


def _is_address(name: str) -> bool:
    try:
        ip_address(_bare(name))
    except ValueError:
        return False
    return True


def _bare(name: str) -> str:
    return name.removeprefix("[").removesuffix("]")
