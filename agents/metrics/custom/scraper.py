"""Reads pods that expose metrics in Prometheus' text format.

    scraper = Scraper(rules, pods, clock, logger, ScraperOptions())
    await scraper.start();  …;  await scraper.stop()
    scraper.value("default", "web", "http_requests_per_second", selector)

Anybody who may create pods controls what they expose: each has limits of bytes, series and time,
and none delays another. A pod that cannot be read has no values.
"""

import asyncio
import re
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from kvstack.agents.client.informer import Informer
from kvstack.agents.client.object_store import key_of
from kvstack.agents.metrics.collector import UnreadableError
from kvstack.agents.metrics.custom.readings import Readings, Value
from kvstack.agents.metrics.custom.rounds import Rounds
from kvstack.agents.metrics.custom.rules import Rule, Rules
from kvstack.agents.metrics.exposition_reader import ReadingError
from kvstack.agents.metrics.http_pages import ServerAddress, fetch
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.labels import Selector
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger

SCRAPE: Final = "prometheus.io/scrape"
PORT: Final = "prometheus.io/port"
PATH: Final = "prometheus.io/path"
SERIES_MAX: Final = 100
"""The maximum number of series of a metric of a pod."""
_PATH: Final = re.compile(r"/[A-Za-z0-9_.~%!$&'()*+,;=:@/?-]{0,1023}")
_PORT_MAX: Final = 65535
_HEADERS: Final = (("Accept", "text/plain;version=0.0.4"), ("User-Agent", "kvstack-metrics"))


@dataclass(frozen=True, slots=True)
class ScraperOptions:
    """Intervals and limits."""

    every_s: float = 15.0
    at_once: int = 16
    timeout_s: float = 5.0
    bytes_max: int = 1 << 20
    pods_max: int = 5_000


class Scraper:
    """Reads the pods of a cluster."""

    def __init__(
        self, rules: Rules, pods: Informer, clock: Clock, logger: Logger, options: ScraperOptions
    ) -> None:
        self._rules = rules
        self._pods = pods
        self._clock = clock
        self._logger = logger
        self._options = options
        self._readings = Readings(rules.metrics.values(), SERIES_MAX, clock, logger, "pod")
        self._rounds = Rounds(self.read_all, options.every_s, clock, logger)

    async def start(self) -> None:
        """Start to read."""
        await self._pods.synced()
        self._rounds.start()

    async def stop(self) -> None:
        """End."""
        await self._rounds.stop()

    def value(self, namespace: str, pod: str, rule: Rule, selector: Selector) -> Value | None:
        """Return a metric of a pod; None: it is not known. selector: of the samples' labels."""
        return self._readings.value(f"{namespace}/{pod}", rule, selector.matches)

    async def read_all(self) -> None:
        """Read every pod with the annotations once."""
        options = self._options
        pods = {key_of(each): each for each in self._pods.store if _is_scraped(each)}
        if len(pods) > options.pods_max:
            self._logger.warning("some pods are not read", count=len(pods), max=options.pods_max)
            pods = dict(list(pods.items())[: options.pods_max])
        self._readings.keep_only(pods)
        slots = asyncio.Semaphore(options.at_once)
        await asyncio.gather(*(self._read_one(key, pod, slots) for key, pod in pods.items()))

    async def _read_one(self, key: str, pod: Object, slots: asyncio.Semaphore) -> None:
        async with slots:
            try:
                address, path = self._page_address(pod)
                async with asyncio.timeout(self._options.timeout_s):
                    text = await fetch(address, path, _HEADERS, self._options.bytes_max)
                await self._readings.take(key, pod["metadata"]["uid"], text)
            except (UnreadableError, ReadingError, TimeoutError) as error:
                why = str(error) or f"no answer within {self._options.timeout_s} s"
                self._readings.missed(key, why)
            except Exception as error:  # noqa: BLE001 - one pod must not end the others' readings
                self._readings.missed(key, repr(error))

    def _page_address(self, pod: Object) -> tuple[ServerAddress, str]:
        annotations = pod["metadata"].get("annotations") or {}
        address = (pod.get("status") or {}).get("podIP", "")
        try:
            ip = ip_address(address)
        except ValueError:
            raise UnreadableError(f"{address!r} is not an address") from None
        if ip.is_link_local or ip.is_multicast or ip.is_unspecified:
            raise UnreadableError(f"address {address} is not read")
        if ip.is_loopback and not self._rules.allows_loopback:
            raise UnreadableError(f"address {address} is of loopback: allowLoopback is not set")
        port = annotations.get(PORT, "80")
        if not port.isdecimal() or not 0 < int(port[:6]) <= _PORT_MAX:
            raise UnreadableError(f"{PORT}: {port!r}: a number from 1 to {_PORT_MAX}")
        path = annotations.get(PATH, "/metrics")
        if not _PATH.fullmatch(path):
            raise UnreadableError(f"{PATH}: {path[:80]!r} is not a path")
        return ServerAddress(address, int(port)), path


def _is_scraped(pod: Object) -> bool:
    meta = pod["metadata"]
    asks = (meta.get("annotations") or {}).get(SCRAPE) == "true"
    return (
        asks
        and not meta.get("deletionTimestamp")
        and (pod.get("status") or {}).get("phase") == "Running"
    )
