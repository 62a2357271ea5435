"""Reading a page over plain HTTP."""

import asyncio
from urllib.parse import urlsplit


async def get(url: str) -> tuple[int, bytes]:
    """Return the code and the body of a page."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    head = f"GET {parts.path or '/'} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    writer.write(head.encode())
    async with asyncio.timeout(60):
        answer, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(answer.split()[1]), body
