"""A pool of HTTP connections to one server.

    connection = Connection(target)
    answer = await connection.ask("POST", body, timeout_s=30)       raises RemoteError
    await connection.close()

Redirects are not followed: only the configured server may see requests. An answer above the size
limit is an error. Proxies of the environment apply, but not for loopback.
"""

import asyncio
import base64
import ssl
from pathlib import Path
from typing import Final, NamedTuple

from kvstack.apiserver.policy.remote.kubeconfig import Target, TargetTls
from kvstack.component.certs.kubeconfig_reader import Pem
from kvstack.component.http.answers import AnswerError
from kvstack.component.http.client import HttpClient
from kvstack.component.http.faults import fault_text
from kvstack.component.http.proxies import proxy_from_environment, proxy_of
from kvstack.component.http.request_head import head_lines, site_of
from kvstack.component.http.tls import KeyPair, client_context, read_bundle

ANSWER_BYTES_MAX: Final = 3 << 20
CONNECTIONS_MAX: Final = 100
_CONNECT_S: Final = 10.0


class RemoteError(Exception):
    """There is no usable answer."""

    def __init__(self, text: str, code: int = 0, *, is_timeout: bool = False) -> None:
        """code: of the HTTP answer, if there was one."""
        super().__init__(text)
        self.code: Final = code
        self.is_timeout: Final = is_timeout


class RemoteAnswer(NamedTuple):
    """An answer with any status code."""

    code: int
    body: bytes
    retry_after: str = ""


class Connection:
    """Calls one server."""

    def __init__(self, target: Target) -> None:
        self.target: Final = target
        self._client: HttpClient | None = None
        self._context: ssl.SSLContext | None = None

    async def ask(
        self, method: str, body: bytes = b"", *, timeout_s: float, bytes_max: int = ANSWER_BYTES_MAX
    ) -> RemoteAnswer:
        """Return the answer; raises RemoteError."""
        target = self.target
        description = f'{method.title()} "{target.url}"'
        try:
            head, client = head_lines(self._headers()), self._opened()
        except (OSError, ValueError) as error:
            raise RemoteError(f"{description}: {error}") from error
        try:
            async with asyncio.timeout(timeout_s):
                answer = await client.request(
                    method,
                    target.url,
                    head,
                    body,
                    context=self._context,
                    bytes_max=bytes_max,
                    server_name=target.tls.server_name,
                )
        except TimeoutError:
            raise RemoteError(
                f"{description}: context deadline exceeded", is_timeout=True
            ) from None
        except (AnswerError, OSError) as error:
            site = site_of(target.url)
            raise RemoteError(
                f"{description}: {fault_text(error, site.host, site.port)}"
            ) from error
        return RemoteAnswer(answer.code, answer.body, answer.header("retry-after"))

    async def close(self) -> None:
        """Close all connections."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _opened(self) -> HttpClient:
        if self._client is None:
            url = self.target.url
            if site_of(url).is_secure:
                self._context = tls_context(self.target.tls)
            proxy = proxy_of(self.target.proxy_url or proxy_from_environment(url))
            self._client = HttpClient(
                proxy=proxy, connections_max=CONNECTIONS_MAX, dial_s=_CONNECT_S
            )
        return self._client

    def _headers(self) -> list[tuple[str, str]]:
        target = self.target
        headers = [
            ("Content-Type", "application/json"),
            ("Accept", "application/json, */*"),
            ("User-Agent", "kube-apiserver"),
        ]
        token = target.token
        if target.token_file:
            token = Path(target.token_file).read_text(encoding="utf-8").strip()
        if token:
            headers.append(("Authorization", f"Bearer {token}"))
        elif target.user:
            secret = base64.b64encode(f"{target.user}:{target.password}".encode()).decode()
            headers.append(("Authorization", f"Basic {secret}"))
        return headers


def tls_context(tls: TargetTls) -> ssl.SSLContext:
    """Return the TLS context of a connection; raises ValueError for invalid files."""
    shown = KeyPair(_pem_source(tls.cert), _pem_source(tls.key)) if tls.cert else None
    ca = tls.ca.data or read_bundle(tls.ca.file)
    return client_context(ca, cert=shown, insecure=tls.is_insecure)


def _pem_source(pem: Pem) -> str | bytes:
    return pem.data or pem.file
