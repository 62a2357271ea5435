"""The proxy's HTTP pages, on its own port and on --metrics-addr.

/metrics         those of one endpoint of the cluster    /health         a read of the cluster
/proxy/metrics   the proxy's own                         /proxy/health   a read and a watch
                                                                         through the proxy
"""

import asyncio
import random
from collections.abc import Sequence
from typing import Final

from kvstack.component.logger import Logger
from kvstack.component.metrics.exposition import CONTENT_TYPE, render
from kvstack.component.metrics.process_families import read_process
from kvstore.errors import PERMISSION_DENIED, Code
from kvstore.http.exchange import (
    PageHandler,
    PageRequest,
    Responder,
    method_not_allowed,
    plain_error,
)
from kvstore.peers.http_client import PeerRequestError, dial
from kvstore.peers.tls import PeerTls
from kvstore.proxy.caching_kv import CachingKv
from kvstore.proxy.counters import ProxyCounters
from kvstore.proxy.upstream import Upstream
from kvstore.runtime.local_client import CallRefusedError
from kvstore.server.pages.health import answer_health
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb

_READ_S: Final = 1.0
_WATCH_S: Final = 3.0
_PAGE_S: Final = 10.0
_PAGE_BYTES_MAX: Final = 64 << 20
_KEY: Final = b"a"


class ProxyPages:
    """Serves the pages."""

    def __init__(
        self,
        kv: CachingKv,
        itself: Upstream | None,
        endpoints: Sequence[str],
        tls: PeerTls,
        counters: ProxyCounters,
        logger: Logger,
    ) -> None:
        """itself connects to the proxy's advertised address; endpoints are the cluster's."""
        self._kv = kv
        self._itself = itself
        self._endpoint = random.SystemRandom().choice(endpoints)
        self._tls = tls
        self._counters = counters
        self._logger = logger

    def handlers(self) -> dict[str, PageHandler]:
        """Return the pages by path."""
        return {
            "/metrics": self._metrics,
            "/health": self._health,
            "/proxy/metrics": self._proxy_metrics,
            "/proxy/health": self._proxy_health,
        }

    async def _metrics(self, request: PageRequest, respond: Responder) -> None:
        url = self._endpoint
        if not url.startswith("http"):
            url = f"{'https' if request.is_tls else 'http'}://{url}"
        try:
            body = await asyncio.to_thread(_fetch, url, self._tls)
        except PeerRequestError as error:
            self._logger.warning("cannot read an endpoint's metrics", error=str(error))
            await plain_error(respond, 500, "Internal server error")
            return
        await respond.whole(200, [("Content-Type", "text/plain; version=0.0.4")], body)

    async def _proxy_metrics(self, request: PageRequest, respond: Responder) -> None:
        page = render([*self._counters.samples(), *read_process()])
        await respond.whole(200, [("Content-Type", CONTENT_TYPE)], page)

    async def _health(self, request: PageRequest, respond: Responder) -> None:
        await self._answer(request, respond, await self._read_error(through_proxy=False))

    async def _proxy_health(self, request: PageRequest, respond: Responder) -> None:
        if self._itself is None:
            await self._answer(request, respond, "no connection to proxy")
            return
        reason = await self._read_error(through_proxy=True)
        if not reason and not await self._can_watch(self._itself):
            reason = "WATCH TIMEOUT"
        await self._answer(request, respond, reason)

    async def _read_error(self, *, through_proxy: bool) -> str:
        """Read a key; return the reason why that failed, or an empty text."""
        body = pb.RangeRequest(key=_KEY).SerializeToString()
        try:
            async with asyncio.timeout(_READ_S):
                if through_proxy and self._itself is not None:
                    await self._itself.call(rpc.RANGE, body)
                else:
                    await self._kv.range(body, {})
        except CallRefusedError as refused:
            if refused.text == PERMISSION_DENIED.text:
                return ""
            return f"GET ERROR:{refused.text}"
        except TimeoutError:
            return "GET ERROR:context deadline exceeded"
        return ""

    async def _can_watch(self, itself: Upstream) -> bool:
        create = pb.WatchCreateRequest(key=_KEY)
        try:
            async with asyncio.timeout(_WATCH_S):
                stream = await itself.open(rpc.WATCH)
                try:
                    await stream.send(pb.WatchRequest(create_request=create).SerializeToString())
                    async for _ in stream:
                        return True
                finally:
                    stream.cancel()
        except TimeoutError:
            return False
        except CallRefusedError as refused:
            self._logger.warning(
                "the proxy's own watch failed", code=Code(refused.code).name, error=refused.text
            )
        return False

    async def _answer(self, request: PageRequest, respond: Responder, reason: str) -> None:
        if request.method != "GET":
            await method_not_allowed(respond, "GET")
        else:
            await answer_health(respond, reason, self._logger)


def _fetch(url: str, tls: PeerTls) -> bytes:
    connection = dial(url, tls, _PAGE_S)
    try:
        answer = connection.ask("GET", "/metrics", [], timeout_s=_PAGE_S, bytes_max=_PAGE_BYTES_MAX)
        return answer.body
    finally:
        connection.close()
