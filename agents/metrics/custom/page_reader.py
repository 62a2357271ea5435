"""Reads the pages in Prometheus' text format that the file of rules names, other than pods'.

    pages = PageReader(rules, clock, logger, PageOptions())
    pages.start();  …;  await pages.stop()
    pages.values(rule, "default", selector)        of Services or Ingresses, by their names
    pages.series(rule, "default", selector)        of what is outside of the cluster

Who wrote the file chose the addresses. What is there may still be anybody: pages have limits of
bytes, series and time, no redirect is followed, and they are read in a thread, beside the answers.
"""

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kvstack.agents.metrics.collector import UnreadableError
from kvstack.agents.metrics.custom.readings import Labels, Readings, Value
from kvstack.agents.metrics.custom.rounds import Rounds
from kvstack.agents.metrics.custom.rules import Page, Rule, Rules
from kvstack.agents.metrics.exposition_reader import ReadingError
from kvstack.agents.metrics.http_pages import ServerAddress, fetch
from kvstack.apimachinery.objects.labels import Selector
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger

SERIES_MAX: Final = 10_000
"""The maximum number of series of a sample of a page."""
_HEADERS: Final = (("Accept", "text/plain;version=0.0.4"), ("User-Agent", "kvstack-metrics"))


@dataclass(frozen=True, slots=True)
class PageOptions:
    """Intervals and limits."""

    every_s: float = 15.0
    timeout_s: float = 10.0
    bytes_max: int = 16 << 20


class PageReader:
    """Reads all pages of a file."""

    def __init__(self, rules: Rules, clock: Clock, logger: Logger, options: PageOptions) -> None:
        self._pages = rules.pages
        self._options = options
        named = (*rules.objects.values(), *rules.external.values())
        self._readings = Readings(named, SERIES_MAX, clock, logger, "page")
        self._rounds = Rounds(self.read_all, options.every_s, clock, logger)
        is_tls = any(each.is_tls for each in rules.pages.values())
        self._context = ssl.create_default_context() if is_tls else None

    def start(self) -> None:
        """Start to read."""
        self._rounds.start()

    async def stop(self) -> None:
        """End."""
        await self._rounds.stop()

    def values(self, rule: Rule, namespace: str, selector: Selector) -> Mapping[str, Value]:
        """Return a metric of all objects of a namespace: the sums of their series, by name."""

        def matches(labels: Labels) -> bool:
            return labels.get(rule.namespace_label) == namespace and selector.matches(labels)

        return self._readings.by_label(rule.page, rule, matches, rule.name_label)

    def series(
        self, rule: Rule, namespace: str, selector: Selector
    ) -> Sequence[tuple[Labels, Value]]:
        """Return an external metric as a namespace may see it."""

        def matches(labels: Labels) -> bool:
            is_seen = not rule.namespace_label or labels.get(rule.namespace_label) == namespace
            return is_seen and selector.matches(labels)

        return self._readings.series(rule.page, rule, matches)

    async def read_all(self) -> None:
        """Read every page once."""
        await asyncio.gather(*(self._read_one(*each) for each in self._pages.items()))

    async def _read_one(self, name: str, page: Page) -> None:
        address = ServerAddress(page.host, page.port, self._context if page.is_tls else None)
        try:
            async with asyncio.timeout(self._options.timeout_s):
                text = await fetch(address, page.target, _HEADERS, self._options.bytes_max)
            await self._readings.take(name, name, text)
        except (UnreadableError, ReadingError, TimeoutError) as error:
            why = str(error) or f"no answer within {self._options.timeout_s} s"
            self._readings.missed(name, why)
