"""The readers and APIs of one file of rules.

custom = CustomMetrics(rules, informers, clock, logger, every_s)
custom.apis                                    by the path of their group
await custom.start();  …;  await custom.stop()
"""

from typing import TYPE_CHECKING, Final

from kvstack.agents.client.built_in import PODS
from kvstack.agents.client.informers import Informers
from kvstack.agents.metrics.custom import api, external_api
from kvstack.agents.metrics.custom.api import CustomApi
from kvstack.agents.metrics.custom.external_api import ExternalApi
from kvstack.agents.metrics.custom.page_reader import PageOptions, PageReader
from kvstack.agents.metrics.custom.rules import OBJECTS, Rules
from kvstack.agents.metrics.custom.scraper import Scraper, ScraperOptions
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger

if TYPE_CHECKING:
    from kvstack.agents.metrics.answers import MetricsApi


class CustomMetrics:
    """Reads and serves; objects that no rule is about are not watched."""

    def __init__(
        self, rules: Rules, informers: Informers, clock: Clock, logger: Logger, every_s: float
    ) -> None:
        pods = informers.of(PODS)
        named = {resource for resource, _ in rules.objects}
        self._objects: Final = [informers.of(OBJECTS[each].resource) for each in sorted(named)]
        self._scraper = Scraper(rules, pods, clock, logger, ScraperOptions(every_s=every_s))
        self._pages = PageReader(rules, clock, logger, PageOptions(every_s=every_s))
        stores = {each: informers.of(OBJECTS[each].resource).store for each in named}
        stores[api.PODS] = pods.store
        self.apis: Final[dict[str, MetricsApi]] = {}
        if rules.metrics or rules.objects:
            self.apis[f"/apis/{api.GROUP}"] = CustomApi(rules, self._scraper, self._pages, stores)
        if rules.external:
            self.apis[f"/apis/{external_api.GROUP}"] = ExternalApi(rules, self._pages)

    async def start(self) -> None:
        """Start to read."""
        self._pages.start()
        for each in self._objects:
            await each.synced()
        await self._scraper.start()

    async def stop(self) -> None:
        """End."""
        await self._scraper.stop()
        await self._pages.stop()
