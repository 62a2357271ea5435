"""Reads /metrics/resource of kubelets.

    kubelets = Kubelets(KubeletOptions(cert_file, key_file, ca_file), clock)
    reading = await kubelets.read(node)

Where a kubelet is says its node's status. It is shown a client certificate, or a bearer token. The
path is always the same, whatever the node says, since the node may lead to an address that is not
its own.
"""

import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kvstack.agents.metrics.collector import UnreadableError
from kvstack.agents.metrics.exposition_reader import ReadingError
from kvstack.agents.metrics.http_pages import ServerAddress, fetch
from kvstack.agents.metrics.readings import Reading, read_page_of_others
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.clock import Clock
from kvstack.component.http.tls import (
    FileState,
    KeyPair,
    client_context,
    file_state,
    read_bundle,
)

_PATH: Final = "/metrics/resource"
_BYTES_MAX: Final = 4 << 20
_PORT: Final = 10250
_PORT_MAX: Final = 65535


@dataclass(frozen=True, slots=True)
class KubeletOptions:
    """How kubelets are reached; files, empty: none."""

    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    """Empty: any kubelet is believed."""
    token: Callable[[], str] | None = None
    """Returns the bearer token that is shown."""
    address_types: Sequence[str] = ("InternalIP", "Hostname")
    """Types of addresses, in order of preference."""
    port: int = 0
    """0: the port in the node's status."""


class _KeptContext(NamedTuple):
    """Settings of TLS, and the states of the files that they were made of."""

    states: tuple[FileState, ...]
    context: ssl.SSLContext


class Kubelets:
    """Reads them."""

    def __init__(self, options: KubeletOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._kept: _KeptContext | None = None

    async def read(self, node: Object) -> Reading:
        """Return the reading of a node; raises UnreadableError."""
        host, port = address_of(node, self._options)
        headers = []
        if self._options.token is not None:
            headers.append(("Authorization", f"Bearer {self._options.token()}"))
        try:
            context = self._context()
        except ValueError as error:
            raise UnreadableError(f"the certificates for kubelets: {error}") from error
        now_ms = int(self._clock.now_s() * 1000)
        text = await fetch(ServerAddress(host, port, context), _PATH, headers, _BYTES_MAX)
        try:
            return await read_page_of_others(text, now_ms)
        except ReadingError as error:
            raise UnreadableError(f"{host}:{port}{_PATH}: {error}") from error

    def _context(self) -> ssl.SSLContext:
        """Return the settings of TLS, made anew when a file has changed; raises ValueError."""
        options = self._options
        files = (options.ca_file, options.cert_file, options.key_file)
        states = tuple(map(file_state, files))
        if self._kept is None or self._kept.states != states:
            shown = KeyPair(options.cert_file, options.key_file)
            ca = read_bundle(options.ca_file)
            context = client_context(ca, cert=shown, insecure=not options.ca_file)
            self._kept = _KeptContext(states, context)
        return self._kept.context


def address_of(node: Object, options: KubeletOptions) -> tuple[str, int]:
    """Return where the kubelet of a node is; raises UnreadableError."""
    status = node.get("status") or {}
    addresses = {each["type"]: each["address"] for each in status.get("addresses") or ()}
    host = next((addresses[each] for each in options.address_types if each in addresses), "")
    if not host:
        raise UnreadableError(f"the node has no address of type {', '.join(options.address_types)}")
    endpoint = (status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}
    port = options.port or endpoint.get("Port") or _PORT
    if not 0 < port <= _PORT_MAX:
        raise UnreadableError(f"port {port} of the kubelet: a number from 1 to {_PORT_MAX}")
    return host, port
