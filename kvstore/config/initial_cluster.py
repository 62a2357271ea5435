"""The members the flags name: --initial-cluster read, and held to etcd's rules and texts.

    a=http://10.0.0.1:2380,b=http://10.0.0.2:2380,b=https://10.0.1.2:2380
    → {"a": (one url,), "b": (two urls, sorted)}

URLs of two lists are the same if the texts are, or what the names in them resolve to. Only what a
member without data needs is here; once there is a log, these flags do not count.
"""

import ipaddress
from collections.abc import Callable, Mapping, Sequence

from kvstore.config.model import Config
from kvstore.config.values import check_url, split_host_port
from kvstore.errors import ConfigError

Resolve = Callable[[str], str]  # host name → IP address; OSError if it has none


def initial_members(
    config: Config, resolve: Resolve, by_srv: Callable[[], str] | None = None
) -> dict[str, tuple[str, ...]]:
    """Return peer URLs by name of the members to found or to join; ConfigError if they make none.

    A founder must also advertise what it is listed with; one that joins has told the cluster.
    by_srv returns the list of --discovery-srv. A member that is to meet the others in a registry
    is alone here.
    """
    joins = config.initial_cluster_state == "existing"
    if joins and config.values.get("discovery-endpoints"):
        raise ConfigError("discovery URL should not be set when joining existing initial cluster")
    listed = config.initial_cluster
    if config.values.get("discovery-srv"):
        if by_srv is None:
            raise ConfigError("--discovery-srv: DNS is not asked here; use --initial-cluster")
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
    """Return peer URLs by name of name=url,name=url; ConfigError for what is no URL."""
    members: dict[str, list[str]] = {}
    for item in filter(None, text.split(",")):
        name, _, url = item.partition("=")
        try:
            members.setdefault(name, []).append(check_url(url.strip()))
        except ValueError as error:
            raise ConfigError(f'--initial-cluster "{text}": {error}') from None
    return {name: tuple(sorted(urls)) for name, urls in members.items()}


def difference(urls: Sequence[str], others: Sequence[str], resolve: Resolve) -> str:
    """Return in what two lists of URLs differ, "" if they mean the same addresses."""
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
    """Return url with the host's address in place of its name; localhost stays as it is."""
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
    """Return url with an IP address in its one short form."""
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
