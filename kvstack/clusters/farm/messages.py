"""What a farm, its templates and its clusters say to each other: JSON over a socket of packets.

ours, theirs = pair()
send(ours, {"fork": "c1"}, descriptor)
receive(theirs)                         → ({"fork": "c1"}, descriptor); None: the other is gone
"""

import socket
from typing import Any, Final, TypeAlias

import orjson

Message: TypeAlias = dict[str, Any]

BYTES_MAX: Final = 64 << 10


def pair() -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a connection."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(end: socket.socket, message: Message, descriptor: int = -1) -> None:
    """Send a message, and a copy of a descriptor with it; OSError: the other is gone."""
    data = orjson.dumps(message)
    if len(data) > BYTES_MAX:
        raise ValueError(f"a message of {len(data)} bytes, at most {BYTES_MAX}")
    if descriptor < 0:
        end.send(data)
    else:
        socket.send_fds(end, [data], [descriptor])


def receive(end: socket.socket) -> tuple[Message, int] | None:
    """Return the next message and its descriptor, -1 without one; None: the other is gone.

    BlockingIOError: nothing has come, of an end that does not block.
    """
    data, descriptors, _, _ = socket.recv_fds(end, BYTES_MAX, 1)
    if not data:
        return None
    message: Message = orjson.loads(data)
    return message, descriptors[0] if descriptors else -1
