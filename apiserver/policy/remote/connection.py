"""Connections to one place that is asked over HTTP, kept open between questions.

    connection = Connection(target)
    answer = await connection.ask("POST", body, timeout_s=30)       raises RemoteError
    await connection.close()

aiohttp speaks HTTP. A redirect is not followed: nobody but the one configured is to be told. An
answer that is larger than asked for is an error.
"""

import asyncio
import base64
import ipaddress
import ssl
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from kvstack.apiserver.policy.remote.kubeconfig import Pem, Target, TargetTls

if TYPE_CHECKING:
    import aiohttp

ANSWER_BYTES_MAX: Final = 3 << 20
CONNECTIONS_MAX: Final = 100
_CONNECT_S: Final = 10.0


class RemoteError(Exception):
    """There is no answer that can be used."""

    def __init__(self, text: str, code: int = 0, *, is_timeout: bool = False) -> None:
        """Say what went wrong; code: of the HTTP answer, if there was one."""
        super().__init__(text)
        self.code: Final = code
        self.is_timeout: Final = is_timeout


class RemoteAnswer(NamedTuple):
    """An answer of any code."""

    code: int
    body: bytes
    retry_after: str = ""


class Connection:
    """Asks one place."""

    def __init__(self, target: Target) -> None:
        """Connect with nobody yet."""
        self.target: Final = target
        self._session: aiohttp.ClientSession | None = None

    async def ask(
        self, method: str, body: bytes = b"", *, timeout_s: float, bytes_max: int = ANSWER_BYTES_MAX
    ) -> RemoteAnswer:
        """Return what is answered; raises RemoteError."""
        # Loaded by the first question, since most servers never ask one.
        import aiohttp

        url = self.target.url
        told = f'{method.title()} "{url}"'
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._opened().request(
                    method,
                    url,
                    data=body or None,
                    headers=self._headers(),
                    proxy=self.target.proxy_url or None,
                    server_hostname=self.target.tls.server_name or None,
                    allow_redirects=False,
                ) as response,
            ):
                text = await response.content.read(bytes_max + 1)
                while not response.content.at_eof() and len(text) <= bytes_max:
                    text += await response.content.read(bytes_max + 1 - len(text))
                retry_after = response.headers.get("Retry-After", "")
                code = response.status
        except TimeoutError:
            raise RemoteError(f"{told}: context deadline exceeded", is_timeout=True) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise RemoteError(f"{told}: {error}") from error
        if len(text) > bytes_max:
            raise RemoteError(f"{told}: the answer has more than {bytes_max} bytes", code)
        return RemoteAnswer(code, text, retry_after)

    async def close(self) -> None:
        """Close all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _opened(self) -> "aiohttp.ClientSession":
        import aiohttp

        if self._session is None or self._session.closed:
            secure = urlsplit(self.target.url).scheme == "https"
            context = tls_context(self.target.tls) if secure else False
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=CONNECTIONS_MAX, ssl=context),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
                auto_decompress=True,
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=not _is_local(self.target.url),
            )
        return self._session

    def _headers(self) -> dict[str, str]:
        target = self.target
        headers = {"Content-Type": "application/json", "Accept": "application/json, */*"}
        token = target.token
        if target.token_file:
            token = Path(target.token_file).read_text(encoding="utf-8").strip()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        elif target.user:
            secret = base64.b64encode(f"{target.user}:{target.password}".encode()).decode()
            headers["Authorization"] = f"Basic {secret}"
        return headers


def tls_context(tls: TargetTls) -> ssl.SSLContext:
    """Return the settings of a connection; raises OSError and ValueError for bad files."""
    context = ssl.create_default_context()
    if tls.ca:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=_bytes(tls.ca).decode("ascii"))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if tls.is_insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.cert:
        # The library reads certificates of its own from files alone.
        with TemporaryDirectory() as directory:
            cert, key = Path(directory, "cert"), Path(directory, "key")
            cert.write_bytes(_bytes(tls.cert))
            key.touch(mode=0o600)
            key.write_bytes(_bytes(tls.key))
            context.load_cert_chain(cert, key)
    return context


def _bytes(pem: Pem) -> bytes:
    return pem.data or Path(pem.file).read_bytes()


def _is_local(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
