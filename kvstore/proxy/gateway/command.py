"""`kvstore gateway start`: endpoints found and checked, then relayed to until a signal.

The relayed bytes are not looked at. A gateway that would relay to its own address does not start.
"""

import asyncio
import random
import socket
import sys
from typing import Final, NamedTuple

from kvstack.component.errors import ConfigError
from kvstack.component.line_log.line_logger import open_logger
from kvstack.component.logger import Logger
from kvstack.component.net.listening import listen_tcp
from kvstack.component.process.signals import call_on_stop_signal
from kvstack.component.process.systemd import notify_ready
from kvstore.config.flag_reader import FlagReader
from kvstore.config.values import split_host_port
from kvstore.proxy.endpoints import SrvSettings, discover, without_scheme
from kvstore.proxy.flags.go_flags import Values
from kvstore.proxy.gateway.remotes import Remotes
from kvstore.proxy.gateway.tcp_relay import TcpRelay
from kvstore.server.discovery.dns import Service

_BACKLOG: Final = 1024


class GatewaySettings(NamedTuple):
    """The flags of the command."""

    listen_addr: str
    endpoints: tuple[str, ...]
    srv: SrvSettings
    retry_delay_s: float


def read_settings(values: Values) -> GatewaySettings:
    """Return the settings of the flags' values."""
    read = FlagReader(values)
    return GatewaySettings(
        listen_addr=read.text("listen-addr"),
        endpoints=read.texts("endpoints"),
        srv=SrvSettings(
            read.text("discovery-srv"),
            read.text("discovery-srv-name"),
            read.text("discovery-dns-server"),
            read.text("trusted-ca-file"),
            read.switch("insecure-discovery"),
        ),
        retry_delay_s=read.seconds("retry-delay"),
    )


def run(values: Values) -> int:
    """Relay until stopped; ConfigError if it cannot start."""
    settings = read_settings(values)
    logger = open_logger(("default",), "info", "json")
    logger.info("Running: ", args=sys.argv)
    services = _services(settings, logger)
    _refuse_itself(settings.listen_addr, services)
    if not services:
        raise ConfigError("no endpoints found")
    listening = _listen(settings.listen_addr)
    remotes = Remotes(services, random.SystemRandom())
    relay = TcpRelay(listening, remotes, settings.retry_delay_s, logger)
    notify_ready(logger)
    asyncio.run(_run_until_stopped(relay, logger))
    return 0


async def _run_until_stopped(relay: TcpRelay, logger: Logger) -> None:
    task = asyncio.create_task(relay.run(), name="gateway")
    loop = asyncio.get_running_loop()

    def stop() -> None:
        loop.call_soon_threadsafe(task.cancel)

    call_on_stop_signal(stop, logger)
    try:
        await task
    except asyncio.CancelledError:
        return


def _services(settings: GatewaySettings, logger: Logger) -> list[Service]:
    found = discover(settings.srv, logger).services
    if found:
        return found
    services = []
    for endpoint in without_scheme(settings.endpoints):
        try:
            host, port = split_host_port(endpoint, endpoint)
        except ValueError:
            raise ConfigError(f'error parsing endpoint "{endpoint}"') from None
        services.append(Service(host, port, 0, 0))
    return services


def _refuse_itself(address: str, services: list[Service]) -> None:
    """Refuse an endpoint that is the address to listen on, or whose host has no address."""
    host, port = _split(address)
    own = _addresses(host, "failed to resolve listen host:")
    for service in services:
        theirs = _addresses(service.target, "failed to resolve endpoint host:")
        if service.port != port:
            continue
        for each in sorted(theirs & own):
            place = f"{service.target}:{service.port}"
            raise ConfigError(
                f"SRV or endpoint ({place}->{each}:{service.port}) should not resolve to the "
                f"gateway listen addr ({address})"
            )


def _split(address: str) -> tuple[str, int]:
    try:
        return split_host_port(address, address)
    except ValueError:
        raise ConfigError(f"failed to validate listen address: {address}") from None


def _addresses(host: str, failure: str) -> set[str]:
    try:
        found = socket.getaddrinfo(host.rstrip("."), None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise ConfigError(f"{failure} {host}") from None
    return {str(each[4][0]) for each in found}


def _listen(address: str) -> socket.socket:
    host, port = _split(address)
    try:
        return listen_tcp(host, port, _BACKLOG)
    except OSError as error:
        raise ConfigError(f"listen tcp {address}: {error.strerror}") from None
