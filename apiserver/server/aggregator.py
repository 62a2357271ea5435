"""The aggregator: proxies requests to the API servers of APIServices.

aggregator = Aggregator(site, registry, services, certificate, outbound, logger)
aggregator.follow();  await aggregator.begin();  await aggregator.end()
"""

from typing import Final

from kvstack.apiserver.aggregation.availability import AvailabilityKeeper
from kvstack.apiserver.aggregation.backend import Backends, ProxyCertificate
from kvstack.apiserver.aggregation.discovery import RemoteDiscovery
from kvstack.apiserver.aggregation.in_process import ServedHere
from kvstack.apiserver.aggregation.openapi_v2 import merged
from kvstack.apiserver.aggregation.proxy import AggregationProxy
from kvstack.apiserver.aggregation.remotes import Remotes
from kvstack.apiserver.http.pages.openapi_pages import Merge
from kvstack.apiserver.http.request_context import RequestContext
from kvstack.apiserver.http.site import Site
from kvstack.apiserver.registry.registry import Registry
from kvstack.apiserver.webhooks.outbound import Outbound
from kvstack.apiserver.webhooks.services import Services
from kvstack.component.logger import Logger

_OPENAPI: Final = "/openapi/v3/"


class Aggregator:
    """The aggregator's parts."""

    def __init__(
        self,
        site: Site,
        registry: Registry,
        services: Services,
        certificate: ProxyCertificate,
        outbound: Outbound,
        logger: Logger,
    ) -> None:
        """Add the aggregated API servers to a site, unless outbound requests are disabled."""
        self._outbound: Final = outbound
        self._site: Final = site
        self._remotes: Final = Remotes(registry.view)
        self._backends: Final = Backends(services, certificate)
        self.here: Final = ServedHere(self._remotes)
        """The services that run in this process."""
        self._proxy: Final = AggregationProxy(self._remotes, self._backends, self.here, outbound)
        self._keeper: Final = AvailabilityKeeper(
            registry, self._backends, services, logger, looks_at_others=outbound.is_open
        )
        self._discovery: Final = RemoteDiscovery(self._remotes, self._backends, logger)
        if outbound.is_open:  # otherwise not even the APIServices are shown
            self._remotes.on_change.append(self._discovery.remotes_changed)
        self._discovery.on_change.append(self._forget)
        self.here.on_change.append(self._forget)
        site.api.delegates = self._proxy
        site.metrics.more.append(self._keeper.readings)
        site.discovery.remotes = lambda: [*self._discovery.versions, *self.here.versions]
        site.openapi.remotes = lambda: {**self._discovery.openapi, **self.here.openapi}
        site.openapi.serve_remote = self._serve_openapi
        site.openapi.merge_remotes = self._merge_openapi

    def follow(self) -> None:
        """Start proxying requests; the registry must have been read."""
        self._remotes.follow()

    async def begin(self) -> None:
        """Start the availability checks."""
        await self._keeper.begin()
        if self._outbound.is_open:
            await self._discovery.begin()

    def look_again(self) -> None:
        """Check all servers now."""
        self._keeper.look_again()

    async def end(self) -> None:
        """Stop the checks and close all connections."""
        await self._keeper.end()
        await self._discovery.end()
        await self._backends.close()

    def _forget(self) -> None:
        self._site.discovery.forget()
        self._site.openapi.forget_remotes()

    def _merge_openapi(self) -> Merge:
        parts = [*self._discovery.openapi_v2, *self.here.openapi_v2]
        return lambda document: merged(document, parts)

    async def _serve_openapi(self, context: RequestContext) -> None:
        path = f"/{context.route.info.path.removeprefix(_OPENAPI)}"
        here = self.here.at(path)
        if here is not None:
            self.here.serve_openapi(here, context.request, context.reply)
            return
        remote = self._remotes.at(path)
        await self._proxy.pass_to(remote, context)
