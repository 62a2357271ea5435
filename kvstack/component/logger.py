"""The interface of the operator's log; `kvstore.runtime.log` implements it."""

from typing import Protocol


class Logger(Protocol):
    """The operator's log: one message with fields a line."""

    def debug(self, msg: str, **fields: object) -> None:
        """Log what is needed only to find an error."""
        ...

    def info(self, msg: str, **fields: object) -> None:
        """Log what an operator wants to know."""
        ...

    def warning(self, msg: str, **fields: object) -> None:
        """Log what is unusual but does not stop the service."""
        ...

    def error(self, msg: str, **fields: object) -> None:
        """Log what failed."""
        ...
