"""Name resolution for the API server: Services from the watch cache, other hosts by the system.

client = HttpClient(partial(addresses_in_cluster, services))       `name.namespace.svc` is a Service
"""

from kvstack.apiserver.webhooks.client_config import service_of
from kvstack.apiserver.webhooks.services import Services
from kvstack.component.http.dialling import Address, addresses_of


async def addresses_in_cluster(services: Services, host: str, port: int) -> list[Address]:
    """Return the addresses of a host; raises OSError."""
    service = service_of(host)
    if service is None:
        return await addresses_of(host, port)
    return services.endpoints(*service, port)
