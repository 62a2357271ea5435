"""The end of a test's own connection."""

import asyncio
import contextlib


async def hang_up(writer: asyncio.StreamWriter) -> None:
    """Reset a connection, and wait until it is closed.

    One with TLS that is only told to close waits for the other side, and is still open when the
    loop ends.
    """
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
