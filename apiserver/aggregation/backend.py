"""Requests to aggregated API servers, in the name of whoever asks.

The user is told in headers; that they may be believed is shown by a certificate of the front
proxy's authority. Its files are read again when they change.
"""

import ssl
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from kvstack.apiserver.aggregation.remotes import Remote
from kvstack.apiserver.policy.attributes import PRIVILEGED, User
from kvstack.apiserver.webhooks.services import Address, Services
from kvstack.apiserver.webhooks.sessions import ServiceSession
from kvstack.apiserver.webhooks.tls import client_context

if TYPE_CHECKING:
    import aiohttp

AGGREGATOR: Final = User("system:kube-aggregator", groups=(PRIVILEGED,))
Headers = list[tuple[str, str]]
Body = bytes | AsyncIterator[bytes] | None

_CONTEXTS_MAX: Final = 64
_KEY_SAFE: Final = "!#$&'*+-.^_`|~"


@dataclass(frozen=True, slots=True)
class ProxyCertificate:
    """The files of the certificate that is shown; empty: none."""

    cert_file: str = ""
    key_file: str = ""


class BackendError(Exception):
    """A server cannot be reached; the text says why."""


def identity_headers(user: User) -> Headers:
    """Return the headers that tell a server behind this one who asks."""
    found = [("X-Remote-User", user.name)]
    if user.uid:
        found.append(("X-Remote-Uid", user.uid))
    found += [("X-Remote-Group", each) for each in user.groups]
    for name, values in user.extra.items():
        key = quote(name, safe=_KEY_SAFE)
        found += [(f"X-Remote-Extra-{key}", each) for each in values]
    return found


class Backends:
    """Connections to all of them."""

    def __init__(self, services: Services, certificate: ProxyCertificate) -> None:
        """Nothing is dialled or read yet."""
        self._services: Final = services
        self._certificate: Final = certificate
        self._session: Final = ServiceSession(services)
        self._contexts: dict[tuple[object, ...], ssl.SSLContext] = {}

    async def close(self) -> None:
        """Give up all connections."""
        await self._session.close()

    def address(self, remote: Remote) -> Address:
        """Return one endpoint; raises BackendError."""
        try:
            return self._services.endpoints(remote.namespace, remote.service, remote.port)[0]
        except OSError as error:
            raise BackendError(str(error)) from error

    def context(self, remote: Remote) -> ssl.SSLContext:
        """Return the settings of TLS; raises BackendError."""
        given = self._certificate
        key = (remote.ca, remote.is_insecure, _age(given.cert_file), _age(given.key_file))
        found = self._contexts.get(key)
        if found is None:
            try:
                found = client_context(
                    remote.ca,
                    cert_file=given.cert_file,
                    key_file=given.key_file,
                    insecure=remote.is_insecure,
                )
            except ValueError as error:
                raise BackendError(str(error)) from error
            if len(self._contexts) >= _CONTEXTS_MAX:
                self._contexts.clear()
            self._contexts[key] = found
        return found

    async def request(
        self, remote: Remote, method: str, target: str, headers: Headers, data: Body = None
    ) -> "aiohttp.ClientResponse":
        """Send a request; return the answer once its head is there, to be closed by the caller.

        Raises BackendError.
        """
        # Loaded by the first question, since most servers never ask one.
        import aiohttp
        from yarl import URL

        url = URL(f"https://{remote.host}:{remote.port}{target}", encoded=True)
        try:
            return await self._session.open().request(
                method,
                url,
                headers=headers,
                data=data,
                ssl=self.context(remote),
                allow_redirects=False,
                skip_auto_headers=("User-Agent", "Content-Type", "Accept", "Accept-Encoding"),
            )
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise BackendError(await self._session.why(error, url)) from error

    async def get(
        self, remote: Remote, target: str, headers: Sequence[tuple[str, str]], bytes_max: int
    ) -> tuple[int, str, bytes]:
        """Return status, content type and body of a page of a server, asked by the aggregator.

        Raises BackendError.
        """
        import aiohttp

        own = [*identity_headers(AGGREGATOR), *headers]
        response = await self.request(remote, "GET", target, own)
        try:
            body = bytearray()
            async for piece in response.content.iter_any():
                body += piece
                if len(body) > bytes_max:
                    raise BackendError(f"the answer has more than {bytes_max} bytes")
        except (aiohttp.ClientError, OSError) as error:
            raise BackendError(str(error) or type(error).__name__) from error
        finally:
            response.close()
        return response.status, response.headers.get("Content-Type", ""), bytes(body)


def _age(file: str) -> float:
    try:
        return Path(file).stat().st_mtime if file else 0.0
    except OSError:
        return -1.0
