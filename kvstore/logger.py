"""What every part of the program logs to; `kvstore.runtime.log` implements it."""

from typing import Protocol


class Logger(Protocol):
    """The operator's log: one message with fields a line."""

    def debug(self, msg: str, **fields: object) -> None:
        """Say what only matters when hunting a fault."""
        ...

    def info(self, msg: str, **fields: object) -> None:
        """Say what an operator wants to know."""
        ...

    def warning(self, msg: str, **fields: object) -> None:
        """Say what is odd but can be lived with."""
        ...

    def error(self, msg: str, **fields: object) -> None:
        """Say what failed."""
        ...
