"""One member: from its state to turns that serve clients, until it is stopped and closed.

    state ─► parts ─► node ─► ready ─► transport ─► loop ─► drained ─► node and state closed

Clients are accepted once the member has joined: there is a leader, all of the log is applied and it
contains the member's own name. When the member is stopped, it transfers leadership, accepts no new
calls, answers those that were admitted, commits the database and closes the log.

A process runs one member (`server.run`) or several (`kvstore.embed`). What belongs to a process and
not to a member (signals, the collector, the allocator, systemd) is done by the `Host`.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from kvstack.component import crate
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger
from kvstore.node.parts import Parts
from kvstore.node.turn import Node
from kvstore.peers.network import PeerNetwork
from kvstore.runtime.driver import Driver, Port
from kvstore.runtime.side_loop import SideLoop
from kvstore.server.auth.password_tasks import PasswordTasks
from kvstore.server.auth.tokens import keys_of
from kvstore.server.boot.assemble import build
from kvstore.server.boot.state import State
from kvstore.server.client_port import ClientPort, open_port
from kvstore.server.concurrency.services import Services
from kvstore.server.metrics.assembly import observe
from kvstore.server.metrics.gatherer import Gatherer
from kvstore.server.metrics.observer import MetricsObserver
from kvstore.server.metrics.page import MetricsPage
from kvstore.server.pages.service import Extras, PageService
from kvstore.server.peering.network import open_network
from kvstore.server.ui.guard import Guard
from kvstore.server.ui.status_page import StatusPage
from kvstore.storage.lmdb.backend import LmdbBackend
from kvstore.transport.native import NativeTransport


class Running(NamedTuple):
    """A member that serves."""

    driver: Driver
    node: Node
    parts: Parts
    port: ClientPort | None  # None: it has no client port
    side: SideLoop
    pages: PageService


def _nothing(*_arguments: object) -> None:
    return None


class Host(NamedTuple):
    """What the process does for a member; all callbacks run in the member's thread."""

    on_driver: Callable[[Driver], None] = _nothing
    """Called before the first turn, with the driver, whose stop() stops the member."""
    on_parts: Callable[[], None] = _nothing
    """Called when the state is loaded."""
    on_ready: Callable[[Running], None] = _nothing
    """Called when clients are accepted."""
    on_freed: Callable[[int], None] = _nothing
    """Called with the bytes of large entries that were dropped from memory."""
    ports: Sequence[Port] = ()
    """Ports beside the client port, which are drained with it."""
    has_peers: bool = True
    """Whether to listen for other members."""
    has_port: bool = True
    """Whether to listen for clients."""


def run_member(state: State, clock: Clock, logger: Logger, host: Host) -> None:
    """Serve until stopped, then close the state; the turns run in the calling thread."""
    booted, config = state.booted, state.config
    if config.transport != "grpcio" and crate.encode_entries is not None:
        booted.wal.encode_entries = crate.encode_entries
        if crate.ROW_SUMS is not None and isinstance(booted.backend, LmdbBackend):
            booted.backend.use_checksums_of(crate.ROW_SUMS)
    try:
        parts = build(config, booted, state.snapshots, clock, logger)
        parts.limits.is_rebuilt = state.is_rebuilt
        if state.room is not None:
            parts.host.room = state.room
        parts.host.on_freed = host.on_freed
        host.on_parts()
        with ExitStack() as beside:
            node = _serve(state, parts, clock, logger, host, beside)
        node.close(clock.monotonic_ns())
    except BaseException:
        state.abandon()
        raise
    state.close()


def _serve(
    state: State, parts: Parts, clock: Clock, logger: Logger, host: Host, beside: ExitStack
) -> Node:
    """Run turns until stopped; what runs beside them is registered in the stack."""
    config = state.config
    side = SideLoop(lambda: driver.wake(), logger)
    network = None
    if host.has_peers and state.paths is not None:
        network = open_network(
            config, parts, state.paths, side, lambda text: driver.stop_as_removed(text), logger
        )
        beside.callback(network.stop)
        parts.replication.peers = network
    node = Node(parts)
    driver = Driver(node, state.streams, clock, logger)
    host.on_driver(driver)
    side.on_service = Services(side.client, side).serve
    passwords = PasswordTasks(driver.wake, keys_of(parts.state.auth.tokens))
    beside.callback(passwords.stop)
    for source in (network, side, passwords):
        if source is not None:
            driver.attach(source)
    if config.tracing.is_enabled:
        from kvstore.server.tracing import tracing_of

        tracing = tracing_of(config)
        beside.callback(tracing.close)
        driver.attach(tracing)
    side.start()
    beside.callback(side.stop)
    pages, observer = _pages(state, parts, node, driver, side, network, clock, logger)
    if network is not None:
        network.start(driver.wake)
    pages.start_metrics()
    driver.run_until_ready()
    if driver.is_stopping:
        return node
    port = None
    if host.has_port:
        port = open_port(config, node.methods, logger)
        if isinstance(port.transport, NativeTransport) and isinstance(
            parts.replication.peers, PeerNetwork
        ):
            port.transport.sleep_with(parts.replication.peers.ready)
        observer.slow_requests.peer_of = port.transport.peer_of
        pages.start_clients(by_port=port.serves_http)
    _announce_ready(parts, port, logger)
    host.on_ready(Running(driver, node, parts, port, side, pages))
    driver.serve(
        port.transport if port else None, parts.limits.request_timeout_ns, [pages, *host.ports]
    )
    return node


def _pages(
    state: State,
    parts: Parts,
    node: Node,
    driver: Driver,
    side: SideLoop,
    network: PeerNetwork | None,
    clock: Clock,
    logger: Logger,
) -> tuple[PageService, MetricsObserver]:
    """Make the pages and their sources; nothing is served yet."""
    config, booted = state.config, state.booted
    gatherer = Gatherer(driver.wake)
    observer = observe(config, parts, booted.wal, booted.backend, state.streams, clock, gatherer)
    observer.take_answered = side.client.take_answered
    driver.set_observer(observer)
    if network is not None:
        observer.sources.peers = lambda: network.counters
    guard = Guard(side.client, lambda: parts.state.auth.enabled, clock)
    status = StatusPage(observer, gatherer, guard)
    side.run(status.keep_history(), "history")
    extras = Extras(
        MetricsPage(observer.sources, gatherer),
        status.handlers(is_debugging=config.log_level == "debug"),
        cluster_version=lambda: parts.state.membership.cluster_version or "not_decided",
        is_auth_enabled=lambda: parts.state.auth.enabled,
    )
    pages = PageService(config, side, node.methods, logger, extras)
    observer.sources.health = pages.counts
    return pages, observer


def _announce_ready(parts: Parts, port: ClientPort | None, logger: Logger) -> None:
    logger.info(
        "ready to serve client requests",
        member_id=f"{parts.member_id:x}",
        cluster_id=f"{parts.cluster_id:x}",
        revision=parts.state.store.revision,
        applied_index=parts.raft.applied,
    )
    if port is not None:
        for url in port.urls + port.http_urls:
            logger.info("serving client traffic", address=url, transport=port.kind)
