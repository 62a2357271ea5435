"""The process of a server: one member, its signals, its log and the settings of the process.

configuration ─► log ─► member (`server.member`) ─► exit code
"""

import os
from contextlib import ExitStack

from kvstack.component.clock import SystemClock
from kvstack.component.line_log.line_logger import LineLogger, capture_library_logs, open_logger
from kvstack.component.process.allocator import FreedMemory, keep_freed_memory
from kvstack.component.process.collector import keep_collections_short
from kvstack.component.process.signals import call_on_stop_signal
from kvstack.component.process.systemd import notify_ready
from kvstore.config.model import Config
from kvstore.failpoints import VARIABLES as FAILPOINTS_VARIABLES
from kvstore.runtime.driver import Driver
from kvstore.runtime.memory_lock import lock_memory
from kvstore.server.boot.member_address import GATE, local_address_of
from kvstore.server.boot.state import open_disk
from kvstore.server.client_port import check_port
from kvstore.server.member import Host, Running, run_member
from kvstore.server.start_fields import start_fields


def run(config: Config) -> int:
    """Run a server until it is stopped; return the process's exit code."""
    logger = open_logger(
        config.log_outputs, config.log_level, config.log_format, config.log_rotation
    )
    capture_library_logs(logger)
    _announce(config, logger)
    check_port(config)
    with ExitStack() as running:
        if any(name in os.environ for name in FAILPOINTS_VARIABLES):
            # Here, because it loads an HTTP server that other starts do not need.
            from kvstore.server.failpoints import from_environment

            if (stop_failpoints := from_environment(os.environ)) is not None:
                running.callback(stop_failpoints)
        if config.memory_mlock:
            lock_memory()
        clock = SystemClock()
        run_member(open_disk(config, clock, logger), clock, logger, _host(logger))
    logger.info("closed the server", name=config.name, data_dir=config.data_dir)
    logger.close()
    return 0


def _host(logger: LineLogger) -> Host:
    def on_driver(driver: Driver) -> None:
        call_on_stop_signal(driver.stop, logger)

    def on_ready(_running: Running) -> None:
        keep_freed_memory()
        keep_collections_short()
        notify_ready(logger)

    return Host(
        on_driver=on_driver,
        on_parts=keep_collections_short,
        on_ready=on_ready,
        on_freed=FreedMemory().add,
    )


def _announce(config: Config, logger: LineLogger) -> None:
    logger.info("starting a server", **start_fields(config))
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
