"""Which of its own addresses a member dials the others from (feature gate SetMemberLocalAddr).

Other members may admit a member by its address; where a machine has several, the system's choice
may be none of those it is known by.
"""

from ipaddress import IPv6Address, ip_address
from urllib.parse import urlsplit

from kvstore.config.model import Config

GATE = "SetMemberLocalAddr"


def local_address_of(config: Config) -> str:
    """Return the first advertised peer address that can be one of a machine's; "" is any.

    Names, loopback and unspecified addresses are passed over, as by etcd; so is everything unless
    the gate is on.
    """
    if not config.feature_gates[GATE]:
        return ""
    hosts = (urlsplit(url).hostname for url in config.initial_advertise_peer_urls)
    return next((host for host in hosts if host and _is_usable(host)), "")


def _is_usable(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return False  # a name
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return not (address.is_loopback or address.is_unspecified)
