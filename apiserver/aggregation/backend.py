"""Requests to aggregated API servers, on behalf of users.

Headers name the user; a client certificate of the front proxy's CA shows that they can be trusted.
Its files are read again when they change.
"""

import ssl
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote

from kvstack.apimachinery.attributes import PRIVILEGED, User
from kvstack.apiserver.aggregation.remotes import Remote
from kvstack.apiserver.webhooks import faults
from kvstack.apiserver.webhooks.addresses import addresses_in_cluster
from kvstack.apiserver.webhooks.services import Address, Services
from kvstack.component.http.answers import AnswerError
from kvstack.component.http.client import HttpClient
from kvstack.component.http.request_head import Body, head_lines
from kvstack.component.http.streamed_answer import StreamedAnswer
from kvstack.component.http.tls import KeyPair, client_context

AGGREGATOR: Final = User("system:kube-aggregator", groups=(PRIVILEGED,))
Headers = list[tuple[str, str]]

_DIAL_S: Final = 30.0
_CONTEXTS_MAX: Final = 64
_KEY_SAFE: Final = "!#$&'*+-.^_`|~"


@dataclass(frozen=True, slots=True)
class ProxyCertificate:
    """Files of the client certificate; empty: none."""

    cert_file: str = ""
    key_file: str = ""


class BackendError(Exception):
    """A server cannot be reached; the text says why."""


def identity_headers(user: User) -> Headers:
    """Return the headers that name a user to an aggregated server."""
    headers = [("X-Remote-User", user.name)]
    if user.uid:
        headers.append(("X-Remote-Uid", user.uid))
    headers += [("X-Remote-Group", each) for each in user.groups]
    for name, values in user.extra.items():
        key = quote(name, safe=_KEY_SAFE)
        headers += [(f"X-Remote-Extra-{key}", each) for each in values]
    return headers


class Backends:
    """Connections to all aggregated servers."""

    def __init__(self, services: Services, certificate: ProxyCertificate) -> None:
        """No connection is made and no file read yet."""
        self._services: Final = services
        self._certificate: Final = certificate
        self._http: Final = HttpClient(partial(addresses_in_cluster, services), dial_s=_DIAL_S)
        self._contexts: dict[tuple[object, ...], ssl.SSLContext] = {}

    async def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def address(self, remote: Remote) -> Address:
        """Return one endpoint; raises BackendError."""
        try:
            return self._services.endpoints(remote.namespace, remote.service, remote.port)[0]
        except OSError as error:
            raise BackendError(str(error)) from error

    def context(self, remote: Remote) -> ssl.SSLContext:
        """Return the TLS context; raises BackendError."""
        given = self._certificate
        key = (remote.ca, remote.is_insecure, _age(given.cert_file), _age(given.key_file))
        context = self._contexts.get(key)
        if context is None:
            try:
                shown = KeyPair(given.cert_file, given.key_file)
                context = client_context(remote.ca, cert=shown, insecure=remote.is_insecure)
            except ValueError as error:
                raise BackendError(str(error)) from error
            if len(self._contexts) >= _CONTEXTS_MAX:
                self._contexts.clear()
            self._contexts[key] = context
        return context

    async def request(
        self,
        remote: Remote,
        method: str,
        target: str,
        headers: Iterable[tuple[str, str]],
        data: Body = None,
        *,
        is_upgrade: bool = False,
    ) -> StreamedAnswer:
        """Send a request; return the answer once its head arrived, for the caller to close.

        Raises BackendError.
        """
        try:
            return await self._http.open(
                method,
                f"https://{remote.host}:{remote.port}{target}",
                head_lines(headers),
                data,
                context=self.context(remote),
                is_upgrade=is_upgrade,
            )
        except (AnswerError, OSError) as error:
            why = await faults.dial_text(error, remote.host, remote.port, self._services)
            raise BackendError(why) from error
        except ValueError as error:
            raise BackendError(str(error)) from error

    async def get(
        self, remote: Remote, target: str, headers: Sequence[tuple[str, str]], bytes_max: int
    ) -> tuple[int, str, bytes]:
        """Return status, content type and body of a page, requested by the aggregator itself.

        Raises BackendError.
        """
        own = [*identity_headers(AGGREGATOR), *headers]
        async with await self.request(remote, "GET", target, own) as answer:
            try:
                body = await answer.body(bytes_max)
            except (AnswerError, OSError) as error:
                raise BackendError(str(error) or type(error).__name__) from error
        return answer.code, answer.header("content-type"), body


def _age(file: str) -> float:
    try:
        return Path(file).stat().st_mtime if file else 0.0
    except OSError:
        return -1.0
