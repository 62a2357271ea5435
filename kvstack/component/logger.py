"""The interface of the operator's log; `kvstack.component.line_log.line_logger` implements it."""

from typing import Protocol


class Logger(Protocol):
    """The operator's log: one message with fields a line."""

    def debug(self, msg: str, **fields: object) -> None:
        """Log details for debugging."""
        ...

    def info(self, msg: str, **fields: object) -> None:
        """Log a normal event."""
        ...

    def warning(self, msg: str, **fields: object) -> None:
        """Log an unusual event that does not stop the service."""
        ...

    def error(self, msg: str, **fields: object) -> None:
        """Log a failure."""
        ...
