"""Connection errors of servers in the cluster, with the texts of Go's client.

await dial_text(error, "hook.a.svc", 443, services)
→ 'dial tcp 10.0.0.7:8443: connect: connection refused'
"""

import ssl

from kvstack.apiserver.webhooks.client_config import service_of
from kvstack.apiserver.webhooks.services import ServiceError, Services
from kvstack.component.http.faults import fault_text
from kvstack.component.http.tls import verification_text


async def dial_text(error: Exception, host: str, port: int, services: Services) -> str:
    """Return why a connection failed; queries the names of a mismatching certificate."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return await verification_text(error, host, _address(host, port, services))
    if isinstance(error, ServiceError):
        return str(error)
    return fault_text(error, host, port)


def _address(host: str, port: int, services: Services) -> tuple[str, int] | None:
    """Return the address of a host; None: its Service or endpoints have disappeared."""
    service = service_of(host)
    if service is None:
        return host, port
    try:
        return services.endpoints(*service, port)[0]
    except ServiceError:
        return None
