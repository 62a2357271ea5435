"""The HTTP server on a loop: bytes that clients do not take, and the end of their answers."""

import asyncio
from dataclasses import replace

import pytest

from kvstack.component.http.serving.answer import PIECE_BYTES, Answer
from kvstack.component.http.serving.listeners import ListenerLimits
from kvstack.component.http.serving.request import Request
from tests.support.http.clients import Client, H2Client, Stream, TornError
from tests.support.http.serving import WAIT_S, WAYS, Way, echo, run, serving, until

EVERY_WAY = pytest.mark.parametrize("way", WAYS)
MIB = 1 << 20
LARGE = b"x" * (32 * MIB)
STALL = ListenerLimits(write_stall_timeout_s=0.6)
LONG_STALL_S = 2.0  # a client that reads must be able to, on a busy machine


class Large:
    """Answers `/large` whole with LARGE, `/pieces` in pieces, `/idle` never, all others at once."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.answers: list[Answer] = []
        self.ended: list[str] = []

    async def __call__(self, request: Request, answer: Answer) -> None:
        target = request.target
        if target == "/large":
            answer.send(200, [], LARGE[: 16 * MIB], LARGE[16 * MIB :])
        elif target == "/pieces":
            answer.start(200, [])
            try:
                for at in range(0, len(LARGE), PIECE_BYTES):
                    await answer.write_piece(LARGE[at : at + PIECE_BYTES])
            finally:
                self.ended.append(target)
            answer.finish()
        elif target == "/idle":
            answer.start(200, [], endless=True)
            await answer.write(b"begun")
            await answer.closing()
        else:
            await echo(request, answer)
        self.answers.append(answer)
        if answer.when_written(lambda: self.written.append(target)):
            return
        self.written.append(f"{target} at once")


async def widen(client: Client) -> None:
    """Let a connection of HTTP/2 carry more than one stream's window."""
    if isinstance(client, H2Client):
        client.h2.increment_flow_control_window(MIB)
        await client.flush()


async def torn(stream: Stream) -> None:
    """Read until an answer breaks off."""
    with pytest.raises(TornError):
        [_ async for _ in stream.pieces()]


@EVERY_WAY
def test_an_answer_is_written_when_the_client_has_taken_it(way: Way) -> None:
    handler = Large()

    async def scenario() -> None:
        async with (
            serving(handler, portable=way.portable) as under,
            way.connect(under.url) as client,
            way.connect(under.url, auto_credit=False) as other,
        ):
            reply = await client.ask("GET", "/large")
            assert reply.body == LARGE
            await until(lambda: handler.written == ["/large"])
            reply = await client.ask("GET", "/pieces")
            assert reply.body == LARGE
            await until(lambda: len(handler.written) == 2)
            stream = await other.open("GET", "/large")
            await stream.head()
            for _ in range(3):
                await client.ask("GET", "/small")
            assert len(handler.written) == 2 + 3
            answer = handler.answers[2]
            (unsent,) = under.server.unsent([answer])
            assert unsent > len(LARGE) // 2
            await other.close()
            await until(lambda: len(handler.written) == 6)
            assert handler.written[-1] == "/large"
            assert under.server.unsent([answer]) == [0]

    run(scenario())


@EVERY_WAY
def test_head_holds_nothing(way: Way) -> None:
    handler = Large()

    async def scenario() -> None:
        async with (
            serving(handler, portable=way.portable) as under,
            way.connect(under.url) as client,
        ):
            reply = await client.ask("HEAD", "/large")
            assert (reply.header("content-length"), reply.body) == (str(len(LARGE)), b"")
            assert handler.written == ["/large at once"]

    run(scenario())


@EVERY_WAY
def test_pieces_are_made_as_they_are_read(way: Way) -> None:
    made = 0
    gone = asyncio.Event()

    async def handle(request: Request, answer: Answer) -> None:
        nonlocal made
        answer.start(200, [])
        try:
            while True:
                await answer.write_piece(b"x" * PIECE_BYTES)
                made += PIECE_BYTES
                (unsent,) = answer.transport.unsent([answer.call])
                assert unsent <= 4 * PIECE_BYTES
        finally:
            gone.set()

    async def scenario() -> None:
        async with serving(handle, portable=way.portable) as under:
            async with way.connect(under.url, auto_credit=False) as client:
                stream = await client.open("GET", "/")
                await stream.head()
                before = -1
                while before != made:  # until the kernel's buffers, too, are full
                    before = made
                    await asyncio.sleep(0.2)
                assert made < 24 * MIB
            await asyncio.wait_for(gone.wait(), WAIT_S)

    run(scenario())


@pytest.mark.parametrize("target", ["/large", "/pieces"])
@EVERY_WAY
def test_an_answer_is_cut_at_once(way: Way, target: str) -> None:
    """In HTTP/2 alone: others of the connection go on."""
    handler = Large()
    begun: list[Answer] = []

    async def handle(request: Request, answer: Answer) -> None:
        begun.append(answer)
        await handler(request, answer)

    async def scenario() -> None:
        async with (
            serving(handle, portable=way.portable) as under,
            way.connect(under.url, auto_credit=False) as client,
        ):
            await widen(client)
            stream = await client.open("GET", target)
            await stream.head()
            begun[0].cut()
            await torn(stream)
            if target == "/large":
                await until(lambda: handler.written == [target])
            else:
                await until(lambda: handler.ended == [target])
            await until(lambda: under.server.open_count == 0)
            assert under.server.unsent(begun) == [0]
            if isinstance(client, H2Client):
                assert (await client.ask("GET", "/small")).status == 200

    run(scenario())


@pytest.mark.parametrize("target", ["/large", "/pieces"])
@EVERY_WAY
def test_an_answer_that_is_not_taken_is_ended(way: Way, target: str) -> None:
    """In HTTP/2 alone: others of the connection go on, and one with nothing to send, too."""
    handler = Large()

    async def scenario() -> None:
        async with (
            serving(handler, portable=way.portable, limits=STALL) as under,
            way.connect(under.url, auto_credit=False) as client,
            way.connect(under.url) as other,
        ):
            await widen(client)
            idle = await other.open("GET", "/idle")
            assert await idle.read() == b"begun"
            beside = None
            if isinstance(client, H2Client):
                beside = await client.open("GET", "/idle")
                assert await beside.read() == b"begun"
            stream = await client.open("GET", target)
            await stream.head()
            if isinstance(client, H2Client):
                await torn(stream)
                assert (await client.ask("GET", "/small")).status == 200
            if target == "/large":
                await until(lambda: target in handler.written)
            else:
                await until(lambda: handler.ended == [target])
            await until(lambda: under.notices)
            assert under.server.open_count == (1 if beside is None else 2)
            under.server.close_endless()
            assert await idle.read() == b""
            if beside is not None:
                assert await beside.read() == b""

    run(scenario())


@pytest.mark.parametrize("way", WAYS[1:2])
def test_who_reads_slowly_is_not_ended(way: Way) -> None:
    """By windows of HTTP/2: the kernel says late that a little of a socket's buffer is free."""
    handler = Large()

    async def scenario() -> None:
        async with (
            serving(
                handler,
                portable=way.portable,
                limits=replace(STALL, write_stall_timeout_s=LONG_STALL_S),
            ) as under,
            way.connect(under.url) as client,
        ):
            stream = await client.open("GET", "/pieces")
            await stream.head()
            size, begin_s = 0, asyncio.get_running_loop().time()
            while piece := await stream.read():
                size += len(piece)
                if asyncio.get_running_loop().time() - begin_s < 1.5 * LONG_STALL_S:
                    await asyncio.sleep(0.05)
            assert size == len(LARGE)
            assert not under.notices

    run(scenario())
