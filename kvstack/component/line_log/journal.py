"""The systemd journal as an output of the log: one datagram a line, its level as priority.

    MESSAGE=<the line>   PRIORITY=6   PACKAGE=<folder of the caller>   SYSLOG_IDENTIFIER=kvstore

The socket's protocol is NAME=value, or, if the value may contain a line end, NAME, its length and
the value.
"""

import os
import socket
import struct
import sys
from typing import Final

from kvstack.component.errors import ConfigError

SOCKET_PATH: Final = "/run/systemd/journal/socket"
_PRIORITIES: Final = {"debug": 7, "info": 6, "warn": 4, "error": 3}  # anything else: critical
_CRITICAL: Final = 2


class Journal:
    """Sends lines to the journal."""

    def __init__(self, path: str = SOCKET_PATH) -> None:
        """Connect; ConfigError if there is no journal."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            self._socket.connect(path)
        except OSError as error:
            self._socket.close()
            raise ConfigError(
                f"--log-outputs systemd/journal: no journal at {path}: {error.strerror}"
            ) from None
        self._name = os.path.basename(sys.argv[0]) or "kvstore"

    def write(self, level: str, caller: str, line: bytes) -> None:
        """Send a line; OSError if the journal does not accept it immediately."""
        text = line.removesuffix(b"\n")
        fields = (
            f"PRIORITY={_PRIORITIES.get(level, _CRITICAL)}\n"
            f"PACKAGE={os.path.dirname(caller)}\nSYSLOG_IDENTIFIER={self._name}\n"
        )
        self._socket.send(
            b"MESSAGE\n" + struct.pack("<Q", len(text)) + text + b"\n" + fields.encode()
        )

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
