"""What went wrong on the way to a server, in the words of Go's client.

await dial_text(error, "hook.a.svc", 443, services)
→ 'dial tcp 10.0.0.7:8443: connect: connection refused'
"""

import socket
import ssl
from typing import Final

from kvstack.apiserver.webhooks.places import service_of
from kvstack.apiserver.webhooks.services import ServiceError, Services
from kvstack.apiserver.webhooks.tls import verification_text

MALFORMED: Final = "net/http: HTTP/1.x transport connection broken: malformed HTTP response"
CLOSED: Final = "EOF"
TORN: Final = "unexpected EOF"
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")


async def dial_text(error: OSError, host: str, port: int, services: Services) -> str:
    """Return why there is no connection."""
    if isinstance(error, ssl.SSLCertVerificationError):
        service = service_of(host)
        address = (host, port) if service is None else services.endpoints(*service, port)[0]
        return await verification_text(error, host, address)
    if isinstance(error, ServiceError):
        return str(error)
    if isinstance(error, ssl.SSLError):
        if error.reason in _NO_TLS:
            return "http: server gave HTTP response to HTTPS client"
        return f"tls: {error.reason or error}"
    if isinstance(error, socket.gaierror):
        return f"dial tcp: lookup {host}: no such host"
    shown = f"[{host}]" if ":" in host else host
    if isinstance(error, ConnectionRefusedError):
        return f"dial tcp {shown}:{port}: connect: connection refused"
    return f"dial tcp {shown}:{port}: {error.strerror or error}"
