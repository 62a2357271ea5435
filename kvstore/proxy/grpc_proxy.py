"""`kvstore grpc-proxy start`: from settings to a running proxy, until a signal.

    settings ─► endpoints ─► side loop (upstream, services, pages) ─► port ─► signal ─► drained

The port is the same as a member's, native or grpcio; with grpcio the pages need --metrics-addr.
"""

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from kvstack.component.clock import Clock, SystemClock
from kvstack.component.errors import ConfigError
from kvstack.component.line_log.line_logger import capture_library_logs, open_logger
from kvstack.component.logger import Logger
from kvstack.component.process.signals import call_on_stop_signal
from kvstack.component.process.systemd import notify_ready
from kvstore.client import ClientOptions, ClientTls
from kvstore.client.tls_files import check_files
from kvstore.http.exchange import PageHandler
from kvstore.http.page_router import PageRouter
from kvstore.http.port_requests import PortRequests
from kvstore.peers.tls import PeerTls
from kvstore.proxy.caching_kv import CachingKv
from kvstore.proxy.cluster_kv import ClusterKv
from kvstore.proxy.counters import ProxyCounters
from kvstore.proxy.endpoint_sync import recover_ordering, sync_endpoints
from kvstore.proxy.endpoints import discover
from kvstore.proxy.flags.go_flags import Values
from kvstore.proxy.grpc_settings import GrpcProxySettings, listen_url, read_settings
from kvstore.proxy.keep_alives import KeepAliveService
from kvstore.proxy.leasing.leasing_kv import LeasingKv
from kvstore.proxy.leasing.ownership import Ownership
from kvstore.proxy.namespace import Namespace
from kvstore.proxy.pages import ProxyPages
from kvstore.proxy.port_driver import PortDriver
from kvstore.proxy.registration import ProxyRegistration
from kvstore.proxy.service import SERVED, ProxyService
from kvstore.proxy.upstream import Upstream
from kvstore.proxy.watch.watch_service import WatchService
from kvstore.runtime.side_loop import SideLoop
from kvstore.server.boot.self_cert import provide
from kvstore.server.notices import Notices
from kvstore.server.pages.listening import listen
from kvstore.server.pages.profiles import PREFIX as PROFILES
from kvstore.server.pages.profiles import Profiles
from kvstore.transport import native
from kvstore.transport.base import Transport
from kvstore.transport.tls import TlsOptions

CALLS_MAX: Final = 65_536  # calls and streams of all clients
_REQUEST_BYTES_MAX: Final = 4 << 20  # one message of a client; gRPC's default limit


def run(values: Values) -> int:
    """Serve until stopped; ConfigError if it cannot start."""
    settings = read_settings(values)
    clock = SystemClock()
    logger = open_logger(("default",), "debug" if settings.is_debugging else "info", "json")
    capture_library_logs(logger)
    logger.info("Running: ", args=sys.argv)
    dial_tls = settings.client_options.tls
    check_files(dial_tls)
    tls = _port_tls(settings, clock, logger)
    endpoints = discover(settings.srv, logger).urls or list(settings.endpoints)
    if dial_tls.is_unverified:
        logger.warning(
            "--insecure-skip-tls-verify was given, this grpc proxy process skips authentication "
            "of etcd server TLS certificates. This option should be enabled only for testing "
            "purposes."
        )
    with ExitStack() as running:
        _serve(settings, endpoints, tls, clock, logger, running)
    logger.info("stop listening gRPC proxy client requests", address=settings.listen_addr)
    return 0


def _serve(
    settings: GrpcProxySettings,
    endpoints: Sequence[str],
    tls: TlsOptions | None,
    clock: Clock,
    logger: Logger,
    running: ExitStack,
) -> None:
    driver = PortDriver(clock, logger)
    side = SideLoop(driver.wake, logger, tasks_max=CALLS_MAX)
    side.start()
    running.callback(side.stop)
    parts = side.submit(_build(settings, endpoints, side, logger)).result()
    running.callback(lambda: side.submit(parts.close()).result())
    parts.start(side)
    transport, serves_http = _open_port(settings, tls, clock, logger)
    pages = PageRouter(parts.handlers())
    requests = PortRequests(side, pages.serve)
    side.on_request = requests.serve
    side.on_service = parts.service.serve

    def add_frames(
        frames: list[tuple[int, bytes]], half_closed: list[int], gone: list[int]
    ) -> None:
        parts.service.table.add_frames(frames)
        requests.add_frames(frames, half_closed, gone)

    side.on_frames = add_frames
    _serve_metrics(settings, tls, pages, side, logger)
    call_on_stop_signal(driver.stop, logger)
    address = settings.listen_addr
    logger.info("listening for gRPC proxy client requests", address=address)
    if not serves_http and not settings.metrics_addr:
        logger.warning("this transport serves gRPC alone: for pages set --metrics-addr")
    logger.info("ready to proxy client requests", endpoints=list(endpoints))
    logger.info("started gRPC proxy", address=address)
    notify_ready(logger)
    driver.serve(transport, side)


class ProxyParts:
    """The parts of a proxy that run on the side loop."""

    def __init__(
        self,
        settings: GrpcProxySettings,
        endpoints: Sequence[str],
        side: SideLoop,
        logger: Logger,
    ) -> None:
        """Make all parts; on the loop, because channels belong to one."""
        counters = ProxyCounters()
        namespace = Namespace(settings.namespace) if settings.namespace else None
        self._settings = settings
        self._logger = logger
        self.upstream = Upstream(endpoints, settings.client_options, logger)
        cluster = ClusterKv(self.upstream, namespace, is_ordered=settings.is_ordered)
        self._leasing = self._make_leasing(cluster, namespace)
        source = cluster if self._leasing is None else LeasingKv(cluster, *self._leasing)
        self.kv: Final = CachingKv(source, counters)
        self._watch = WatchService(self.upstream, namespace, counters, logger)
        self._keep_alives = KeepAliveService(self.upstream, logger)
        self._registration = ProxyRegistration(
            self.upstream,
            self.kv,
            namespace,
            logger,
            prefix=settings.resolver_prefix,
            address=settings.advertise_client_url,
            ttl_s=settings.resolver_ttl_s,
        )
        self.service: Final = ProxyService(
            side,
            self.upstream,
            self.kv,
            self._watch,
            self._keep_alives,
            self._registration,
            namespace,
            counters,
            logger,
            is_logging=settings.logs_payloads,
        )
        self._itself = self._connect_to_itself()
        self._pages = ProxyPages(
            self.kv,
            self._itself,
            endpoints,
            _page_tls(settings.client_options.tls),
            counters,
            logger,
        )

    def _make_leasing(
        self, cluster: ClusterKv, namespace: Namespace | None
    ) -> tuple[Ownership, Namespace] | None:
        """Return the ownership of keys, and the prefix of leasing keys, if there is a prefix."""
        if not self._settings.leasing_prefix:
            return None
        prefix = Namespace(self._settings.leasing_prefix)
        return Ownership(self.upstream, cluster, prefix, namespace, self._logger), prefix

    def _connect_to_itself(self) -> Upstream | None:
        """Return a client of the advertised address, for the proxy's own health."""
        address, port_tls = self._settings.advertise_client_url, self._settings.port_tls
        if not address:
            return None
        # The certificate is this process's own, so it need not be verified.
        tls = ClientTls(
            cert_file=port_tls.cert_file,
            key_file=port_tls.key_file,
            is_unverified=port_tls.is_on,
        )
        return Upstream([address], ClientOptions(tls=tls), self._logger)

    def handlers(self) -> dict[str, PageHandler]:
        """Return the pages by path."""
        pages = self._pages.handlers()
        if self._settings.enable_pprof:
            pages[PROFILES] = Profiles().serve
            self._logger.info("gRPC proxy enabled pprof", path=PROFILES.rstrip("/"))
        return pages

    def start(self, side: SideLoop) -> None:
        """Start the background coroutines."""
        settings = self._settings
        side.run(self.upstream.connect(), "connect")
        if self._leasing is not None:
            side.run(self._leasing[0].run(), "leasing")
        if settings.resolver_prefix:
            side.run(self._registration.stay_registered(), "registration")
            side.run(self._registration.follow(), "proxies")
        if settings.auto_sync_interval_s > 0:
            sync = sync_endpoints(self.upstream, settings.auto_sync_interval_s, self._logger)
            side.run(sync, "endpoints")

    async def close(self) -> None:
        """End the registration, the streams and the connections."""
        await self._registration.end()
        if self._leasing is not None:
            await self._leasing[0].close()
        await self._watch.close()
        await self._keep_alives.close()
        await self.upstream.close()
        if self._itself is not None:
            await self._itself.close()


async def _build(
    settings: GrpcProxySettings, endpoints: Sequence[str], side: SideLoop, logger: Logger
) -> ProxyParts:
    parts = ProxyParts(settings, endpoints, side, logger)
    if settings.is_ordered:
        logger.info("waiting for linearized read from cluster to recover ordering")
        await recover_ordering(parts.kv, logger)
    return parts


def _port_tls(settings: GrpcProxySettings, clock: Clock, logger: Logger) -> TlsOptions | None:
    """Return the TLS options of the port, with a generated certificate if the flags ask for one."""
    port_tls = settings.port_tls
    if not port_tls.is_on:
        return None
    cert_file, key_file = port_tls.cert_file, port_tls.key_file
    if not cert_file:
        directory = Path(settings.data_dir) / "fixtures" / "proxy"
        host = urlsplit(f"https://{settings.listen_addr}").hostname or ""
        try:
            cert_file, key_file = provide(
                directory, [host], port_tls.validity_years, clock.unix_s(), logger
            )
        except OSError as error:
            raise ConfigError(
                f"cannot generate a certificate in {directory}: {error.strerror or error}"
            ) from error
    tls = TlsOptions(
        cert_file=cert_file,
        key_file=key_file,
        trusted_ca_file=port_tls.trusted_ca_file,
        crl_file=port_tls.crl_file,
        min_version=port_tls.min_version,
        max_version=port_tls.max_version,
        cipher_suites=port_tls.cipher_suites,
    )
    logger.info("gRPC proxy server TLS", **{"tls-info": repr(tls)})
    return tls


def _open_port(
    settings: GrpcProxySettings, tls: TlsOptions | None, clock: Clock, logger: Logger
) -> tuple[Transport, bool]:
    """Return a transport that listens, and whether it serves HTTP beside gRPC."""
    url = listen_url(settings.listen_addr, is_tls=tls is not None)
    notices = Notices(logger, clock).add
    kind = settings.transport
    if kind == "native" or (kind == "auto" and native.is_available()):
        options = native.NativeOptions(
            request_bytes_max=_REQUEST_BYTES_MAX,
            concurrent_streams_max=settings.max_concurrent_streams,
            keepalive_min_s=settings.keepalive_min_time_s,
            keepalive_interval_s=settings.keepalive_interval_s,
            keepalive_timeout_s=settings.keepalive_timeout_s,
            tls=tls,
            serves_http=True,
        )
        return native.NativeTransport([url], SERVED, options, notices), True
    from kvstore.transport.grpcio.server import GrpcOptions, GrpcTransport

    grpc_options = GrpcOptions(
        request_bytes_max=_REQUEST_BYTES_MAX,
        concurrent_streams_max=settings.max_concurrent_streams,
        keepalive_min_s=settings.keepalive_min_time_s,
        keepalive_interval_s=settings.keepalive_interval_s,
        keepalive_timeout_s=settings.keepalive_timeout_s,
        tls=tls,
    )
    return GrpcTransport([url], SERVED, grpc_options, notices), False


def _serve_metrics(
    settings: GrpcProxySettings,
    tls: TlsOptions | None,
    pages: PageRouter,
    side: SideLoop,
    logger: Logger,
) -> None:
    if not settings.metrics_addr:
        return
    server, url = listen(settings.metrics_addr, pages.serve, logger, _metrics_tls(tls))
    logger.info("gRPC proxy listening for metrics", address=url)
    side.run(server.run(), f"http {url}")
    logger.info("gRPC proxy server metrics URL serving")


def _metrics_tls(tls: TlsOptions | None) -> PeerTls:
    if tls is None:
        return PeerTls()
    return PeerTls(
        cert_file=tls.cert_file,
        key_file=tls.key_file,
        trusted_ca_file=tls.trusted_ca_file,
        crl_file=tls.crl_file,
        min_version=tls.min_version,
        max_version=tls.max_version,
        cipher_suites=tls.cipher_suites,
    )


def _page_tls(tls: ClientTls) -> PeerTls:
    """Return the TLS settings with which an endpoint's pages are fetched."""
    return PeerTls(
        cert_file=tls.cert_file,
        key_file=tls.key_file,
        trusted_ca_file=tls.trusted_ca_file,
        is_self_signed=tls.is_unverified,
    )
