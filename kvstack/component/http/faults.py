"""Errors on the way to a server, with the texts of Go's client.

fault_text(error, "10.0.0.7", 8443)
→ 'dial tcp 10.0.0.7:8443: connect: connection refused'
"""

import socket
import ssl
from typing import Final

from kvstack.component.http.answers import MalformedError, TornError
from kvstack.component.http.connection import ClosedError
from kvstack.component.net.hosts import join_host_port

MALFORMED: Final = "net/http: HTTP/1.x transport connection broken: malformed HTTP response"
CLOSED: Final = "EOF"
TORN: Final = "unexpected EOF"
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
_TEXTS: Final = ((ClosedError, CLOSED), (TornError, TORN), (MalformedError, MALFORMED))


def fault_text(error: Exception, host: str, port: int) -> str:
    """Return why there is no answer."""
    for kind, text in _TEXTS:
        if isinstance(error, kind):
            return text
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"tls: failed to verify certificate: x509: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        if error.reason in _NO_TLS:
            return "http: server gave HTTP response to HTTPS client"
        return f"tls: {error.reason or error}"
    if isinstance(error, socket.gaierror):
        return f"dial tcp: lookup {host}: no such host"
    if isinstance(error, ConnectionRefusedError):
        return f"dial tcp {join_host_port(host, port)}: connect: connection refused"
    if isinstance(error, TimeoutError):
        return f"dial tcp {join_host_port(host, port)}: i/o timeout"
    if isinstance(error, OSError) and error.errno:
        return f"dial tcp {join_host_port(host, port)}: {error.strerror or error}"
    return str(error) or type(error).__name__
