"""Notifying systemd that the server is ready, as units of Type=notify need.

    NOTIFY_SOCKET=/run/systemd/notify        a datagram socket; a name after @ is an abstract one

Without the variable nothing is done. A failure is logged and does not stop the server: the unit has
its own start timeout.
"""

import os
import socket
from typing import Final

from kvstack.component.logger import Logger

VARIABLE: Final = "NOTIFY_SOCKET"


def notify_ready(logger: Logger) -> None:
    """Notify systemd that clients are being served."""
    address = os.environ.get(VARIABLE)
    if not address:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
            out.connect("\0" + address[1:] if address.startswith("@") else address)
            out.sendall(b"READY=1")
    except OSError as error:
        logger.warning("failed to notify systemd for readiness", error=str(error))
