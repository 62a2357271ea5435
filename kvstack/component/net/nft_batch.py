"""Transactions of nftables over netlink, without the program `nft` and what it reads before each.

    Batches(2).send([Message(NEW_RULE, CREATE, data)])    all of them or none; raises BatchError
    has_rules(2, "kube-proxy", "services")                whether a chain has rules; raises OSError

The kernel carries a batch out while it is sent: when `send` returns, its answers are there. It
answers each message that it refuses; the last one is asked to answer in any case, so that silence
is not taken for success. A socket belongs to the network namespace of the thread that opens it. It
stays open: the kernel lets whoever closes one wait until what was deleted is freed, 10 to 20 ms.
"""

import errno
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from kvstack.component.net.netlink_attributes import error_code, message, messages, text_attribute

NEW_CHAIN, DELETE_CHAIN = 3, 5
NEW_RULE, GET_RULES, DELETE_RULES = 6, 7, 8
NEW_SET, DELETE_SET = 9, 11
NEW_ELEMENTS, DELETE_ELEMENTS = 12, 14
CREATE: Final = 0x400
APPEND: Final = 0x800
BATCH_BYTES_MAX: Final = 64 << 20

_NETFILTER: Final = 12
_NFTABLES: Final = 10
_BEGIN, _END = 0x10, 0x11
_ACKNOWLEDGE, _DUMP = 4, 0x300
_ERROR, _DONE = 2, 3
_FAMILY_HEAD: Final = struct.Struct(">BBH")
_SOL_NETLINK: Final = 270
_SHORT_ANSWERS: Final = 10
_SEND_BUFFER_FORCE: Final = 32
_RECEIVE_BYTES: Final = 1 << 17
_TIMEOUT_S: Final = 30.0


class Message(NamedTuple):
    """One step of a batch."""

    kind: int
    flags: int
    attributes: bytes


class BatchError(Exception):
    """The kernel refused a batch: at which message (None: none of them), and why."""

    def __init__(self, at: int | None, reason: str) -> None:
        """Take the number of the message."""
        super().__init__(reason if at is None else f"message {at}: {reason}")
        self.at = at
        self.reason = reason


class Batches:
    """Sends batches, one at a time."""

    def __init__(self, family: int) -> None:
        """The socket is opened by the first batch."""
        self._family = family
        self._socket: socket.socket | None = None

    def send(self, messages: Sequence[Message]) -> None:
        """Carry out all messages, or none; raises BatchError."""
        if not messages:
            return
        data = _batch(self._family, messages)
        if len(data) > BATCH_BYTES_MAX:
            raise BatchError(None, f"{len(data)} bytes: above {BATCH_BYTES_MAX}")
        try:
            it = self._opened()
            _make_room(it, 2 * len(data))
            it.send(data)
            _read_answers(it, len(messages))
        except OSError as error:
            self.close()
            raise BatchError(None, error.strerror or str(error)) from error
        except BatchError:
            self.close()  # and with it answers that nobody read
            raise

    def close(self) -> None:
        """Close the socket; another batch opens one again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _opened(self) -> socket.socket:
        if self._socket is None:
            self._socket = _opened()
            self._socket.setblocking(False)
            self._socket.setsockopt(_SOL_NETLINK, _SHORT_ANSWERS, 1)
        return self._socket


def has_rules(family: int, table: str, chain: str) -> bool:
    """Whether a chain is there, with rules; raises OSError."""
    about = text_attribute(1, table) + text_attribute(2, chain)
    asked = message(_NFTABLES << 8 | GET_RULES, _DUMP, 0, _FAMILY_HEAD.pack(family, 0, 0) + about)
    found = False
    with _opened() as it:
        it.send(asked)
        while True:
            for kind, _, payload in messages(it.recv(_RECEIVE_BYTES)):
                if kind == _DONE:
                    return found
                if kind == _ERROR:
                    code = error_code(payload)
                    if code in (0, errno.ENOENT):
                        return found
                    raise OSError(code, os.strerror(code))
                found = True


def _opened() -> socket.socket:
    it = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETFILTER)
    it.settimeout(_TIMEOUT_S)
    return it


def _make_room(it: socket.socket, size: int) -> None:
    """Let a socket send so many bytes at once; in a user namespace up to the kernel's limit."""
    try:
        it.setsockopt(socket.SOL_SOCKET, _SEND_BUFFER_FORCE, size)
    except PermissionError:
        it.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)


def _batch(family: int, messages: Sequence[Message]) -> bytes:
    """Return messages as the kernel reads them, numbered from 1."""
    limit, head = _FAMILY_HEAD.pack(0, 0, _NFTABLES), _FAMILY_HEAD.pack(family, 0, 0)
    found = [message(_BEGIN, 0, 0, limit)]
    for number, (kind, flags, about) in enumerate(messages, 1):
        asks = flags | _ACKNOWLEDGE if number == len(messages) else flags
        found.append(message(_NFTABLES << 8 | kind, asks, number, head + about))
    found.append(message(_END, 0, len(messages) + 1, limit))
    return b"".join(found)


def _read_answers(it: socket.socket, last: int) -> None:
    """Read all answers to a batch; raises BatchError with the first refusal."""
    is_done = False
    for number, code in _answers(it):
        if code:
            at = number - 1 if 0 < number <= last else None
            raise BatchError(at, os.strerror(code))
        is_done = is_done or number == last
    if not is_done:
        raise BatchError(None, "the kernel did not answer")


def _answers(it: socket.socket) -> Iterator[tuple[int, int]]:
    """Give the numbers of messages that were answered, and the kernel's error codes."""
    while True:
        try:
            data = it.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        yield from ((number, error_code(p)) for kind, number, p in messages(data) if kind == _ERROR)
