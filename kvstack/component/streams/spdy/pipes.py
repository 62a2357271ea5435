"""The byte transport of a connection: a `StreamedAnswer` after 101, or a tunnel."""

from typing import Protocol


class Pipe(Protocol):
    """A bidirectional stream of bytes."""

    async def read(self) -> bytes:
        """Return the next bytes; empty when the other side sends no more."""
        ...

    async def write(self, data: bytes) -> None:
        """Send bytes; waits while too many are unsent. OSError."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...
