"""The assembled HTTP layer.

    site = Site(env, table, authenticator, logger)
    server = HttpServer([Listener(…)], site.api)
    site.attach(server)

Pages, health checks and reviews can be added before and while it serves.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kvstack.apimachinery.schema.resource import Resource
from kvstack.apimachinery.schema.table import Table
from kvstack.apiserver.http.auditing import Auditing
from kvstack.apiserver.http.handler import Api, Streams
from kvstack.apiserver.http.limits.fair_queues import FairQueues
from kvstack.apiserver.http.limits.in_flight import InFlight
from kvstack.apiserver.http.limits.unsent import Unsent
from kvstack.apiserver.http.pages import flow_pages
from kvstack.apiserver.http.pages.debug_pages import add_debug_pages
from kvstack.apiserver.http.pages.discovery_pages import DiscoveryPages
from kvstack.apiserver.http.pages.health import Health
from kvstack.apiserver.http.pages.metrics_page import MetricsPage
from kvstack.apiserver.http.pages.openapi_pages import OpenApiPages
from kvstack.apiserver.http.pages.page_set import PageSet, json_page
from kvstack.apiserver.http.pages.times_page import add_times_page
from kvstack.apiserver.http.pages.version_page import MINOR, version_info
from kvstack.apiserver.http.request_metrics import RequestMetrics
from kvstack.apiserver.http.routing import REQUEST_TIMEOUT_NS, Router
from kvstack.apiserver.http.slow_requests import SlowRequests
from kvstack.apiserver.http.watches.watch_streams import WatchStreams
from kvstack.apiserver.policy.flow_control.control import FlowControl
from kvstack.apiserver.policy.interfaces import Authenticator
from kvstack.apiserver.verbs.dispatch import VERBS
from kvstack.apiserver.verbs.environment import Environment
from kvstack.component.http.serving.server import HttpServer
from kvstack.component.logger import Logger

if TYPE_CHECKING:
    from kvstack.apiserver.http.observers import RequestObserver


class Site:
    """An API over HTTP."""

    def __init__(
        self,
        env: Environment,
        table: Table,
        authenticator: Authenticator,
        logger: Logger,
        *,
        address: Callable[[], str] = str,
        in_flight: InFlight | None = None,
        flow_control: FlowControl | None = None,
        auditing: Auditing | None = None,
        request_timeout_ns: int = REQUEST_TIMEOUT_NS,
        streams: Streams | None = None,
    ) -> None:
        """Serve an environment; address: returns the host:port that is advertised to clients."""
        self.endpoints: Final = env.endpoints
        self.router: Final = Router(self.endpoints, request_timeout_ns)
        self.pages: Final = PageSet()
        self.on_custom: Final[list[Callable[[], None]]] = []
        """Called after the served custom resources have changed."""
        self.health: Final = Health(logger)
        self.unsent: Final = Unsent()
        self.watches: Final = WatchStreams(env.registry, self.unsent)
        self.discovery: Final = DiscoveryPages(lambda: self.endpoints.rows, address, table.priority)
        self.openapi: Final = OpenApiPages(table, lambda: self.endpoints.rows, MINOR, env.clock)
        self.requests: Final = RequestMetrics(self.pages)
        self.slow: Final = SlowRequests(env.clock, logger)
        self.observers: Final[list[RequestObserver]] = [self.requests, self.slow]
        """Notified of each completed request."""
        in_flight = in_flight or InFlight(env.clock)
        self.queues: Final = (
            None
            if flow_control is None
            else FairQueues(flow_control, env.clock, self.watches.count_of)
        )
        self.metrics: Final = MetricsPage(self.requests, in_flight, self.watches, env.registry)
        if flow_control is not None:
            self.metrics.more.append(lambda: flow_pages.readings(flow_control))
            flow_pages.add_flow_pages(self.pages, flow_control, env.clock)
        if auditing is not None:
            self.metrics.more.append(auditing.readings)
        add_debug_pages(self.pages, self.slow, self.watches, env.registry, env.clock)
        add_times_page(self.pages, env.registry)
        self._add_pages()
        self.api: Final = Api(
            env,
            self.router,
            authenticator,
            VERBS,
            self.pages,
            self.watches,
            logger,
            streams=streams,
            in_flight=in_flight,
            queues=self.queues,
            unsent=self.unsent,
            auditing=auditing,
            observers=self.observers,
        )
        self.metrics.more.append(self.api.policy_metrics.readings)

    def set_custom(self, rows: list[Resource]) -> None:
        """Serve these custom resources, and no others."""
        self.endpoints.set_custom(rows)
        self.router.forget()
        self.discovery.forget()
        self.openapi.forget()
        for each in self.on_custom:
            each()

    def attach(self, server: HttpServer) -> None:
        """Send watch events through the server, which shares their bytes."""
        self.watches.write_all = server.write_all

    def _add_pages(self) -> None:
        pages = self.pages
        for path in ("/api", "/apis"):
            pages.add(path, self.discovery, takes_slash=True)
            pages.add_below(f"{path}/", self.discovery)
        pages.add("/openapi/v2", self.openapi)
        pages.add("/openapi/v3", self.openapi)
        pages.add_below("/openapi/v3/", self.openapi)
        for page in ("/healthz", "/livez", "/readyz"):
            pages.add(page, self.health)
            pages.add_below(f"{page}/", self.health)
        pages.add("/metrics", self.metrics)
        pages.add("/version", json_page(version_info()), takes_slash=True)
        pages.more_paths = lambda: [*self.discovery.paths, *self.health.paths]
