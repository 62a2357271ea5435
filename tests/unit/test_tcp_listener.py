"""The server that tests use leaves no connection behind, whenever one comes."""

import asyncio
import gc
import socket
import warnings

import pytest

from tests.support.network.tcp_listener import TcpListener


async def _hold(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await reader.read()


@pytest.mark.parametrize("rounds", range(5))
def test_connections_that_come_while_it_closes(rounds: int) -> None:
    clients = [socket.socket() for _ in range(20)]

    async def main() -> None:
        async with TcpListener(_hold) as listener:
            for each in clients:
                each.connect(("127.0.0.1", listener.port))
            for _ in range(rounds):
                await asyncio.sleep(0)
        assert listener.connections == 20 or rounds < 3

    gc.collect()  # what other tests left is not this one's
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        asyncio.run(main())
        gc.collect()
    for each in clients:
        each.close()
    assert [str(each.message) for each in found] == []


def test_what_a_connection_s_code_raises_is_reported() -> None:
    async def fail(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        raise ValueError("wrong")

    async def main() -> None:
        async with TcpListener(fail) as listener:
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            assert await reader.read() == b""
            writer.close()

    with pytest.raises(BaseExceptionGroup) as raised:
        asyncio.run(main())
    assert [str(each) for each in raised.value.exceptions] == ["wrong"]
