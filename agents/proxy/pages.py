"""The pages of a proxy, at two addresses, for whoever reaches them: as kube-proxy's.

:10256   /healthz /livez                                 whether balancers are to send here
:10249   /metrics /proxyMode /healthz /configz           on loopback, unless the flags say else
"""

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final

import orjson

from kvstack.agents.process.own_metrics import own_metrics
from kvstack.agents.proxy.metrics import readings
from kvstack.agents.proxy.proxier import Proxier
from kvstack.component.errors import ComponentError
from kvstack.component.http.serving.answer import Answer
from kvstack.component.http.serving.listeners import Listener, ListenerLimits
from kvstack.component.http.serving.request import Request
from kvstack.component.http.serving.server import HttpServer
from kvstack.component.metrics.exposition import CONTENT_TYPE, render

HEALTHZ, METRICS = "healthzBindAddress", "metricsBindAddress"
"""The fields of the configuration that name the addresses."""
_LIMITS: Final = ListenerLimits(
    connections_max=256, streams_max=16, header_bytes_max=64 << 10, body_bytes_max=1 << 10
)
_SAFE: Final = ("X-Content-Type-Options", "nosniff")
_TEXT: Final = (("Content-Type", "text/plain; charset=utf-8"), _SAFE)
_JSON: Final = (("Content-Type", "application/json"), _SAFE)


class HealthPages:
    """Answers /healthz and /livez."""

    def __init__(self, proxier: Proxier) -> None:
        """Answer for a proxy."""
        self._health = proxier.health
        self.counts: Final[dict[str, dict[int, int]]] = {"/healthz": {}, "/livez": {}}
        """Page → answers by code."""

    async def handle(self, request: Request, answer: Answer) -> None:
        """Answer one request."""
        path = request.target.partition("?")[0]
        counts = self.counts.get(path)
        if counts is None:
            answer.send(404, _TEXT, b"404 page not found\n")
            return
        code, body = self._health.report(asks_eligible=path == "/healthz")
        counts[code] = counts.get(code, 0) + 1
        answer.send(code, _JSON, body)


class MetricsPages:
    """Answers what operators ask."""

    def __init__(
        self, proxier: Proxier, health: HealthPages, configuration: Mapping[str, object]
    ) -> None:
        """configuration: what /configz shows."""
        self._proxier = proxier
        self._health = health
        self._configuration = configuration

    async def handle(self, request: Request, answer: Answer) -> None:
        """Answer one request."""
        path = request.target.partition("?")[0]
        if path == "/metrics":
            answer.send(200, (("Content-Type", CONTENT_TYPE),), self._metrics())
        elif path == "/proxyMode":
            answer.send(200, _TEXT, self._proxier.mode.encode())
        elif path == "/configz":
            body = orjson.dumps({"kubeproxy.config.k8s.io": self._configuration})
            answer.send(200, _JSON, body)
        elif path == "/healthz":
            answer.send(200, _TEXT, b"ok")
        else:
            answer.send(404, _TEXT, b"404 page not found\n")

    def _metrics(self) -> bytes:
        return render([*readings(self._proxier, self._health.counts), *own_metrics()])


async def serve_pages(
    stack: AsyncExitStack,
    proxier: Proxier,
    configuration: Mapping[str, Any],
    on_failure: Callable[[str, str, Exception], None],
) -> None:
    """Serve the pages at the addresses of a configuration, until the stack is closed.

    on_failure gets the field, the address and the error of one that cannot be bound. An empty
    address, or one with port 0, is not served.
    """
    health = HealthPages(proxier)
    metrics = MetricsPages(proxier, health, configuration)
    for field, handle in ((HEALTHZ, health.handle), (METRICS, metrics.handle)):
        address = configuration[field]
        if not address or address.endswith(":0"):
            continue
        server = HttpServer([Listener(f"http://{address}", limits=_LIMITS)], handle)
        try:
            await server.start()
        except (ComponentError, OSError) as error:
            on_failure(field, address, error)
            continue
        stack.push_async_callback(server.stop)
