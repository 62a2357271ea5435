"""`kvstore gateway start`: endpoints found and checked, then the relay until a signal.

It understands nothing of what it relays. A gateway that would relay to its own address does not
start.
"""

import asyncio
import signal
import socket
import sys
from typing import Final

from kvstore.errors import ConfigError
from kvstore.logger import Logger
from kvstore.proxy.endpoints import discover, without_scheme
from kvstore.proxy.gateway.remotes import Remotes
from kvstore.proxy.gateway.tcp_relay import TcpRelay, new_dice
from kvstore.proxy.go_flags import Values
from kvstore.runtime.log.log import open_log
from kvstore.runtime.systemd import notify_ready
from kvstore.server.discovery.dns import Service

_BACKLOG: Final = 1024
_PORT_MAX: Final = 65535


def run(values: Values) -> int:
    """Relay until told to stop; ConfigError if it cannot begin."""
    logger = open_log(("default",), "info", "json")
    logger.info("Running: ", args=sys.argv)
    services = _services(values, logger)
    address = str(values["listen-addr"])
    _refuse_itself(address, services)
    if not services:
        raise ConfigError("no endpoints found")
    listening = _listen(address)
    delay_ns = values["retry-delay"]
    assert isinstance(delay_ns, int)
    relay = TcpRelay(listening, Remotes(services, new_dice()), delay_ns / 1e9, logger)
    notify_ready(logger)
    asyncio.run(_until_told(relay, logger))
    return 0


async def _until_told(relay: TcpRelay, logger: Logger) -> None:
    task = asyncio.create_task(relay.run(), name="gateway")

    def stop(number: int) -> None:
        logger.info("received signal; shutting down", signal=signal.Signals(number).name)
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop, number)
    try:
        await task
    except asyncio.CancelledError:
        return


def _services(values: Values, logger: Logger) -> list[Service]:
    found = discover(values, str(values["trusted-ca-file"]), logger).services
    if found:
        return found
    endpoints = values["endpoints"]
    assert isinstance(endpoints, tuple)
    services = []
    for endpoint in without_scheme(endpoints):
        host, port = _split(endpoint)
        if not port.isascii() or not port.isdigit() or int(port) > _PORT_MAX:
            raise ConfigError(f'error parsing endpoint "{endpoint}"')
        services.append(Service(host, int(port), 0, 0))
    return services


def _split(endpoint: str) -> tuple[str, str]:
    host, colon, port = endpoint.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    if not colon or (":" in host and not is_bracketed):
        raise ConfigError(f'error parsing endpoint "{endpoint}"')
    return (host[1:-1] if is_bracketed else host), port


def _refuse_itself(address: str, services: list[Service]) -> None:
    """Refuse an endpoint that is the address to listen on, or a host that is none."""
    try:
        host, port = _split(address)
    except ConfigError:
        raise ConfigError(f"failed to validate listen address: {address}") from None
    own = _addresses(host, "failed to resolve listen host:")
    for service in services:
        theirs = _addresses(service.target, "failed to resolve endpoint host:")
        if str(service.port) != port:
            continue
        for each in sorted(theirs & own):
            place = f"{service.target}:{service.port}"
            raise ConfigError(
                f"SRV or endpoint ({place}->{each}:{service.port}) should not resolve to the "
                f"gateway listen addr ({address})"
            )


def _addresses(host: str, failure: str) -> set[str]:
    try:
        found = socket.getaddrinfo(host.rstrip("."), None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise ConfigError(f"{failure} {host}") from None
    return {str(each[4][0]) for each in found}


def _listen(address: str) -> socket.socket:
    host, port = _split(address)
    try:
        family, kind, protocol, _, name = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"listen tcp {address}: {error.strerror}") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(name)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise ConfigError(f"listen tcp {address}: {error.strerror}") from None
    return listening
