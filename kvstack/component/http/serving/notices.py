"""At which level a server's notices are logged.

Most tell of one connection: whoever reaches the port can cause any number of them. Those that tell
of the process's descriptors come at intervals, and an operator has to know of them.
"""

from typing import Final

from kvstack.component.logger import Logger

OF_DESCRIPTORS: Final = (
    "cannot accept connections: ",
    "connections closed that had sent nothing",
    "no connections are accepted while",
)
"""How notices begin that tell of a lack of descriptors, in both transports."""


def log_notice(logger: Logger, notice: str) -> None:
    """Log what a server reports of its connections."""
    if notice.startswith(OF_DESCRIPTORS):
        logger.warning(notice)
    else:
        logger.debug(notice)
