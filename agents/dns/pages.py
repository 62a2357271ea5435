"""The pages of the DNS server, as CoreDNS': each at a port of its own.

/health    200 OK while the process runs
/ready     200 OK, or 503 and what is not ready
/metrics   Prometheus' text
"""

from collections.abc import Mapping
from typing import Final

from kvstack.agents.dns.metrics import dns_metrics
from kvstack.agents.dns.server import DnsServer
from kvstack.component.http.serving.answer import Answer
from kvstack.component.http.serving.listeners import Listener
from kvstack.component.http.serving.request import Request
from kvstack.component.http.serving.server import HttpServer
from kvstack.component.metrics.exposition import CONTENT_TYPE, render

HEALTH, READY, METRICS = "/health", "/ready", "/metrics"
_TEXT: Final = "text/plain; charset=utf-8"


class DnsPages:
    """Serves the pages."""

    def __init__(self, server: DnsServer, server_label: str, addresses: Mapping[str, str]) -> None:
        """server_label: where queries are answered; addresses: HOST:PORT by the path of each page.

        Pages of one address share it.
        """
        self._server = server
        self._server_label = server_label
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
            code, media_type, body = self._page(path) if path in paths else _missing()
            answer.send(code, (("Content-Type", media_type),), body)

        return HttpServer([Listener(f"http://{address}", "dns")], handle)

    def _page(self, path: str) -> tuple[int, str, bytes]:
        if path == METRICS:
            return 200, CONTENT_TYPE, render(dns_metrics(self._server, self._server_label))
        if path == READY and not self._server.is_synced:
            return 503, _TEXT, b"kubernetes"
        return 200, _TEXT, b"OK"


def _missing() -> tuple[int, str, bytes]:
    return 404, _TEXT, b"404 page not found\n"
