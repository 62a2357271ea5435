"""From a configuration to a running server, and back down again.

    data directory ─► boot (log, database, identity) ─► parts ─► node ─► ready ─► transport ─► loop

Clients are let in once the member has joined: there is a leader, all of the log is applied and the
member's own name is in it. On SIGTERM leadership is handed over, no new work is taken, what was
admitted is answered, the database is committed and the log closed.
"""

import gc
import os
from contextlib import ExitStack
from pathlib import Path

from kvstore.config.log_rotation import parse_rotation
from kvstore.config.model import Config
from kvstore.errors import DataDirError
from kvstore.failpoints import VARIABLES as FAILPOINTS_VARIABLES
from kvstore.node.parts import Parts
from kvstore.node.turn import Node
from kvstore.peers.network import PeerNetwork
from kvstore.runtime.allocator import keep_freed_memory
from kvstore.runtime.clock import Clock, SystemClock
from kvstore.runtime.collector import keep_collections_short
from kvstore.runtime.driver import Driver
from kvstore.runtime.log.log import Log, capture_library_logs, open_log
from kvstore.runtime.memory_lock import lock_memory
from kvstore.runtime.side_loop import SideLoop
from kvstore.runtime.systemd import notify_ready
from kvstore.server.auth.password_tasks import PasswordTasks
from kvstore.server.auth.tokens import keys_of
from kvstore.server.boot.assemble import build
from kvstore.server.boot.bootstrap import Boot, boot
from kvstore.server.boot.data_dir import DataDir, prepare
from kvstore.server.boot.founding import founding_of
from kvstore.server.boot.member_address import GATE, local_address_of
from kvstore.server.boot.start_defragment import defragment_at_start
from kvstore.server.client_port import check_port, open_port
from kvstore.server.concurrency.services import Services
from kvstore.server.metrics.assembly import observe
from kvstore.server.metrics.gatherer import Gatherer
from kvstore.server.metrics.observer import MetricsObserver
from kvstore.server.metrics.page import MetricsPage
from kvstore.server.pages.service import Extras, HttpService
from kvstore.server.peering.network import open_network
from kvstore.server.snapshot_streams import SnapshotStreams
from kvstore.server.ui.guard import Guard
from kvstore.server.ui.status_page import StatusPage
from kvstore.storage.files import OsFiles, UnsyncedFiles
from kvstore.transport import native
from kvstore.transport.native import NativeTransport
from kvstore.types import CLUSTER_VERSION, SERVER_VERSION


def run(config: Config) -> int:
    """Run a server until it is told to stop; return the process's exit code."""
    logger = _open_log(config)
    capture_library_logs(logger)
    _announce(config, logger)
    check_port(config)
    with ExitStack() as running:
        if any(name in os.environ for name in FAILPOINTS_VARIABLES):
            # With an HTTP server of its own, of which no other start has a use.
            from kvstore.server.failpoints import from_environment

            if (stop_failpoints := from_environment(os.environ)) is not None:
                running.callback(stop_failpoints)
        _live(config, logger)
    logger.info("closed the server", name=config.name, data_dir=config.data_dir)
    logger.close()
    return 0


def _live(config: Config, logger: Log) -> None:
    """Boot, serve until stopped, close."""
    clock = SystemClock()
    wal_dir = Path(config.wal_dir) if config.wal_dir else None
    root = Path(config.data_dir)
    places = prepare(root, wal_dir, logger)
    if config.values["memory-mlock"]:
        lock_memory()
    if config.values["auto-tls"] or config.values["peer-auto-tls"]:
        from kvstore.server.boot.self_cert import with_made_certificates

        config = with_made_certificates(config, root, clock.unix_s(), logger)
    files = UnsyncedFiles() if config.unsafe_no_fsync else OsFiles()
    if config.values["discovery-token"]:
        gc.enable()  # the others may be waited for without end
    is_rebuilt = False
    if config.values["rebuild-from-peers"]:
        from kvstore.server.boot.rebuild import rebuild

        is_rebuilt = rebuild(places, config, logger, files)
    booted = boot(places, founding_of(config, logger), logger, files=files)
    if config.transport != "grpcio" and native.encode_entries is not None:
        booted.wal.encode_entries = native.encode_entries
    try:
        threshold_megabytes = int(str(config.values["bootstrap-defrag-threshold-megabytes"]))
        defragment_at_start(booted.backend, threshold_megabytes, logger)
        parts = build(config, booted, places, clock, logger, files)
        parts.limits.is_rebuilt = is_rebuilt
        keep_collections_short()
        with ExitStack() as beside:
            node = _run(config, booted, parts, places, clock, logger, beside)
        node.close(clock.monotonic_ns())
        booted.backend.close()
    except BaseException:
        # A commit here would lack the index its rows stand for, and the log would repeat them.
        booted.backend.abandon()
        raise
    finally:
        booted.wal.close()


def _run(
    config: Config,
    booted: Boot,
    parts: Parts,
    places: DataDir,
    clock: Clock,
    logger: Log,
    beside: ExitStack,
) -> Node:
    """Take turns until stopped; what runs beside them is entered in the stack."""
    side = SideLoop(lambda: driver.wake(), logger)
    network = open_network(config, parts, places, side, lambda text: driver.end(text), logger)
    beside.callback(network.stop)
    parts.peers = network
    node = Node(parts)
    streams = _snapshot_streams(places)
    driver = Driver(node, streams, clock, logger)
    driver.catch_signals()
    side.on_service = Services(side.client, side).serve
    passwords = PasswordTasks(driver.wake, keys_of(parts.auth.tokens))
    beside.callback(passwords.stop)
    for source in (network, side, passwords):
        driver.attach(source)
    if config.values.get("enable-distributed-tracing"):
        from kvstore.server.tracing import tracing_of

        tracing = tracing_of(config)
        beside.callback(tracing.close)
        driver.attach(tracing)
    side.start()
    beside.callback(side.stop)
    gatherer = Gatherer(driver.wake)
    observer = observe(config, parts, booted.wal, booted.backend, streams, clock, gatherer)
    observer.take_answered = side.client.take_answered
    driver.set_observer(observer)
    observer.sources.peers = lambda: network.counters
    guard = Guard(side.client, lambda: parts.auth.enabled, clock)
    status = StatusPage(observer, gatherer, guard)
    side.run(status.keep_history(), "history")
    extras = Extras(
        MetricsPage(observer.sources, gatherer),
        status.handlers(is_debugging=config.log_level == "debug"),
        cluster_version=lambda: parts.membership.cluster_version or "not_decided",
        is_auth_enabled=lambda: parts.auth.enabled,
    )
    pages = HttpService(config, side, node.methods, logger, extras)
    observer.sources.health = pages.counts
    network.start(driver.wake)
    _serve(config, node, driver, parts, logger, pages, observer)
    return node


def _snapshot_streams(places: DataDir) -> SnapshotStreams:
    try:
        return SnapshotStreams(places.member, places.tmp)
    except OSError as error:
        raise DataDirError(f"cannot use {places.tmp}: {error.strerror}") from error


def _announce(config: Config, logger: Log) -> None:
    logger.info(
        "starting a server",
        version=SERVER_VERSION,
        cluster_version=CLUSTER_VERSION,
        name=config.name,
        data_dir=config.data_dir,
        listen_client_urls=list(config.listen_client_urls),
    )
    if config.feature_gates[GATE]:
        urls = list(config.initial_advertise_peer_urls)
        if address := local_address_of(config):
            logger.info("setting member local address", LocalAddr=address)
        else:
            logger.warning(
                "unable to set a member local address due to lack of suitable local addresses",
                advertise_peer_urls=urls,
            )
    for warning in config.warnings:
        logger.warning(warning)
    if config.ineffective:
        logger.warning("these settings have no effect here", settings=config.ineffective)


def _open_log(config: Config) -> Log:
    rotation = None
    if config.values["enable-log-rotation"]:
        rotation = parse_rotation(str(config.values["log-rotation-config-json"]))
    return open_log(config.log_outputs, config.log_level, config.log_format, rotation)


def _serve(
    config: Config,
    node: Node,
    driver: Driver,
    parts: Parts,
    logger: Log,
    pages: HttpService,
    observer: MetricsObserver,
) -> None:
    pages.start_metrics()
    driver.become_ready()
    if driver.is_stopping:
        return
    port = open_port(config, node.methods, logger)
    if isinstance(port.transport, NativeTransport) and isinstance(parts.peers, PeerNetwork):
        port.transport.sleep_with(parts.peers.ready)
    observer.slow_requests.peer_of = port.transport.peer_of
    pages.start_clients(by_port=port.serves_http)
    keep_freed_memory()
    keep_collections_short()
    logger.info(
        "ready to serve client requests",
        member_id=f"{parts.member_id:x}",
        cluster_id=f"{parts.cluster_id:x}",
        revision=parts.store.revision,
        applied_index=parts.raft.applied,
    )
    for url in port.urls + port.http_urls:
        logger.info("serving client traffic", address=url, transport=port.kind)
    notify_ready(logger)
    driver.serve(port.transport, parts.limits.request_timeout_ns, [pages])
