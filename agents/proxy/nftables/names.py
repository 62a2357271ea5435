"""Names of chains and sets: kube-proxy's, so that tools that read its table read this one.

service-ULMVA6XW-ns1/svc1/tcp/p80
endpoint-5OJB2KTY-ns1/svc1/tcp/p80__10.180.0.1/80
"""

import base64
import hashlib
from typing import Final

from kvstack.agents.proxy.endpoints import Endpoint
from kvstack.agents.proxy.services import PortName

TABLE: Final = "kube-proxy"
_HASH_CHARACTERS: Final = 8
_LENGTH_MAX: Final = 240
_CUT: Final = "..."


def service_base(name: PortName) -> str:
    """Return the end of the names of a port's chains."""
    return _hashed(_plain(name))


def endpoint_base(name: PortName, endpoint: Endpoint) -> str:
    """Return the end of the names of an endpoint's chain and set."""
    ip = endpoint.ip.replace(":", ".")
    return _hashed(f"{_plain(name)}__{ip}/{endpoint.port}")


def _plain(name: PortName) -> str:
    return f"{name.namespace}/{name.service}/{name.protocol.lower()}/{name.port}"


def _hashed(text: str) -> str:
    digest = base64.b32encode(hashlib.sha256(text.encode()).digest()).decode()
    found = f"{digest[:_HASH_CHARACTERS]}-{text}"
    if len(found) <= _LENGTH_MAX:
        return found
    return found[: _LENGTH_MAX - len(_CUT)] + _CUT
