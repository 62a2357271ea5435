"""The local address from which a member dials the others (feature gate SetMemberLocalAddr).

Members may check the address of a client. On a machine with several addresses the system may choose
one that the others do not know.
"""

from ipaddress import IPv6Address, ip_address
from urllib.parse import urlsplit

from kvstore.config.model import Config

GATE = "SetMemberLocalAddr"


def local_address_of(config: Config) -> str:
    """Return the first usable advertised peer address; "" lets the system choose.

    Names, loopback and unspecified addresses are skipped, as in etcd. Without the gate the
    result is empty.
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
