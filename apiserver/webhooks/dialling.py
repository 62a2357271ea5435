"""What speaks HTTP/1.1 to what runs in the cluster: aiohttp, which takes long to load.

session = make_session(services)        `name.namespace.svc` are its Services
await why(services, error, url)         what went wrong, as Go says it
"""

import socket
from typing import Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from typing_extensions import override
from yarl import URL

from kvstack.apiserver.webhooks import faults
from kvstack.apiserver.webhooks.places import service_of
from kvstack.apiserver.webhooks.services import Services

_KEEP_S: Final = 90.0


def make_session(services: Services) -> aiohttp.ClientSession:
    """Return connections that are kept; they belong to the running loop."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            resolver=_Resolver(services),
            use_dns_cache=False,
            limit=0,
            keepalive_timeout=_KEEP_S,
        ),
        timeout=aiohttp.ClientTimeout(total=None),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
    )


async def why(services: Services, error: Exception, url: URL) -> str:
    """Return what went wrong on the way, as Go says it."""
    cause: Exception = error
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause = error.certificate_error
    elif isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
    elif isinstance(error, aiohttp.ServerDisconnectedError):
        return faults.CLOSED
    elif isinstance(error, aiohttp.ClientPayloadError):
        return faults.TORN
    elif isinstance(error, aiohttp.ClientResponseError):
        return faults.MALFORMED
    if cause is not error and isinstance(cause, OSError):
        return await faults.dial_text(cause, url.host or "", url.port or 0, services)
    return str(cause) or type(cause).__name__


class _Resolver(AbstractResolver):
    """Addresses of host names: of Services from the copy, of others by the system."""

    def __init__(self, services: Services) -> None:
        self._services: Final = services
        self._others: Final = aiohttp.ThreadedResolver()

    @override
    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        service = service_of(host)
        if service is None:
            return await self._others.resolve(host, port, family)
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=target,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address, target in self._services.endpoints(*service, port)
        ]

    @override
    async def close(self) -> None:
        await self._others.close()
