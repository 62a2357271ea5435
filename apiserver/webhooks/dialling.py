"""What speaks HTTP/1.1 to what runs in the cluster: aiohttp, which takes long to load.

session = make_session(services)        `name.namespace.svc` are its Services
await why(services, error, url)         what went wrong, as Go says it
"""

import socket
import ssl
from typing import Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from typing_extensions import override
from yarl import URL

from kvstack.apiserver.webhooks.places import service_of
from kvstack.apiserver.webhooks.services import ServiceError, Services
from kvstack.apiserver.webhooks.tls import verification_text

_KEEP_S: Final = 90.0
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")


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
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause = error.certificate_error
        if isinstance(cause, ssl.SSLCertVerificationError):
            service, port = service_of(error.host), error.port or 0
            address = (error.host, port)
            if service is not None:
                address = services.endpoints(*service, port)[0]
            return await verification_text(cause, error.host, address)
        return str(cause)
    return _text(error, url)


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


def _text(error: Exception, url: URL) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        return _dial_text(error.os_error, url)
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "EOF"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "unexpected EOF"
    if isinstance(error, aiohttp.ClientResponseError):
        return "net/http: HTTP/1.x transport connection broken: malformed HTTP response"
    return str(error) or type(error).__name__


def _dial_text(error: OSError, url: URL) -> str:
    if isinstance(error, ServiceError):
        return str(error)
    if isinstance(error, ssl.SSLError):
        if error.reason in _NO_TLS:
            return "http: server gave HTTP response to HTTPS client"
        return f"tls: {error.reason or error}"
    host = url.host or ""
    if isinstance(error, socket.gaierror):
        return f"dial tcp: lookup {host}: no such host"
    shown = f"[{host}]" if ":" in host else host
    if isinstance(error, ConnectionRefusedError):
        return f"dial tcp {shown}:{url.port}: connect: connection refused"
    return f"dial tcp {shown}:{url.port}: {error.strerror or error}"
