"""Connections to whatever answers a stream: kubelets, pods, other ports of nodes.

    reader, writer = await backends.connect("10.0.0.7", 10250, backends.of_kubelet())

A kubelet is shown the certificate of the server and must be signed by its authority, if there is
one; anything else with TLS is believed, as upstream does.
"""

import asyncio
import ssl
from typing import Final, TypeAlias

from kvstack.apiserver.streams.kubelet_tls import KubeletTls

_CONNECT_S: Final = 30.0

Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class DialError(Exception):
    """Nobody could be reached; the text is that of Go's errors."""


class Backends:
    """Opens connections."""

    def __init__(self, tls: KubeletTls, *, connect_s: float = _CONNECT_S) -> None:
        """Read no files yet."""
        self._tls = tls
        self._connect_s = connect_s

    async def connect(
        self, host: str, port: int, context: ssl.SSLContext | None, address: str = ""
    ) -> Streams:
        """Return a connection; raises DialError.

        context: None for no TLS. address: where the host is, if that is known already.
        """
        shown = f"[{host}]" if ":" in host else host
        try:
            async with asyncio.timeout(self._connect_s):
                return await asyncio.open_connection(
                    address or host, port, ssl=context, server_hostname=host if context else None
                )
        except ssl.SSLError as error:
            raise DialError(_tls_reason(error)) from error
        except (OSError, TimeoutError) as error:
            raise DialError(f"dial tcp {shown}:{port}: {_reason(error)}") from error

    def of_kubelet(self) -> ssl.SSLContext:
        """Return the settings for a kubelet; files are read anew, as they are renewed."""
        context = of_anybody()
        if self._tls.ca_file:
            context.verify_mode = ssl.CERT_REQUIRED
            context.check_hostname = True
            context.load_verify_locations(self._tls.ca_file)
        if self._tls.cert_file:
            context.load_cert_chain(self._tls.cert_file, self._tls.key_file or None)
        return context


def of_anybody() -> ssl.SSLContext:
    """Return the settings for a server that is believed whatever it shows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


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
