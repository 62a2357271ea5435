"""Pages of servers that tell of static pods."""

from typing import Final

_TIMEOUT_S: Final = 10


async def page(url: str) -> bytes:
    """Return a page of a server; raises OSError."""
    # Loaded by the first page, since most nodes never ask for one.
    import aiohttp

    timeout = aiohttp.ClientTimeout(_TIMEOUT_S)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as answer:
            answer.raise_for_status()
            return await answer.read()
    except (aiohttp.ClientError, TimeoutError) as error:
        raise OSError(str(error)) from error
