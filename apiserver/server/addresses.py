"""The address at which clients reach this server.

    bind 0.0.0.0, nothing advertised  →  the address that this machine sends from by default
    bind ::, which takes both families  →  that of the family of the Service `kubernetes`

An address that is advertised to a whole cluster cannot be a loopback one. A server that is bound to
loopback advertises the machine's address; where the machine has none, it advertises loopback.
"""

from ipaddress import ip_address
from typing import TYPE_CHECKING

from kvstack.component.net.hosts import own_address

if TYPE_CHECKING:
    from kvstack.apiserver.server.settings.options import ServingOptions


def advertised_address(serving: "ServingOptions") -> str:
    """Return the IP address that is advertised to the cluster."""
    if serving.advertise_address:
        return serving.advertise_address
    bound = ip_address(serving.bind_address)
    if bound.is_unspecified or bound.is_loopback:
        takes_both = bound.is_unspecified and bound.version == 6
        return own_address(serving.service_family if takes_both else bound.version)
    return str(bound)
