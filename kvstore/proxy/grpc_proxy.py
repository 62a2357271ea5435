"""`kvstore grpc-proxy start`: from flags to a running proxy, and back down again.

    flags ─► endpoints ─► side loop (upstream, services, pages) ─► port ─► until a signal

The port is the same as a member's, native or grpcio; with grpcio the pages need --metrics-addr.
"""

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from kvstore.errors import ConfigError
from kvstore.http.port_requests import PortRequests
from kvstore.http.site import Handler, Site
from kvstore.peers.tls import PeerTls
from kvstore.proxy.cluster_kv import ClusterKv
from kvstore.proxy.counts import Counts
from kvstore.proxy.endpoints import discover
from kvstore.proxy.go_flags import Values
from kvstore.proxy.grpc_settings import Settings, check, listen_url
from kvstore.proxy.kv import KvProxy
from kvstore.proxy.leases import LeaseProxy
from kvstore.proxy.leasing.leasing import LeasingKv
from kvstore.proxy.leasing.ownership import Ownership
from kvstore.proxy.members import ProxyMembers
from kvstore.proxy.namespace import Namespace
from kvstore.proxy.pages import ProxyPages
from kvstore.proxy.port_driver import PortDriver
from kvstore.proxy.service import SERVED, ProxyService
from kvstore.proxy.syncing import keep_in_step, read_in_order
from kvstore.proxy.upstream import Upstream
from kvstore.proxy.watch import WatchProxy
from kvstore.runtime.clock import SystemClock
from kvstore.runtime.log.log import Log, capture_library_logs, open_log
from kvstore.runtime.side_loop import SideLoop
from kvstore.runtime.systemd import notify_ready
from kvstore.server.boot.self_cert import provide
from kvstore.server.notices import Notices
from kvstore.server.pages.profiles import PREFIX as PROFILES
from kvstore.server.pages.profiles import Profiles
from kvstore.server.pages.service import listening
from kvstore.transport import native
from kvstore.transport.addresses import parse
from kvstore.transport.base import Transport
from kvstore.transport.grpcio.dial import DialTls, check_files
from kvstore.transport.tls import TlsOptions

CALLS_MAX: Final = 65_536  # calls and streams of all clients
_REQUEST_BYTES_MAX: Final = 4 << 20  # one message of a client; gRPC's own limit
_METRICS_TLS: Final = (
    "client TLS key/cert (--cert-file, --key-file) must be provided for metrics secure url"
)


def run(values: Values) -> int:
    """Serve until told to stop; ConfigError if it cannot begin."""
    settings = Settings(values)
    check(settings)
    logger = open_log(("default",), "debug" if values["debug"] else "info", "json")
    capture_library_logs(logger)
    logger.info("Running: ", args=sys.argv)
    check_files(settings.dial_tls)
    tls = _tls(settings, logger)
    endpoints = discover(values, settings.text("cacert"), logger).urls or list(
        settings.texts("endpoints")
    )
    if values["insecure-skip-tls-verify"]:
        logger.warning(
            "--insecure-skip-tls-verify was given, this grpc proxy process skips authentication "
            "of etcd server TLS certificates. This option should be enabled only for testing "
            "purposes."
        )
    with ExitStack() as running:
        _serve(settings, endpoints, tls, logger, running)
    address = settings.text("listen-addr")
    logger.info("stop listening gRPC proxy client requests", address=address)
    return 0


def _serve(
    settings: Settings,
    endpoints: Sequence[str],
    tls: TlsOptions | None,
    logger: Log,
    running: ExitStack,
) -> None:
    driver = PortDriver(logger)
    side = SideLoop(driver.wake, logger, tasks_max=CALLS_MAX)
    side.start()
    running.callback(side.stop)
    parts = side.submit(_build(settings, endpoints, tls, side, logger)).result()
    running.callback(lambda: side.submit(parts.close()).result())
    parts.begin(side)
    transport, serves_http = _open_port(settings, tls, logger)
    pages = Site(parts.handlers(settings))
    requests = PortRequests(side, pages.serve)
    side.on_request = requests.serve
    side.on_service = parts.service.serve

    def take_frames(
        frames: list[tuple[int, bytes]], half_closed: list[int], gone: list[int]
    ) -> None:
        parts.service.table.take_frames(frames)
        requests.take_frames(frames, half_closed, gone)

    side.on_frames = take_frames
    _serve_metrics(settings, tls, pages, side, logger)
    driver.catch_signals()
    address = settings.text("listen-addr")
    logger.info("listening for gRPC proxy client requests", address=address)
    if not serves_http and not settings.text("metrics-addr"):
        logger.warning("this transport serves gRPC alone: for pages set --metrics-addr")
    logger.info("ready to proxy client requests", endpoints=list(endpoints))
    logger.info("started gRPC proxy", address=address)
    notify_ready(logger)
    driver.serve(transport, side)


class ProxyParts:
    """What lives on the side loop."""

    def __init__(
        self, settings: Settings, endpoints: Sequence[str], side: SideLoop, logger: Log
    ) -> None:
        """Make everything; on the loop, as grpcio's channels belong to one."""
        counts = Counts()
        text = settings.text
        namespace = Namespace(text("namespace")) if text("namespace") else None
        self._settings = settings
        self._logger = logger
        self.upstream = Upstream(endpoints, settings.dial_tls, settings.dial_options, logger)
        is_ordered = bool(settings.values["experimental-serializable-ordering"])
        cluster = ClusterKv(self.upstream, namespace, is_ordered=is_ordered)
        self._leasing = self._own_keys(cluster, namespace)
        source = cluster if self._leasing is None else LeasingKv(cluster, *self._leasing)
        kv = KvProxy(source, counts)
        self.kv: Final = kv
        self._watch = WatchProxy(self.upstream, namespace, counts, logger)
        self._leases = LeaseProxy(self.upstream, logger)
        self._members = ProxyMembers(
            self.upstream,
            kv,
            namespace,
            logger,
            prefix=text("resolver-prefix"),
            address=text("advertise-client-url"),
            ttl_s=settings.number("resolver-ttl"),
        )
        self.service: Final = ProxyService(
            side,
            self.upstream,
            kv,
            self._watch,
            self._leases,
            self._members,
            namespace,
            counts,
            logger,
            is_logging=bool(settings.values["experimental-enable-grpc-logging"]),
        )
        self._itself = self._dial_itself()
        self._pages = ProxyPages(kv, self._itself, endpoints, _page_tls(settings), counts, logger)

    def _own_keys(
        self, cluster: ClusterKv, namespace: Namespace | None
    ) -> tuple[Ownership, Namespace] | None:
        """Return who owns keys, and under which prefix, if keys are to be owned."""
        text = self._settings.text("experimental-leasing-prefix")
        if not text:
            return None
        prefix = Namespace(text)
        return Ownership(self.upstream, cluster, prefix, namespace, self._logger), prefix

    def _dial_itself(self) -> Upstream | None:
        """Return the way to the advertised address, for the proxy's own health."""
        address = self._settings.text("advertise-client-url")
        if not address:
            return None
        # Who shows the certificate is this very process: nothing is to be verified.
        tls = DialTls(
            cert_file=self._settings.text("cert-file"),
            key_file=self._settings.text("key-file"),
            is_unverified=self._settings.is_tls,
        )
        return Upstream([address], tls, (), self._logger)

    def handlers(self, settings: Settings) -> dict[str, Handler]:
        """Return the pages by path."""
        pages = self._pages.handlers()
        if settings.values["enable-pprof"]:
            pages[PROFILES] = Profiles().serve
            self._logger.info("gRPC proxy enabled pprof", path=PROFILES.rstrip("/"))
        return pages

    def begin(self, side: SideLoop) -> None:
        """Begin what goes on beside the calls."""
        side.run(self.upstream.connect(), "connect")
        if self._leasing is not None:
            side.run(self._leasing[0].run(), "leasing")
        if self._settings.text("resolver-prefix"):
            side.run(self._members.stay_registered(), "registration")
            side.run(self._members.follow(), "proxies")
        interval_s = self._settings.seconds("endpoints-auto-sync-interval")
        if interval_s > 0:
            side.run(keep_in_step(self.upstream, interval_s, self._logger), "endpoints")

    async def close(self) -> None:
        """End the registration, the streams and the connections."""
        await self._members.leave()
        if self._leasing is not None:
            await self._leasing[0].close()
        await self._watch.close()
        await self._leases.close()
        await self.upstream.close()
        if self._itself is not None:
            await self._itself.close()


async def _build(
    settings: Settings,
    endpoints: Sequence[str],
    tls: TlsOptions | None,
    side: SideLoop,
    logger: Log,
) -> ProxyParts:
    parts = ProxyParts(settings, endpoints, side, logger)
    if settings.values["experimental-serializable-ordering"]:
        logger.info("waiting for linearized read from cluster to recover ordering")
        await read_in_order(parts.kv, logger)
    return parts


def _tls(settings: Settings, logger: Log) -> TlsOptions | None:
    """Return what clients are served with; a certificate is made if that is asked for."""
    if not settings.is_tls:
        return None
    text = settings.text
    cert_file, key_file = text("cert-file"), text("key-file")
    if not cert_file:
        directory = Path(text("data-dir")) / "fixtures" / "proxy"
        host = urlsplit(f"https://{text('listen-addr')}").hostname or ""
        years = settings.number("self-signed-cert-validity")
        try:
            cert_file, key_file = provide(directory, [host], years, SystemClock().unix_s(), logger)
        except OSError as error:
            raise ConfigError(
                f"cannot make a certificate in {directory}: {error.strerror or error}"
            ) from error
    tls = TlsOptions(
        cert_file=cert_file,
        key_file=key_file,
        trusted_ca_file=text("trusted-ca-file"),
        crl_file=text("client-crl-file"),
        min_version=text("tls-min-version"),
        max_version=text("tls-max-version"),
        cipher_suites=settings.texts("listen-cipher-suites"),
    )
    logger.info("gRPC proxy server TLS", **{"tls-info": repr(tls)})
    return tls


def _open_port(settings: Settings, tls: TlsOptions | None, logger: Log) -> tuple[Transport, bool]:
    """Return a transport that listens, and whether it hands over what is no gRPC."""
    url = listen_url(settings.text("listen-addr"), is_tls=tls is not None)
    notices = Notices(logger, SystemClock()).add
    kind = settings.text("transport")
    if kind == "native" or (kind == "auto" and native.is_available()):
        options = native.NativeOptions(
            request_bytes_max=_REQUEST_BYTES_MAX,
            concurrent_streams_max=settings.number("max-concurrent-streams"),
            keepalive_min_s=settings.seconds("grpc-keepalive-min-time"),
            keepalive_interval_s=settings.seconds("grpc-keepalive-interval"),
            keepalive_timeout_s=settings.seconds("grpc-keepalive-timeout"),
            tls=tls,
            serves_http=True,
        )
        return native.NativeTransport([url], SERVED, options, notices), True
    from kvstore.transport.grpcio.server import GrpcOptions, GrpcTransport

    grpc_options = GrpcOptions(
        request_bytes_max=_REQUEST_BYTES_MAX,
        concurrent_streams_max=settings.number("max-concurrent-streams"),
        keepalive_min_s=settings.seconds("grpc-keepalive-min-time"),
        keepalive_interval_s=settings.seconds("grpc-keepalive-interval"),
        keepalive_timeout_s=settings.seconds("grpc-keepalive-timeout"),
        tls=tls,
    )
    return GrpcTransport([url], SERVED, grpc_options, notices), False


def _serve_metrics(
    settings: Settings, tls: TlsOptions | None, pages: Site, side: SideLoop, logger: Log
) -> None:
    url = settings.text("metrics-addr")
    if not url:
        return
    address = parse(url, with_tls=True)
    if address.secure and tls is None:
        raise ConfigError(f"{url}: {_METRICS_TLS}")
    secured = None if tls is None or not address.secure else _peer_tls(tls)
    server, shown = listening(url, address, pages.serve, logger, secured, reuse_port=False)
    logger.info("gRPC proxy listening for metrics", address=shown)
    side.run(server.run(), f"http {shown}")
    logger.info("gRPC proxy server metrics URL serving")


def _peer_tls(tls: TlsOptions) -> PeerTls:
    return PeerTls(
        cert_file=tls.cert_file,
        key_file=tls.key_file,
        trusted_ca_file=tls.trusted_ca_file,
        crl_file=tls.crl_file,
        min_version=tls.min_version,
        max_version=tls.max_version,
        cipher_suites=tls.cipher_suites,
    )


def _page_tls(settings: Settings) -> PeerTls:
    """Return how an endpoint's pages are asked for."""
    return PeerTls(
        cert_file=settings.text("cert"),
        key_file=settings.text("key"),
        trusted_ca_file=settings.text("cacert"),
        is_self_signed=bool(settings.values["insecure-skip-tls-verify"]),
    )
