"""The pages of a proxy, at two addresses, for whoever reaches them: as kube-proxy's.

:10256   /healthz /livez                                 whether balancers are to send here
:10249   /metrics /proxyMode /healthz /configz           on loopback, unless the flags say else
"""

from collections.abc import Mapping
from typing import Final

import orjson

from kvstack.agents.proxy.metrics import readings
from kvstack.agents.proxy.proxier import Proxier
from kvstack.component.http.serving.answer import Answer
from kvstack.component.http.serving.request import Request
from kvstack.component.metrics.exposition import CONTENT_TYPE, render
from kvstack.component.metrics.process_families import read_process

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
        return render([*readings(self._proxier, self._health.counts), *read_process()])
