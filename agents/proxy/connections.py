"""Connections that the kernel remembers (conntrack, over netlink): those of UDP that lead astray.

    stale(flows, frontends)     pure: which of them
    delete_stale(4, frontends)  asks the kernel, and deletes them; returns how many; raises OSError
    await FlowCleaner(logger).clean(served, view)     of ports that have changed

A UDP flow goes on as its first packet went: to an endpoint that is gone, or untranslated because
there was none yet. It is deleted, so that its next packet is looked at again. TCP ends by itself.
"""

import asyncio
import os
import socket
import struct
import time
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address
from typing import Final, NamedTuple

from kvstack.agents.proxy.choice import Served
from kvstack.agents.proxy.cluster_view import ClusterView
from kvstack.agents.proxy.services import Family
from kvstack.component.logger import Logger
from kvstack.component.metrics.histograms import Histogram, exponential
from kvstack.component.net.netlink_attributes import (
    NESTED,
    attribute,
    attributes,
    error_code,
    message,
    messages,
)

_NETFILTER: Final = 12
_GET, _DELETE = 0x0101, 0x0102
_ACK, _DUMP = 4, 0x300
_ERROR, _DONE = 2, 3
_ORIGINAL, _REPLY, _ADDRESSES, _PROTOCOL = 1, 2, 1, 2
_BUFFER: Final = 1 << 18
_TIMEOUT_S: Final = 10.0
_BOUNDS: Final = exponential(0.001, 2, 15)


class Tuple(NamedTuple):
    """One direction of a flow."""

    source: str
    target: str
    source_port: int
    target_port: int


class Flow(NamedTuple):
    """A flow of UDP."""

    original: Tuple
    reply: Tuple
    raw: bytes
    """The kernel's form of the original direction."""


class Frontends(NamedTuple):
    """Where ports of UDP are reached, and the endpoints (ip:port) that answer there."""

    addresses: dict[tuple[str, int], set[str]]
    node_ports: dict[int, set[str]]


def frontends(changed: Iterable[Served], view: ClusterView) -> Frontends:
    """Return those of the ports that have changed."""
    found = Frontends({}, {})
    for served in changed:
        port = served.port
        if port.name.protocol != "UDP":
            continue
        answering = view.answering(port.name)
        for address in (port.cluster_ip, *port.external_ips, *port.balancer_ips):
            found.addresses[address, port.port] = answering
        if port.node_port and answering:
            found.node_ports[port.node_port] = answering
    return found


def stale(flows: Iterable[Flow], where: Frontends) -> Iterator[Flow]:
    """Give the flows to a frontend that are answered by none of its endpoints."""
    for flow in flows:
        original, reply = flow.original, flow.reply
        answering = where.addresses.get((original.target, original.target_port))
        if answering is None:
            answering = where.node_ports.get(original.target_port)
        if answering is not None and _text(reply.source, reply.source_port) not in answering:
            yield flow


def delete_stale(family: Family, where: Frontends) -> int:
    """Delete what leads astray; return how many flows; raises OSError."""
    if not where.addresses and not where.node_ports:
        return 0
    kind = socket.AF_INET if family == 4 else socket.AF_INET6
    count = 0
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETFILTER) as it:
        it.settimeout(_TIMEOUT_S)
        for flow in list(stale(_flows(it, kind), where)):
            body = struct.pack("=BBH", kind, 0, 0) + attribute(_ORIGINAL | NESTED, flow.raw)
            try:
                list(_ask(it, _DELETE, _ACK, body))
            except FileNotFoundError:
                continue  # it ended by itself
            count += 1
    return count


class FlowCleaner:
    """Deletes the flows of one family that lead astray, and counts them."""

    def __init__(self, logger: Logger) -> None:
        """Nothing is deleted yet."""
        self.seconds: Final = Histogram(_BOUNDS)
        """Of each look for such flows."""
        self.deleted = 0
        self._logger = logger

    async def clean(self, served: Iterable[Served], view: ClusterView) -> None:
        """Delete the flows that lead astray to ports that have changed."""
        where = frontends(served, view)
        began_s = time.perf_counter()
        try:
            count = await asyncio.to_thread(delete_stale, view.family, where)
        except OSError as error:
            self._logger.warning("flows of UDP to old endpoints were kept", reason=str(error))
            return
        self.seconds.add(time.perf_counter() - began_s)
        self.deleted += count
        if count:
            self._logger.debug("flows of UDP to old endpoints were deleted", count=count)


def _flows(it: socket.socket, kind: int) -> Iterator[Flow]:
    for payload in _ask(it, _GET, _DUMP, struct.pack("=BBH", kind, 0, 0)):
        given = dict(attributes(payload[4:]))
        original, reply = given.get(_ORIGINAL), given.get(_REPLY)
        if original is None or reply is None:
            continue
        one, two = _tuple(original), _tuple(reply)
        if one is not None and two is not None:
            yield Flow(one, two, original)


def _tuple(data: bytes) -> Tuple | None:
    """Return one direction; None: it is not of UDP."""
    parts = dict(attributes(data))
    protocol = dict(attributes(parts.get(_PROTOCOL, b"")))
    if protocol.get(1) != bytes((socket.IPPROTO_UDP,)):
        return None
    addresses: Mapping[int, bytes] = dict(attributes(parts.get(_ADDRESSES, b"")))
    source, target = (addresses.get(each) or addresses[each + 2] for each in (1, 2))
    ports = [int.from_bytes(protocol[each], "big") for each in (2, 3)]
    return Tuple(str(ip_address(source)), str(ip_address(target)), *ports)


def _ask(it: socket.socket, kind: int, flags: int, body: bytes) -> Iterator[bytes]:
    it.send(message(kind, flags, 0, body))
    while True:
        for got, _, payload in messages(it.recv(_BUFFER)):
            if got == _DONE:
                return
            if got == _ERROR:
                if code := error_code(payload):
                    raise OSError(code, os.strerror(code))
                return
            yield payload


def _text(ip: str, port: int) -> str:
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
