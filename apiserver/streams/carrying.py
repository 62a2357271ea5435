"""Upgraded connections: the bytes of both sides, until one of them ends."""

import asyncio
from typing import Final

from kvstack.apiserver.http.answers import Reply
from kvstack.apiserver.streams.backends import Streams
from kvstack.apiserver.streams.http_answer import HttpAnswer
from kvstore.http.serving.answer import Upgraded
from kvstore.http.serving.request import ClientGoneError, Request

_PIECE: Final = 64 << 10
_OWN_HEADERS: Final = frozenset(("connection", "upgrade"))


def wants_upgrade(request: Request) -> bool:
    """Tell whether a client asks for another protocol."""
    return request.may_upgrade and bool(request.header("upgrade"))


async def carry(answer: HttpAnswer, backend: Streams, reply: Reply) -> None:
    """Carry bytes both ways, after a backend has answered 101."""
    headers = [each for each in answer.headers if each[0].lower() not in _OWN_HEADERS]
    client = reply.upgrade(answer.header("upgrade"), headers)
    reader, writer = backend
    both = (
        asyncio.create_task(_to_backend(client, writer), name="stream to a backend"),
        asyncio.create_task(_to_client(reader, client), name="stream from a backend"),
    )
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in both:
            task.cancel()
        for found in await asyncio.gather(*both, return_exceptions=True):
            if isinstance(found, Exception) and not isinstance(found, OSError):
                raise found
        client.close()


async def _to_backend(client: Upgraded, writer: asyncio.StreamWriter) -> None:
    while data := await client.read():
        writer.write(data)
        await writer.drain()


async def _to_client(reader: asyncio.StreamReader, client: Upgraded) -> None:
    try:
        while data := await reader.read(_PIECE):
            await client.write(data)
    except ClientGoneError:
        return
