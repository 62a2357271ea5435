"""The paths of the status page, and the samples it shows.

Everything is read between two turns and cheap. Key sizes are sampled only while the page is open,
and no more often than SIZES_EVERY_S, however many browsers show it.
"""

import asyncio
import base64
import hashlib
import json
import re
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Final

from kvstore.batch import HttpHeaders
from kvstore.http.exchange import PageHandler, PageRequest, Responder, method_not_allowed
from kvstore.server.metrics.gatherer import BusyError, Gatherer
from kvstore.server.metrics.observer import MetricsObserver
from kvstore.server.metrics.own_families import prefix_text
from kvstore.server.ui import requests_page
from kvstore.server.ui.guard import Guard
from kvstore.server.ui.history import INTERVAL_S, History, take_sample
from kvstore.server.ui.prefix_sizes import ROUND_KEYS, PrefixSizes
from kvstore.server.ui.view import PREFIXES_SHOWN, Json, take_view

PATH: Final = "/ui"
DATA_PATH: Final = "/ui/data"
SIZES_EVERY_S: Final = 5.0
_TIMEOUT_S: Final = 2.0
_QUICK_SAMPLES: Final = 5  # so that the first rates appear soon
_QUICK_INTERVAL_S: Final = 1.0
_SLOW_SHOWN: Final = 50
_PAGE: Final = Path(__file__).with_name("page.html").read_bytes()


def _policy() -> str:
    """Return the page's content security policy: its own script and style by their digests."""
    allowed = {}
    for tag in ("script", "style"):
        inline = re.findall(rf"<{tag}>(.*?)</{tag}>", _PAGE.decode(), re.DOTALL)
        digests = [hashlib.sha256(each.encode()).digest() for each in inline]
        allowed[tag] = " ".join(f"'sha256-{base64.b64encode(each).decode()}'" for each in digests)
    return (
        f"default-src 'none'; script-src {allowed['script']}; style-src {allowed['style']}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


_COMMON: Final[HttpHeaders] = [
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
]
_PAGE_HEADERS: Final[HttpHeaders] = [
    ("Content-Type", "text/html; charset=utf-8"),
    ("Content-Security-Policy", _policy()),
    *_COMMON,
]
_DATA_HEADERS: Final[HttpHeaders] = [("Content-Type", "application/json"), *_COMMON]


class StatusPage:
    """Serves the page; its coroutines run on the side loop."""

    def __init__(self, observer: MetricsObserver, gatherer: Gatherer, guard: Guard) -> None:
        self._observer = observer
        self._gatherer = gatherer
        self._guard = guard
        self._history = History()
        self._sizes = PrefixSizes()
        self._sizes_due_s = 0.0

    def handlers(self, *, is_debugging: bool = False) -> dict[str, PageHandler]:
        """Return the handler of each path; is_debugging: with the page of requests."""
        paths: dict[str, PageHandler] = {PATH: self._serve_page, DATA_PATH: self._serve_data}
        if is_debugging:
            paths[requests_page.PATH] = self._serve_requests
        return paths

    async def keep_history(self) -> None:
        """Take samples until cancelled."""
        for taken in count():
            await self._sample()
            await asyncio.sleep(INTERVAL_S if taken >= _QUICK_SAMPLES else _QUICK_INTERVAL_S)

    async def _sample(self) -> None:
        sources = self._observer.sources
        try:
            self._history.add(await self._gatherer.read(lambda: take_sample(sources), _TIMEOUT_S))
        except BusyError:
            return  # a long turn: a sample is missing, and the next rate covers the gap

    async def _serve_page(self, request: PageRequest, respond: Responder) -> None:
        if await self._is_admitted(request, respond):
            await respond.whole(200, _PAGE_HEADERS, _PAGE)

    async def _serve_data(self, request: PageRequest, respond: Responder) -> None:
        if not await self._is_admitted(request, respond):
            return
        try:
            data = await self._data()
        except BusyError as busy:
            await respond.whole(503, _DATA_HEADERS, _json({"error": str(busy)}))
            return
        await respond.whole(200, _DATA_HEADERS, _json(data))

    async def _serve_requests(self, request: PageRequest, respond: Responder) -> None:
        if not await self._is_admitted(request, respond):
            return
        sources = self._observer.sources
        try:
            active = await self._gatherer.read(
                lambda: sources.calls.open_by_method(sources.clock.monotonic_ns()), _TIMEOUT_S
            )
        except BusyError as busy:
            await respond.whole(503, _PAGE_HEADERS, f"{busy}\n".encode())
            return
        body = requests_page.render(active, list(self._observer.slow_requests.kept))
        await respond.whole(200, _PAGE_HEADERS, body)

    async def _is_admitted(self, request: PageRequest, respond: Responder) -> bool:
        if request.method not in {"GET", "HEAD"}:
            await method_not_allowed(respond, "GET")
            return False
        refused = await self._guard.check(request.header("authorization"))
        if refused is None:
            return True
        status, text = refused
        headers: HttpHeaders = [("Content-Type", "text/plain; charset=utf-8"), *_COMMON]
        if status == 401:
            headers.append(("WWW-Authenticate", 'Basic realm="kvstore", charset="UTF-8"'))
        await respond.whole(status, headers, f"{text}\n".encode())
        return False

    async def _data(self) -> Json:
        sources = self._observer.sources
        data = await self._gatherer.read(lambda: take_view(sources), _TIMEOUT_S)
        await self._sample_sizes()
        history = self._history
        data["history"] = {
            "ages_s": history.ages_s(),
            "rates": history.rates(),
            "db_bytes": history.db_bytes(),
        }
        forecast = history.growth.forecast(data["db"]["quota"])
        data["growth"] = {
            "samples": history.growth.graph_points(),
            "forecast": None if forecast is None else forecast._asdict(),
        }
        data["sync_ms"] = history.sync_ms(sources.disk.wal.sync_seconds.bounds)
        data["commit_ms"] = history.commit_ms(sources.disk.backend.commit_seconds.bounds)
        data["sizes"] = [
            {"prefix": prefix_text(each.prefix), "keys": each.keys, "bytes": each.size_bytes}
            for each in self._sizes.top(PREFIXES_SHOWN, data["db"]["keys"])
        ]
        kept = list(self._observer.slow_requests.kept)
        data["slow"] = [asdict(each) for each in reversed(kept[-_SLOW_SHOWN:])]
        return data

    async def _sample_sizes(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s < self._sizes_due_s:
            return
        self._sizes_due_s = now_s + SIZES_EVERY_S
        store, offset = self._observer.sources.parts.state.store, self._sizes.next_offset()
        sampled = await self._gatherer.read(
            lambda: store.sample_sizes(ROUND_KEYS, offset), _TIMEOUT_S
        )
        self._sizes.add(sampled)


def _json(value: Json) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
