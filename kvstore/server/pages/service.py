"""All pages of a member: those of the client port and those of the other addresses.

    client port, --listen-client-http-urls   access ─► gateway and WebSocket, health, version,
                                             metrics, vars, ui, profiles if --enable-pprof
    --listen-metrics-urls                    /metrics, /health, /livez, /readyz, no access check

The native transport serves the first two; where it is not built, `H1Server` serves the second.
The handlers of metrics and the status page are arguments and may be missing.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

from kvstack.component.logger import Logger
from kvstore.config.model import Config
from kvstore.http.exchange import PageHandler, PageRequest, Responder, method_not_allowed
from kvstore.http.h1_server import H1Server
from kvstore.http.page_router import PageRouter
from kvstore.http.port_requests import PortRequests
from kvstore.http.websocket import WebSockets
from kvstore.peers.tls import PeerTls
from kvstore.runtime.side_loop import SideLoop
from kvstore.server.gateway.json_gateway import JsonGateway
from kvstore.server.gateway.routes import PREFIX as GATEWAY
from kvstore.server.pages.access import Access
from kvstore.server.pages.browsers import BrowserRules
from kvstore.server.pages.health import HealthCounts, HealthPages, NodeHealth
from kvstore.server.pages.listening import listen
from kvstore.server.pages.local import PageAnswer, ask
from kvstore.server.pages.profiles import PREFIX as PROFILES
from kvstore.server.pages.profiles import Profiles
from kvstore.server.pages.version_and_vars import VARS_PATH, VERSION_PATH, VarsPage, VersionPage

_METRICS: Final = "/metrics"

MetricsPage = Callable[[], Awaitable[tuple[bytes, str]]]  # → (body, content type)


class Extras(NamedTuple):
    """Handlers and values that other packages provide."""

    metrics: MetricsPage | None = None
    ui: Mapping[str, PageHandler] = {}  # by path, as for PageRouter
    cluster_version: Callable[[], str] = str  # empty: not decided yet
    is_auth_enabled: Callable[[], bool] = bool


class PageService:
    """The pages of one member."""

    def __init__(
        self,
        config: Config,
        side: SideLoop,
        methods: Collection[int],
        logger: Logger,
        extras: Extras,
    ) -> None:
        """Create the pages; nothing is served yet."""
        self._config = config
        self._side = side
        self._logger = logger
        self._client_servers: list[H1Server] = []
        self.counts: Final = HealthCounts()
        node = NodeHealth(side.client, config.request_timeout_s)
        health = HealthPages(node, logger, self.counts)
        metrics_paths: dict[str, PageHandler] = dict.fromkeys(health.paths(), health.serve)
        if extras.metrics is not None:
            metrics_paths[_METRICS] = _metrics_handler(extras.metrics)
        pages: dict[str, PageHandler] = {
            **metrics_paths,
            VERSION_PATH: VersionPage(node, extras.cluster_version).serve,
            VARS_PATH: VarsPage(node).serve,
            **extras.ui,
        }
        if config.enable_grpc_gateway:
            gateway = JsonGateway(side.client, methods, config.message_bytes_max)
            pages[GATEWAY] = WebSockets(gateway.serve, gateway.body_bytes_max).serve
        if config.enable_pprof or config.log_level == "debug":
            pages[PROFILES] = Profiles().serve
        is_guarded = config.client_tls.client_cert_auth and GATEWAY in pages
        self._metrics_pages = PageRouter(metrics_paths)
        self._local_pages = PageRouter({**metrics_paths, **extras.ui})
        self._client_pages = Access(
            PageRouter(pages).serve,
            logger,
            rules=BrowserRules(
                config.cors,
                config.host_whitelist,
                listen_urls=config.all_client_urls,
                advertised_urls=config.advertise_client_urls,
            ),
            is_common_name_refused=lambda: is_guarded and extras.is_auth_enabled(),
        )

    def start_metrics(self) -> None:
        """Serve the addresses for metrics, also before the member has joined.

        ConfigError if one cannot be listened on; start_clients raises it, too.
        """
        urls = self._config.listen_metrics_urls
        self._listen(urls, self._metrics_pages.serve, "serving metrics")

    async def answer(self, method: str, path: str) -> PageAnswer:
        """Answer a request of this process for health, metrics or the status page."""
        return await ask(self._local_pages.serve, method, path)

    def start_clients(self, *, by_port: bool) -> None:
        """Serve client requests; by_port: the transport delivers them, else listen here."""
        if by_port:
            PortRequests(self._side, self._client_pages.serve).attach()
        else:
            urls = self._config.listen_client_http_urls
            servers = self._listen(urls, self._client_pages.serve, "serving client traffic")
            self._client_servers += servers

    def drain(self) -> None:
        """Accept no new requests at the H1Servers' client addresses; open ones are answered."""
        for server in self._client_servers:
            self._side.call(server.drain)

    @property
    def is_drained(self) -> bool:
        """Whether those requests are answered; a streaming response counts as answered."""
        return all(server.is_drained for server in self._client_servers)

    def _listen(self, urls: Sequence[str], handler: PageHandler, message: str) -> list[H1Server]:
        tls, reuse_port = client_tls(self._config), self._config.socket_reuse_port
        opened = [listen(url, handler, self._logger, tls, reuse_port=reuse_port) for url in urls]
        for server, address in opened:
            self._side.run(server.run(), f"http {address}")
            self._logger.info(message, address=address, transport="http")
        return [server for server, _ in opened]


def client_tls(config: Config) -> PeerTls:
    """Return the TLS settings of the client port."""
    tls = config.client_tls
    return PeerTls(
        cert_file=tls.cert_file,
        key_file=tls.key_file,
        trusted_ca_file=tls.trusted_ca_file,
        client_cert_auth=tls.client_cert_auth,
        crl_file=tls.crl_file,
        allowed_hostnames=tls.allowed_hostnames,
        min_version=config.tls_min_version,
        max_version=config.tls_max_version,
        cipher_suites=config.cipher_suites,
    )


def _metrics_handler(page: MetricsPage) -> PageHandler:
    async def serve(request: PageRequest, respond: Responder) -> None:
        if request.method not in {"GET", "HEAD"}:
            await method_not_allowed(respond, "GET")
            return
        body, content_type = await page()
        await respond.whole(200, [("Content-Type", content_type)], body)

    return serve
