"""The server under test: one kept connection for requests, others for watches and certificates.

`mask` and `unmask` put the names that recordings use for the server's address in its place, and
back.
"""

import http.client
import json
import ssl
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.apiserver.player.documents import PLACEHOLDER
from tests.apiserver.support.api_servers import trusting
from tests.apiserver.support.client_certificates import ClientCa
from tests.apiserver.support.hook_server import HookServer

TIMEOUT_S = 60.0
NO_END_S = 5.0
"""How long an answer is read that has no end: the recorder gave it up, too."""
ADMIN_TOKEN = "admin-token"
http.client._MAXHEADERS = 5000  # type: ignore[attr-defined]  # some answers have as many warnings


@dataclass(frozen=True, slots=True)
class Options:
    """Where the server is and what else belongs to it."""

    url: str
    client_ca: tuple[Path, Path] | None = (
        None  # certificate and key that its clients' are signed by
    )
    store: str = ""  # URL of its store's JSON gateway, to compact it
    patience_s: float = 20.0  # how long a step is repeated that takes effect a little later
    beside: frozenset[str] = frozenset()  # programs that run beside it


class NoAnswerError(Exception):
    """The server is not there."""


class Target:
    """One server."""

    def __init__(self, options: Options, before: Callable[[], object] = lambda: None) -> None:
        """Reach a server; `before` is called before every request and watch."""
        self.options = options
        self.before = before
        address = urlsplit(options.url)
        assert address.hostname is not None
        self._tls = address.scheme == "https"
        self.host = address.hostname
        self.port = address.port or (443 if self._tls else 80)
        self.context = trusting()
        self._kept: http.client.HTTPConnection | None = None
        self._hooks: HookServer | None = None
        self._certified: dict[tuple[str, tuple[str, ...]], ssl.SSLContext] = {}
        self.advertised = self._advertised()

    def _advertised(self) -> str:
        """Return the address that the server tells its clients."""
        _, _, body = self.request("GET", "/api", None, {})
        try:
            told = json.loads(body)["serverAddressByClientCIDRs"][0]["serverAddress"]
        except (ValueError, KeyError, IndexError, TypeError):
            return self.host
        return str(told.rsplit(":", 1)[0])

    def connect(self, context: ssl.SSLContext | None = None) -> http.client.HTTPConnection:
        """Return a new connection."""
        if self._tls:
            return http.client.HTTPSConnection(
                self.host, self.port, context=context or self.context, timeout=TIMEOUT_S
            )
        return http.client.HTTPConnection(self.host, self.port, timeout=TIMEOUT_S)

    @property
    def has_tls(self) -> bool:
        return self._tls

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        *,
        token: str | None = ADMIN_TOKEN,
        certificate: Mapping[str, Any] | None = None,
        is_endless: bool = False,
    ) -> tuple[int, dict[str, str], bytes]:
        """Send a request; return status, headers, body. Status 0: no whole answer.

        is_endless: no whole answer is expected, so it is not waited for long.
        """
        self.before()
        sent = dict(headers)
        if certificate is None and token is not None:
            sent = {"authorization": f"Bearer {token}"} | sent
        if certificate is not None:
            return self._certified_request(method, path, body, sent, certificate)
        kept = self._kept
        connection = kept or self.connect()
        if is_endless:
            connection.close()  # it is opened again with this limit
            connection.timeout = NO_END_S
        try:
            answer = _request(connection, method, path, body, sent)
        except ConnectionRefusedError as error:
            raise NoAnswerError(f"{self.host}:{self.port} does not answer: {error}") from error
        except (http.client.HTTPException, OSError) as error:
            connection.close()
            self._kept = None
            if kept is not None and not isinstance(error, TimeoutError):  # it was closed meanwhile
                return self.request(method, path, body, headers, token=token)
            return 0, {}, b""
        self._kept = connection
        return answer

    def _certified_request(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        certificate: Mapping[str, Any],
    ) -> tuple[int, dict[str, str], bytes]:
        subject = (certificate["cn"], tuple(certificate["o"]))
        if subject not in self._certified:
            assert self.options.client_ca is not None
            with tempfile.TemporaryDirectory() as folder:
                pair = ClientCa(*self.options.client_ca).issue(*subject, Path(folder))
                context = trusting()
                context.load_cert_chain(*pair)
            self._certified[subject] = context
        connection = self.connect(self._certified[subject])
        try:
            return _request(connection, method, path, body, headers)
        except (http.client.HTTPException, OSError):
            return 0, {}, b""
        finally:
            connection.close()

    def hooks(self) -> HookServer:
        """Return a server for webhooks; there is one for all scenarios."""
        if self._hooks is None:
            self._hooks = HookServer()
            self._hooks.__enter__()
        return self._hooks

    def close(self) -> None:
        """Close the kept connection, and the server for webhooks."""
        if self._hooks is not None:
            self._hooks.__exit__(None, None, None)
            self._hooks = None
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def mask(self, text: str) -> str:
        """Put the recordings' names in place of this server's address."""
        for address in (self.advertised, self.host):
            text = text.replace(f"{address}:{self.port}", PLACEHOLDER)
        return text.replace(self.advertised, "SERVER-IP").replace(f":{self.port}", ":SERVER-PORT")

    def unmask(self, text: str) -> str:
        """Put this server's address in place of the recordings' names."""
        return text.replace("SERVER-IP", self.host).replace("SERVER-PORT", str(self.port))


def _request(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: bytes | None,
    headers: Mapping[str, str],
) -> tuple[int, dict[str, str], bytes]:
    connection.request(method, path, body=body, headers=dict(headers))
    response = connection.getresponse()
    return response.status, plain_headers(response.headers), response.read()


def plain_headers(headers: http.client.HTTPMessage) -> dict[str, str]:
    """Return headers by their names in small letters; warnings in one text."""
    return {
        key.lower(): ", ".join(headers.get_all(key, [])) if key.lower() == "warning" else value
        for key, value in headers.items()
    }
