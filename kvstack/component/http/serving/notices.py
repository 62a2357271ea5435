"""The log levels of a server's notices.

Most are about one connection, and any client can cause any number of them. Those about the
process's descriptors come at intervals, and operators need to see them.
"""

from typing import Final

from kvstack.component.logger import Logger

OF_DESCRIPTORS: Final = (
    "cannot accept connections: ",
    "connections closed that had sent nothing",
    "no connections are accepted while",
)
"""The beginnings of notices about a lack of descriptors, in both transports."""


def log_notice(logger: Logger, notice: str) -> None:
    """Log a server's notice about its connections."""
    if notice.startswith(OF_DESCRIPTORS):
        logger.warning(notice)
    else:
        logger.debug(notice)
