"""HTTP proxies, from settings or from the environment.

proxy_of("https://issuer.example/", "http://user:pass@proxy:3128")     Proxy("proxy", 3128, …)
proxy_from_environment("https://issuer.example/")                      the URL, or empty

The variables https_proxy, http_proxy and no_proxy are read, in capitals too, as in Go's client:
no_proxy has names, which include their subdomains, addresses and networks. Loopback is never behind
a proxy. A server with TLS is reached through CONNECT, any other by its whole URL.
"""

import base64
from ipaddress import ip_address, ip_network
from typing import NamedTuple
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies_environment

from kvstack.component.http.request_head import UrlError


class Proxy(NamedTuple):
    """A proxy over HTTP."""

    host: str
    port: int
    head: str = ""
    """The header line with the credentials; empty: none."""


def proxy_of(url: str) -> Proxy | None:
    """Return the proxy at a URL; empty: none. Raises UrlError."""
    if not url:
        return None
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        shown = f"{parts.scheme}://{parts.hostname or ''}"
        raise UrlError(f"proxy {shown}: only proxies with a URL of http:// are supported")
    head = ""
    if parts.username:
        secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        head = f"Proxy-Authorization: Basic {base64.b64encode(secret).decode()}\r\n"
    return Proxy(parts.hostname, parts.port or 80, head)


def proxy_from_environment(url: str) -> str:
    """Return the URL of the proxy that the environment names for a server; empty: none."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    proxies = getproxies_environment()
    proxy = proxies.get(parts.scheme, "")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    without = proxies.get("no", "").split(",")
    if not proxy or any(_names(each.strip(), host, port) for each in without):
        return ""
    if host == "localhost" or _is_in("127.0.0.0/8", host) or _is_in("::1", host):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _names(entry: str, host: str, port: int) -> bool:
    """Return whether an entry of no_proxy names a host, at any port or at this one."""
    if not entry:
        return False
    if entry == "*" or _is_in(entry, host):
        return True
    name, colon, of_port = entry.rpartition(":") if entry.count(":") == 1 else (entry, "", "")
    if colon and of_port != str(port):
        return False
    if _is_in(name, host):
        return True
    if name.startswith((".", "*.")):
        return host.endswith(name.removeprefix("*"))
    return host == name or host.endswith(f".{name}")


def _is_in(network: str, host: str) -> bool:
    try:
        return ip_address(host) in ip_network(network, strict=False)
    except ValueError:  # one of them is a name
        return False
