"""The pages put together: what the client port serves, what the other addresses serve.

    client port, --listen-client-http-urls   access ─► gateway and WebSocket, health, version,
                                             metrics, vars, ui, profiles if --enable-pprof
    --listen-metrics-urls                    /metrics, /health, /livez, /readyz, no access check

The native transport serves the first two; where it is not built, the own server has the second.
Metrics and the status page are given by others: handlers, or none.
"""

import socket
import ssl
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

from kvstore.config.model import Config
from kvstore.errors import ConfigError
from kvstore.http.exchange import Request, Responder, method_not_allowed
from kvstore.http.h1_server import H1Server
from kvstore.http.port_requests import PortRequests
from kvstore.http.site import Handler, Site
from kvstore.http.websocket import WebSockets
from kvstore.logger import Logger
from kvstore.peers.tls import PeerTls, PeerTlsError, admit, server_context
from kvstore.runtime.side_loop import SideLoop
from kvstore.server.gateway.gateway import Gateway
from kvstore.server.gateway.routes import PREFIX as GATEWAY
from kvstore.server.pages.access import Access
from kvstore.server.pages.health import HealthCounts, HealthPages, NodeHealth
from kvstore.server.pages.pages import VARS_PATH, VERSION_PATH, VarsPage, VersionPage
from kvstore.server.pages.profiles import PREFIX as PROFILES
from kvstore.server.pages.profiles import Profiles
from kvstore.transport.addresses import (
    TcpAddress,
    UnixAddress,
    bound_url,
    parse,
    remove_stale,
    unix_fault,
)

REQUEST_OVERHEAD_BYTES: Final = 512 << 10  # what gRPC may add to the largest request
_METRICS: Final = "/metrics"
_BACKLOG: Final = 128  # connections that wait to be accepted
_METRICS_TLS: Final = (
    "client TLS key/cert (--cert-file, --key-file) must be provided for metrics secure url"
)

MetricsPage = Callable[[], Awaitable[tuple[bytes, str]]]  # → (body, content type)


class Extras(NamedTuple):
    """What others give."""

    metrics: MetricsPage | None = None
    ui: Mapping[str, Handler] = {}  # by path, as for Site
    cluster_version: Callable[[], str] = str  # empty: not decided
    is_auth_enabled: Callable[[], bool] = bool


class HttpService:
    """Every page of one member."""

    def __init__(
        self,
        config: Config,
        side: SideLoop,
        methods: Collection[int],
        logger: Logger,
        extras: Extras,
    ) -> None:
        """Make the pages; nothing is served yet."""
        self._config = config
        self._side = side
        self._logger = logger
        self._client_servers: list[H1Server] = []
        self.counts: Final = HealthCounts()
        node = NodeHealth(side.client, 5.0 + 2 * config.election_timeout_ms / 1000)
        health = HealthPages(node, logger, self.counts)
        watched: dict[str, Handler] = dict.fromkeys(health.paths(), health.serve)
        if extras.metrics is not None:
            watched[_METRICS] = _metrics_handler(extras.metrics)
        pages: dict[str, Handler] = {
            **watched,
            VERSION_PATH: VersionPage(node, extras.cluster_version).serve,
            VARS_PATH: VarsPage(node).serve,
            **extras.ui,
        }
        values = config.values
        if values.get("enable-grpc-gateway", True):
            gateway = Gateway(
                side.client, methods, config.max_request_bytes + REQUEST_OVERHEAD_BYTES
            )
            pages[GATEWAY] = WebSockets(gateway.serve, gateway.body_bytes_max).serve
        if values.get("enable-pprof") or config.log_level == "debug":
            pages[PROFILES] = Profiles().serve
        is_guarded = bool(values.get("client-cert-auth")) and GATEWAY in pages
        self._metrics_site = Site(watched)
        self._client_site = Access(
            Site(pages).serve,
            logger,
            origins=texts(config, "cors"),
            hosts=texts(config, "host-whitelist"),
            is_common_name_refused=lambda: is_guarded and extras.is_auth_enabled(),
        )

    def start_metrics(self) -> None:
        """Serve the addresses for metrics, which may be asked before the member has joined.

        ConfigError if one cannot be listened on; so for start_clients.
        """
        urls = texts(self._config, "listen-metrics-urls")
        self._listen(urls, self._metrics_site.serve, "serving metrics")

    def start_clients(self, *, by_port: bool) -> None:
        """Serve the requests of the client port, if it hands over such, or else listen for them."""
        if by_port:
            PortRequests(self._side, self._client_site.serve).attach()
        else:
            urls = texts(self._config, "listen-client-http-urls")
            servers = self._listen(urls, self._client_site.serve, "serving client traffic")
            self._client_servers += servers

    def drain(self) -> None:
        """Take no new requests at the own server's client addresses; what runs goes on."""
        for server in self._client_servers:
            self._side.call(server.drain)

    @property
    def is_drained(self) -> bool:
        """Whether, since drain(), those requests are answered; an answer that streams is."""
        return all(server.is_drained for server in self._client_servers)

    def _listen(self, urls: Sequence[str], handler: Handler, message: str) -> list[H1Server]:
        opened = [self._open(url, handler) for url in urls]
        for server, address in opened:
            self._side.run(server.run(), f"http {address}")
            self._logger.info(message, address=address, transport="http")
        return [server for server, _ in opened]

    def _open(self, url: str, handler: Handler) -> tuple[H1Server, str]:
        address = parse(url, with_tls=True)
        reuse_port = bool(self._config.values.get("socket-reuse-port"))
        if not address.secure:
            return listening(url, address, handler, self._logger, None, reuse_port=reuse_port)
        tls = client_tls(self._config)
        if not tls.cert_file or not tls.key_file:
            raise ConfigError(f"{url}: {_METRICS_TLS}")
        return listening(url, address, handler, self._logger, tls, reuse_port=reuse_port)


def texts(config: Config, flag: str) -> tuple[str, ...]:
    """Return the value of a flag that has many."""
    value = config.values.get(flag, ())
    assert isinstance(value, tuple), flag
    return value


def client_tls(config: Config) -> PeerTls:
    """Return what the flags of the client port say about TLS."""

    def text(flag: str) -> str:
        return str(config.values.get(flag, ""))

    return PeerTls(
        cert_file=text("cert-file"),
        key_file=text("key-file"),
        trusted_ca_file=text("trusted-ca-file"),
        client_cert_auth=bool(config.values.get("client-cert-auth")),
        crl_file=text("client-crl-file"),
        allowed_hostnames=texts(config, "client-cert-allowed-hostname"),
        min_version=text("tls-min-version"),
        max_version=text("tls-max-version"),
        cipher_suites=texts(config, "cipher-suites"),
    )


class _Contexts:
    """TLS as the files say, read anew for each connection; the last good one if they are broken."""

    def __init__(self, tls: PeerTls, logger: Logger) -> None:
        self._tls = tls
        self._logger = logger
        self._last = server_context(tls)

    def make(self) -> ssl.SSLContext:
        try:
            self._last = server_context(self._tls)
        except PeerTlsError as error:
            self._logger.warning("the last good certificate is served", error=str(error))
        return self._last


def listening(
    url: str,
    address: TcpAddress | UnixAddress,
    handler: Handler,
    logger: Logger,
    tls: PeerTls | None,
    *,
    reuse_port: bool = False,
) -> tuple[H1Server, str]:
    """Bind; return the server and the URL with the port that was really bound."""
    try:
        bound = _bind(address, reuse_port=reuse_port)
        bound.listen(_BACKLOG)
    except OSError as error:
        reason = error.strerror or str(error)
        is_missing = isinstance(error, FileNotFoundError | PermissionError)
        if isinstance(address, UnixAddress) and is_missing:
            reason = unix_fault(address.path)
        raise ConfigError(f"cannot listen on {url}: {reason}") from None
    is_unix = isinstance(address, UnixAddress)
    shown = url if is_unix else bound_url(url, bound.getsockname()[1])
    if tls is None:
        return H1Server(bound, handler, logger), shown

    def admitted(certificate: Mapping[str, object], remote: str) -> str:
        asked = tls if remote else tls._replace(skip_client_san_verification=True)
        try:
            return admit(certificate, remote, asked)
        except PeerTlsError as error:
            raise OSError(str(error)) from None

    try:
        contexts = _Contexts(tls, logger)
    except PeerTlsError as error:
        bound.close()
        raise ConfigError(f"cannot listen on TLS for {url}: {error}") from None
    return H1Server(bound, handler, logger, make_context=contexts.make, admit=admitted), shown


def _bind(address: TcpAddress | UnixAddress, *, reuse_port: bool) -> socket.socket:
    if isinstance(address, UnixAddress):
        remove_stale(address.path)
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        bound.bind(address.path)
        return bound
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    return _bind_tcp(found, reuse_port=reuse_port)


def _bind_tcp(
    found: Sequence[tuple[int, int, int, str, tuple[object, ...]]], *, reuse_port: bool
) -> socket.socket:
    family, kind, protocol, _, name = found[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(name)
    except OSError:
        bound.close()
        raise
    return bound


def _metrics_handler(page: MetricsPage) -> Handler:
    async def serve(request: Request, respond: Responder) -> None:
        if request.method not in {"GET", "HEAD"}:
            await method_not_allowed(respond, "GET")
            return
        body, content_type = await page()
        await respond.whole(200, [("Content-Type", content_type)], body)

    return serve
