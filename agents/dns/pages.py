"""The pages of the DNS server, as CoreDNS': each at a port of its own.

/health    200 OK while the process runs
/ready     200 OK, or 503 and what is not ready
/metrics   Prometheus' text, of which there is a new one once a second at most
"""

from collections.abc import Callable, Mapping
from typing import Final

from kvstack.agents.dns.metrics import dns_metrics
from kvstack.agents.dns.server import DnsServer
from kvstack.component.clock import Clock
from kvstack.component.http.serving.answer import Answer
from kvstack.component.http.serving.listeners import Listener, ListenerLimits
from kvstack.component.http.serving.request import Request
from kvstack.component.http.serving.server import HttpServer
from kvstack.component.metrics.exposition import CONTENT_TYPE, render
from kvstack.component.net.listening import peer_host

HEALTH, READY, METRICS = "/health", "/ready", "/metrics"
PAGE_S: Final = 1.0
"""So long a page of metrics is given again: it is made on the loop that answers queries."""
_LIMITS: Final = ListenerLimits(
    connections_max=256, streams_max=16, header_bytes_max=64 << 10, body_bytes_max=1 << 10
)
_TEXT: Final = "text/plain; charset=utf-8"


class DnsPages:
    """Serves the pages."""

    def __init__(
        self,
        server: DnsServer,
        server_label: str,
        addresses: Mapping[str, str],
        clock: Clock,
        allows: Callable[[str], bool] | None = None,
    ) -> None:
        """server_label: where queries are answered; addresses: HOST:PORT by the path of each page.

        Pages of one address share it. allows: whether a client at an IP address may read them;
        None: everybody may.
        """
        self._server = server
        self._server_label = server_label
        self._clock = clock
        self._allows = allows
        self._metrics = b""
        self._metrics_until_s = -1.0
        paths: dict[str, set[str]] = {}
        for path, address in addresses.items():
            paths.setdefault(address, set()).add(path)
        self._servers = [self._at(address, frozenset(some)) for address, some in paths.items()]

    @property
    def urls(self) -> list[str]:
        """The URLs of the pages, once started."""
        return [url for each in self._servers for url in each.urls]

    async def start(self) -> None:
        """Serve; raises ConfigError."""
        for each in self._servers:
            await each.start()

    async def stop(self) -> None:
        """Stop serving."""
        for each in self._servers:
            await each.stop()

    def _at(self, address: str, paths: frozenset[str]) -> HttpServer:
        async def handle(request: Request, answer: Answer) -> None:
            path = request.target.partition("?")[0]
            if not self._may_read(request):
                code, media_type, body = 403, _TEXT, b"403 forbidden\n"
            else:
                code, media_type, body = self._page(path) if path in paths else _missing()
            answer.send(code, (("Content-Type", media_type),), body)

        return HttpServer([Listener(f"http://{address}", "dns", limits=_LIMITS)], handle)

    def _may_read(self, request: Request) -> bool:
        if self._allows is None:
            return True
        host, _, port = request.connection.peer.rpartition(":")
        return self._allows(peer_host((host.strip("[]"), port)))

    def _page(self, path: str) -> tuple[int, str, bytes]:
        if path == METRICS:
            return 200, CONTENT_TYPE, self._metrics_page()
        if path == READY and not self._server.is_synced:
            return 503, _TEXT, b"kubernetes"
        return 200, _TEXT, b"OK"

    def _metrics_page(self) -> bytes:
        now_s = self._clock.monotonic_s()
        if now_s >= self._metrics_until_s:
            self._metrics = render(dns_metrics(self._server, self._server_label))
            self._metrics_until_s = now_s + PAGE_S
        return self._metrics


def _missing() -> tuple[int, str, bytes]:
    return 404, _TEXT, b"404 page not found\n"
