"""The process of a server: one member, the signals, the log, and what else a process has once.

configuration ─► log ─► member (`server.member`) ─► exit code
"""

import os
from contextlib import ExitStack

from kvstore.config.log_rotation import parse_rotation
from kvstore.config.model import Config
from kvstore.failpoints import VARIABLES as FAILPOINTS_VARIABLES
from kvstore.runtime.allocator import keep_freed_memory
from kvstore.runtime.clock import SystemClock
from kvstore.runtime.collector import keep_collections_short
from kvstore.runtime.driver import Driver
from kvstore.runtime.log.log import Log, capture_library_logs, open_log
from kvstore.runtime.memory_lock import lock_memory
from kvstore.runtime.systemd import notify_ready
from kvstore.server.boot.member_address import GATE, local_address_of
from kvstore.server.boot.state import open_disk
from kvstore.server.client_port import check_port
from kvstore.server.member import Host, Running, run_member
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
        if config.values["memory-mlock"]:
            lock_memory()
        clock = SystemClock()
        run_member(open_disk(config, clock, logger), clock, logger, _host(logger))
    logger.info("closed the server", name=config.name, data_dir=config.data_dir)
    logger.close()
    return 0


def _host(logger: Log) -> Host:
    def on_ready(_running: Running) -> None:
        keep_freed_memory()
        keep_collections_short()
        notify_ready(logger)

    return Host(on_driver=Driver.catch_signals, on_parts=keep_collections_short, on_ready=on_ready)


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
