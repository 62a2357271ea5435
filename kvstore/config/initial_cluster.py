"""The members that the flags name: --initial-cluster, checked by etcd's rules with its texts.

    a=http://10.0.0.1:2380,b=http://10.0.0.2:2380,b=https://10.0.1.2:2380
    → {"a": (one url,), "b": (two urls, sorted)}

Two URLs are the same if their texts are, or the addresses that their names resolve to. Only a
member without data needs these flags; once there is a log they are ignored.
"""

import ipaddress
from collections.abc import Callable, Mapping, Sequence

from kvstack.component.errors import ConfigError
from kvstore.config.model import Config
from kvstore.config.values import check_url, split_host_port

Resolve = Callable[[str], str]  # host name → IP address; OSError if it has none


def initial_members(
    config: Config, resolve: Resolve, by_srv: Callable[[], str] | None = None
) -> dict[str, tuple[str, ...]]:
    """Return the peer URLs of the cluster's members by name; ConfigError if the list is invalid.

    A member of a new cluster must also advertise the URLs it is listed with; for one that joins,
    the cluster already has its URLs. by_srv returns the list of --discovery-srv. With a discovery
    registry only this member is returned.
    """
    joins = config.initial_cluster_state == "existing"
    if joins and config.discovery.endpoints:
        raise ConfigError("discovery URL should not be set when joining existing initial cluster")
    listed = config.initial_cluster
    if config.discovery_srv:
        if by_srv is None:
            raise ConfigError(
                "--discovery-srv: DNS lookups are not available here; use --initial-cluster"
            )
        listed = by_srv()
    members = read_members(listed)
    if config.name not in members:
        raise ConfigError(
            f'couldn\'t find local name "{config.name}" in the initial cluster configuration '
            f'(--initial-cluster "{listed}")'
        )
    if not joins:
        _check_advertised(config, members[config.name], resolve)
    urls = [url for urls in members.values() for url in urls]
    if len(set(urls)) != len(urls):
        raise ConfigError(f"initial cluster {_text(members)} has duplicate url")
    return members


def read_members(text: str) -> dict[str, tuple[str, ...]]:
    """Return the peer URLs by name of a list name=url,name=url; ConfigError for an invalid URL."""
    members: dict[str, list[str]] = {}
    for item in filter(None, text.split(",")):
        name, _, url = item.partition("=")
        try:
            members.setdefault(name, []).append(check_url(url.strip()))
        except ValueError as error:
            raise ConfigError(f'--initial-cluster "{text}": {error}') from None
    return {name: tuple(sorted(urls)) for name, urls in members.items()}


def difference(urls: Sequence[str], others: Sequence[str], resolve: Resolve) -> str:
    """Return how two lists of URLs differ; "" if they have the same addresses."""
    if len(urls) != len(others):
        return f"len({_quoted(urls)}) != len({_quoted(others)})"
    pairs = list(zip(sorted(urls), sorted(others), strict=True))
    if all(_normal(a) == _normal(b) for a, b in pairs):
        return ""
    try:
        resolved = [sorted(_resolved(url, resolve) for url in each) for each in (urls, others)]
    except OSError as error:
        return str(error)
    for a, b in zip(*resolved, strict=True):
        if _normal(a) != _normal(b):
            return f'resolved urls: "{a}" != "{b}"'
    return ""


def _check_advertised(config: Config, listed: Sequence[str], resolve: Resolve) -> None:
    advertised = sorted(config.initial_advertise_peer_urls)
    reason = difference(advertised, listed, resolve)
    if not reason:
        return
    name, together = config.name, ",".join(advertised)
    mine = ",".join(f"{name}={url}" for url in advertised)
    missing = [f"{name}={url}" for url in listed if url not in advertised]
    if missing:
        raise ConfigError(
            f"--initial-cluster has {','.join(missing)} but missing from "
            f"--initial-advertise-peer-urls={together} ({reason})"
        )
    missing = [url for url in advertised if url not in listed]
    if missing:
        raise ConfigError(
            f"--initial-advertise-peer-urls has {','.join(missing)} but missing from "
            f"--initial-cluster={mine}"
        )
    raise ConfigError(f"failed to resolve {together} to match --initial-cluster={mine} ({reason})")


def _resolved(url: str, resolve: Resolve) -> str:
    """Return url with its host's address instead of the name; localhost is kept."""
    scheme, _, authority = url.partition("://")
    if scheme.startswith("unix"):
        return url
    host, port = split_host_port(authority, url)
    if host == "localhost":
        return url
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        try:
            address = ipaddress.ip_address(resolve(host))
        except OSError as error:
            raise OSError(f'failed to resolve "{url}" ({error})') from None
    shown = f"[{address}]" if address.version == 6 else str(address)
    return f"{scheme}://{shown}:{port}"


def _normal(url: str) -> str:
    """Return url with an IP address in its canonical form."""
    scheme, separator, authority = url.partition("://")
    if scheme.startswith("unix") or not separator:
        return url
    host, port = split_host_port(authority, url)
    try:
        return f"{scheme}://{ipaddress.ip_address(host)} {port}"
    except ValueError:
        return url


def _quoted(texts: Sequence[str]) -> str:
    return "[" + " ".join(f'"{text}"' for text in texts) + "]"


def _text(members: Mapping[str, Sequence[str]]) -> str:
    return ",".join(sorted(f"{name}={url}" for name, urls in members.items() for url in urls))
