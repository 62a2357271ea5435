"""Settings of the kernel for the interfaces of pods on their node; each raises OSError."""

from collections.abc import Collection
from pathlib import Path
from typing import Final

_SETTINGS: Final = Path("/proc/sys/net")
_OF_IPV4: Final = (("ipv4/conf/{}/proxy_arp", "1"), ("ipv4/neigh/{}/proxy_delay", "0"))
_ROUTES_LOOPBACK: Final = ("ipv4/conf/{}/route_localnet", "1")
_OF_IPV6: Final = (
    ("ipv6/conf/{}/disable_ipv6", "0"),
    ("ipv6/conf/{}/addr_gen_mode", "1"),  # no address but those that it is given
    ("ipv6/conf/{}/accept_ra", "0"),
    ("ipv6/conf/{}/accept_redirects", "0"),
)
_NO_IPV6: Final = "ipv6/conf/{}/disable_ipv6"


def set_pair(name: str, families: Collection[int], *, routes_loopback: bool) -> None:
    """Prepare the node's side of a pod's interfaces, before it is up.

    A pod without IPv6 would reach its node over the link's addresses, past all rules: there is none
    on its link. routes_loopback: so that ports of the node are reached over its loopback, too; a
    rule has to keep pods from it.
    """
    if 4 in families:
        _write(name, _OF_IPV4)
        if routes_loopback:
            _write(name, (_ROUTES_LOOPBACK,))
    if 6 in families:
        _write(name, _OF_IPV6)
    else:
        _forbid_ipv6(name)


def set_bridge(name: str, families: Collection[int]) -> None:
    """Prepare the bridge, before it is up."""
    if 6 in families:
        _write(name, _OF_IPV6)


def set_tunnel(name: str, families: Collection[int]) -> None:
    """Prepare a tunnel to other nodes, before it is up: no IPv6 arrives where pods have none."""
    if 6 in families:
        _write(name, _OF_IPV6)
    else:
        _forbid_ipv6(name)


def _forbid_ipv6(name: str) -> None:
    if (setting := _SETTINGS / _NO_IPV6.format(name)).exists():
        setting.write_text("1")


def forward(family: int) -> None:
    """Enable forwarding.

    A machine that does so in IPv6 takes no routes from routers, unless that is said of an
    interface: those that took them go on.
    """
    if family == 4:
        (_SETTINGS / "ipv4/ip_forward").write_text("1")
        return
    forwarding = _SETTINGS / "ipv6/conf/all/forwarding"
    if forwarding.read_text().strip() == "1":
        return
    for setting in (_SETTINGS / "ipv6/conf").glob("*/accept_ra"):
        if setting.read_text().strip() == "1":
            setting.write_text("2")
    forwarding.write_text("1")


def _write(name: str, settings: tuple[tuple[str, str], ...]) -> None:
    for setting, value in settings:
        (_SETTINGS / setting.format(name)).write_text(value)
