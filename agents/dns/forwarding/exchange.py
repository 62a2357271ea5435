"""One question to one resolver: over UDP, over TCP if the answer is longer.

Each question has a socket of its own, and with it a random port; what comes from elsewhere, or does
not repeat id and question, is not the answer.
"""

import asyncio
import secrets
import socket
from struct import Struct
from typing import Final, NamedTuple

import dns.exception
from dns import flags, rcode
from dns.message import Message, from_wire
from dns.name import Name

from kvstack.agents.dns.prepared import OPTIONS
from kvstack.agents.dns.query import labels_of

DATAGRAM_BYTES_MAX: Final = 4096
STREAM_BYTES_MAX: Final = 16_384
"""The maximum size of an answer over TCP."""
STRAYS_MAX: Final = 100
"""The maximum of stray datagrams before the resolver is given up."""
_RD, _CD = 0x0100, 0x0010
_HEADER: Final = Struct("!HHHHHH")
_KIND: Final = Struct("!HH")
_LENGTH: Final = Struct("!H")


class Question(NamedTuple):
    """A question to other resolvers."""

    name: bytes
    """In wire format, in lower case."""
    kind: int
    wants_dnssec: bool = False
    checking_disabled: bool = False

    def wire(self, ident: int, *, has_options: bool = True) -> bytes:
        """Return the query."""
        told = _RD | (_CD if self.checking_disabled else 0)
        head = _HEADER.pack(ident, told, 1, 0, 0, 1 if has_options else 0)
        options = OPTIONS[self.wants_dnssec] if has_options else b""
        return head + self.name + _KIND.pack(self.kind, 1) + options


class Resolver(NamedTuple):
    """The address of a resolver."""

    host: str
    port: int = 53


class ExchangeError(Exception):
    """A resolver gave no answer that can be used."""


async def ask(resolver: Resolver, question: Question, timeout_s: float) -> Message:
    """Return the answer of a resolver, whatever its code is; raises ExchangeError."""
    try:
        async with asyncio.timeout(timeout_s):
            answer = await _over_udp(resolver, question, has_options=True)
            if answer.rcode() in (rcode.FORMERR, rcode.NOTIMP):  # as of one that knows no OPT
                answer = await _over_udp(resolver, question, has_options=False)
            if answer.flags & flags.TC:
                answer = await _over_tcp(resolver, question)
            return answer
    except TimeoutError as error:
        raise ExchangeError(f"no answer within {timeout_s:g} s") from error
    except OSError as error:
        raise ExchangeError(error.strerror or str(error)) from error


async def _over_udp(resolver: Resolver, question: Question, *, has_options: bool) -> Message:
    loop = asyncio.get_running_loop()
    family = socket.AF_INET6 if ":" in resolver.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as asking:
        asking.setblocking(False)
        asking.connect((resolver.host, resolver.port))  # from a port that the system draws
        ident = secrets.randbits(16)
        await loop.sock_sendall(asking, question.wire(ident, has_options=has_options))
        for _ in range(STRAYS_MAX):
            data = await loop.sock_recv(asking, DATAGRAM_BYTES_MAX)
            found = _answer(data, ident, question)
            if found is not None:
                return found
    raise ExchangeError(f"{STRAYS_MAX} datagrams that are not answers")


async def _over_tcp(resolver: Resolver, question: Question) -> Message:
    reader, writer = await asyncio.open_connection(resolver.host, resolver.port)
    try:
        ident = secrets.randbits(16)
        wire = question.wire(ident)
        writer.write(_LENGTH.pack(len(wire)) + wire)
        await writer.drain()
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > STREAM_BYTES_MAX:
            raise ExchangeError(f"an answer of {length} bytes, above {STREAM_BYTES_MAX}")
        answer = _answer(await reader.readexactly(length), ident, question)
    except asyncio.IncompleteReadError as error:
        raise ExchangeError("the answer broke off") from error
    finally:
        writer.transport.abort()
    if answer is None or answer.flags & flags.TC:
        raise ExchangeError("incomplete answer over TCP")
    return answer


def _answer(data: bytes, ident: int, question: Question) -> Message | None:
    """Return the answer that bytes are; None: they are none of this question."""
    if len(data) < _HEADER.size or int.from_bytes(data[:2], "big") != ident:
        return None
    try:
        # What was cut off may end within a record.
        message = from_wire(data, raise_on_truncation=False, continue_on_error=bool(data[2] & 2))
    except (dns.exception.DNSException, ValueError):
        return None
    asked = message.question[0] if len(message.question) == 1 else None
    if not message.flags & flags.QR or asked is None:
        return None
    is_same = asked.name == Name((*labels_of(question.name), b"")) and asked.rdtype == question.kind
    return message if is_same else None
