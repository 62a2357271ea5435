"""A request on a connection of its own: a single one, a stream, or an upgrade.

answer = await ask_on(sock, "GET", "/logs", "10.0.0.7:10250", head_lines(headers))
async with answer: …                                            the connection is closed then

The socket is one of `dialling`; it does not block, and belongs to the answer from now on.
"""

import asyncio
import socket

from kvstack.component.http.answers import AnswerReader
from kvstack.component.http.connection import Connection
from kvstack.component.http.request_head import Body, is_chunked, request_head
from kvstack.component.http.streamed_answer import StreamedAnswer


async def ask_on(
    sock: socket.socket,
    method: str,
    target: str,
    host: str,
    lines: str,
    body: Body = None,
    *,
    is_upgrade: bool = False,
) -> StreamedAnswer:
    """Return an answer once its head is there, to be closed by the caller.

    host: the Host of the request, unless the header lines have one; body, is_upgrade: see
    `HttpClient.open`. Raises AnswerError and OSError.
    """
    head = request_head(method, target, host, lines, body)
    connection = Connection(asyncio.get_running_loop(), sock, lambda _: None)
    answer = StreamedAnswer(connection, connection.close)
    reader = AnswerReader(is_streamed=True, is_head=method == "HEAD", is_upgrade=is_upgrade)
    try:
        await answer.begin(head, body, reader, is_chunked=is_chunked(lines, body))
    except BaseException:
        await answer.end_sending()
        connection.close()
        raise
    return answer
