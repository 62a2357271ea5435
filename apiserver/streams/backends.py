"""Connections to targets of streams: kubelets, pods, other ports of nodes.

    backend = Backend("10.0.0.7", 10250, backends.of_kubelet())
    answer = await backends.ask(backend, "GET", "/containerLogs/…", headers)

For a kubelet the server presents its client certificate and verifies the kubelet's by the kubelet
CA, if configured; other TLS servers are not verified, as upstream.
"""

import asyncio
import socket
import ssl
from collections.abc import Iterable
from typing import Final, NamedTuple

from kvstack.apiserver.streams.kubelet_tls import KubeletTls
from kvstack.component.http.dialling import addresses_of, dial, secured
from kvstack.component.http.request_head import Body, UrlError, head_lines
from kvstack.component.http.single import ask_on
from kvstack.component.http.streamed_answer import StreamedAnswer
from kvstack.component.http.tls import KeyPair, client_context, read_bundle
from kvstack.component.net.hosts import join_host_port

_CONNECT_S: Final = 30.0


class Backend(NamedTuple):
    """The target of a stream."""

    host: str
    port: int
    context: ssl.SSLContext | None
    """None: no TLS."""
    address: str = ""
    """The resolved address, if known."""


class DialError(Exception):
    """The connection failed; the text is that of Go's errors."""


class Backends:
    """Opens connections."""

    def __init__(self, tls: KubeletTls, *, connect_s: float = _CONNECT_S) -> None:
        """No file is read yet."""
        self._tls = tls
        self._connect_s = connect_s

    async def ask(
        self,
        backend: Backend,
        method: str,
        target: str,
        headers: Iterable[tuple[str, str]],
        body: Body = None,
        *,
        is_upgrade: bool = False,
    ) -> StreamedAnswer:
        """Send a request; return the answer once its head arrived, for the caller to close.

        Raises DialError, and AnswerError and OSError for invalid answers.
        """
        sock = await self.connect(backend)
        try:
            lines = head_lines(headers)
        except UrlError as error:
            sock.close()
            raise OSError(str(error)) from error
        return await ask_on(sock, method, target, backend.host, lines, body, is_upgrade=is_upgrade)

    async def connect(self, backend: Backend) -> socket.socket:
        """Return a connected socket; raises DialError."""
        host, port = backend.host, backend.port
        try:
            async with asyncio.timeout(self._connect_s):
                sock = await dial(await addresses_of(backend.address or host, port))
                context = backend.context
                return sock if context is None else await secured(sock, context, host)
        except ssl.SSLError as error:
            raise DialError(_tls_reason(error)) from error
        except (OSError, TimeoutError) as error:
            raise DialError(f"dial tcp {join_host_port(host, port)}: {_reason(error)}") from error

    def of_kubelet(self) -> ssl.SSLContext:
        """Return the TLS context for a kubelet; raises DialError.

        Files are read again, as they are renewed.
        """
        tls = self._tls
        shown = KeyPair(tls.cert_file, tls.key_file)
        try:
            ca = read_bundle(tls.ca_file)
            return client_context(ca, cert=shown, insecure=not tls.ca_file)
        except ValueError as error:
            raise DialError(str(error)) from error


def of_anybody() -> ssl.SSLContext:
    """Return the TLS context for a server that is not verified."""
    return client_context(insecure=True)


def _reason(error: OSError | TimeoutError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connect: connection refused"
    return "i/o timeout" if isinstance(error, TimeoutError) else str(error)


def _tls_reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"tls: failed to verify certificate: x509: {error.verify_message}"
    if error.reason in {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"}:
        return "tls: first record does not look like a TLS handshake"
    return f"tls: {error.reason or error}"
