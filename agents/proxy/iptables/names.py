"""Names of chains: kube-proxy's, so that tools that read its rules read these.

KUBE-SVC-NPX46M4PTMTKRN6Y     endpoints on any node
KUBE-SVL-…                    endpoints on this node
KUBE-EXT-…                    what comes to an external address or a node port
KUBE-FW-…                     who may reach a load balancer's address
KUBE-SEP-…                    one endpoint
"""

import base64
import hashlib
from typing import Final

from kvstack.agents.proxy.endpoints import Endpoint
from kvstack.agents.proxy.services import PortName

CLUSTER: Final = "KUBE-SVC-"
LOCAL: Final = "KUBE-SVL-"
EXTERNAL: Final = "KUBE-EXT-"
FIREWALL: Final = "KUBE-FW-"
ENDPOINT: Final = "KUBE-SEP-"
PREFIXES: Final = (CLUSTER, LOCAL, EXTERNAL, FIREWALL, ENDPOINT)
_HASH_CHARACTERS: Final = 16


def service_hash(name: PortName) -> str:
    """Return the end of the names of a port's chains."""
    return _hash(name.text + name.protocol.lower())


def endpoint_chain(name: PortName, endpoint: Endpoint) -> str:
    """Return the chain of an endpoint, which is also the name of the list of its clients."""
    return ENDPOINT + _hash(name.text + name.protocol.lower() + endpoint.text)


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return base64.b32encode(digest).decode()[:_HASH_CHARACTERS]
