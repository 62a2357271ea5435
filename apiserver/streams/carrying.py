"""Upgraded connections: copying in both directions until one side ends."""

import asyncio
from typing import Final

from kvstack.apiserver.http.answers import Reply
from kvstack.component.http.serving.answer import Upgraded
from kvstack.component.http.serving.request import ClientGoneError, Request
from kvstack.component.http.streamed_answer import StreamedAnswer

_OWN_HEADERS: Final = frozenset(("connection", "upgrade"))


def wants_upgrade(request: Request) -> bool:
    """Return whether a client requests a protocol upgrade."""
    return request.may_upgrade and bool(request.header("upgrade"))


async def carry(answer: StreamedAnswer, reply: Reply) -> None:
    """Copy bytes in both directions, after a backend has answered 101."""
    headers = [each for each in answer.fields if each[0].lower() not in _OWN_HEADERS]
    client = reply.upgrade(answer.header("upgrade"), headers)
    both = (
        asyncio.create_task(_to_backend(client, answer), name="stream to a backend"),
        asyncio.create_task(_to_client(answer, client), name="stream from a backend"),
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


async def _to_backend(client: Upgraded, answer: StreamedAnswer) -> None:
    while data := await client.read():
        await answer.write(data)


async def _to_client(answer: StreamedAnswer, client: Upgraded) -> None:
    try:
        while data := await answer.read():
            await client.write(data)
    except ClientGoneError:
        return
