"""The HTTP server on a loop: streamed answers, back-pressure, upgrades, fan-out, the end."""

import asyncio
import time
from typing import Any

import pytest

from kvstack.component.http.serving.answer import UNSENT_BYTES_MAX, Answer, State
from kvstack.component.http.serving.listeners import ListenerLimits
from kvstack.component.http.serving.request import ClientGoneError, Request
from tests.support.http.clients import H1Client, H2Client, Stream, TornError
from tests.support.http.serving import SERVERS, WAIT_S, WAYS, Way, run, serving, until
from tests.support.waiting import stands_still

EVERY_WAY = pytest.mark.parametrize("way", WAYS)
EVERY_SERVER = pytest.mark.parametrize("way", SERVERS)
MIB = 1 << 20


async def endless(request: Request, answer: Answer) -> None:
    answer.start(200, [("content-type", "text/x")], endless=True)
    await answer.write(b"begun")
    await answer.closing()
    await answer.write(b"over")


@EVERY_WAY
def test_a_streamed_answer_arrives_as_it_is_written(way: Way) -> None:
    steps: asyncio.Queue[bytes] = asyncio.Queue()

    async def handle(request: Request, answer: Answer) -> None:
        answer.start(201, [("x", "y")])
        while piece := await steps.get():
            await answer.write(piece)

    async def scenario() -> None:
        async with (
            serving(handle, portable=way.portable) as under,
            way.connect(under.url) as client,
        ):
            for _ in range(2):
                stream = await client.open("GET", "/")
                status, headers = await stream.head()
                assert (status, ("x", "y") in headers) == (201, True)
                for piece in (b"a", b"b" * 100_000, b"c"):
                    steps.put_nowait(piece)
                    seen = b""
                    while len(seen) < len(piece):
                        seen += await stream.read()
                    assert seen == piece
                steps.put_nowait(b"")
                assert await stream.read() == b""

    run(scenario())


@EVERY_WAY
def test_a_writer_waits_for_a_reader_that_does_not_read(way: Way) -> None:
    written = 0
    total = 64 * MIB

    async def handle(request: Request, answer: Answer) -> None:
        nonlocal written
        answer.start(200, [])
        while written < total:
            await answer.write(b"x" * 65_536)
            written += 65_536

    async def scenario() -> None:
        async with (
            serving(handle, portable=way.portable) as under,
            way.connect(under.url, auto_credit=False) as client,
        ):
            stream = await client.open("GET", "/")
            await stream.head()
            await stands_still(lambda: written)
            assert written < 24 * MIB, "the kernel's buffers and one answer's limit, no more"
            if isinstance(client, H2Client):
                client.auto_credit = True
                client.h2.acknowledge_received_data(65_535, 1)
                await client.flush()
            size = 0
            async for piece in stream.pieces():
                size += len(piece)
            if isinstance(client, H2Client):
                size = max(size, total)  # what was not credited is counted with the rest
            assert size >= total
            assert written == total

    run(scenario())


@EVERY_WAY
def test_a_client_that_sends_is_held_back_by_a_handler_that_does_not_read(way: Way) -> None:
    limits = ListenerLimits(window_bytes=128 << 10)
    read = 0
    go_on = asyncio.Event()

    async def handle(request: Request, answer: Answer) -> None:
        nonlocal read
        pieces = request.pieces()
        read += len(await anext(pieces))
        await go_on.wait()
        async for piece in pieces:
            read += len(piece)
        answer.send(200, [], str(read).encode())

    async def scenario() -> None:
        total = 48 * MIB
        async with (
            serving(handle, portable=way.portable, limits=limits) as under,
            way.connect(under.url) as client,
        ):
            stream = await client.open("POST", "/", has_body=True)
            sent = 0

            async def send() -> None:
                nonlocal sent
                while sent < total:
                    await stream.send(b"x" * 65_536)
                    sent += 65_536
                await stream.end()

            sending = asyncio.create_task(send())
            await stands_still(lambda: sent)
            assert sent < 24 * MIB, "the kernel's buffers and the window, no more"
            go_on.set()
            await sending
            assert (await stream.reply()).body == str(total).encode()

    run(scenario())


@EVERY_WAY
def test_one_whose_body_is_not_read_does_not_stop_its_connection(way: Way) -> None:
    if way.protocol != "h2":
        pytest.skip("HTTP/1.1 has one request at a time")
    go_on = asyncio.Event()

    async def handle(request: Request, answer: Answer) -> None:
        if request.target == "/slow":
            await go_on.wait()
        answer.send(200, [], str(len(await request.read(1 << 30))).encode())

    async def scenario() -> None:
        async with (
            serving(handle, portable=way.portable) as under,
            way.connect(under.url) as client,
        ):
            slow = [await client.open("POST", "/slow", has_body=True) for _ in range(20)]
            sending = [asyncio.create_task(each.send(b"x" * MIB)) for each in slow]
            await asyncio.sleep(0.2)
            assert not any(each.done() for each in sending)
            for _ in range(3):
                assert (await client.ask("PUT", "/", [], b"y" * 400_000)).body == b"400000"
            go_on.set()
            await asyncio.gather(*sending)
            for each in slow:
                await each.end()
                assert (await each.reply()).body == str(MIB).encode()

    run(scenario())


@EVERY_WAY
def test_a_client_that_leaves_cancels_its_handler(way: Way) -> None:
    cancelled: list[str] = []
    begun: list[Answer] = []

    async def handle(request: Request, answer: Answer) -> None:
        begun.append(answer)
        try:
            if request.target == "/reading":
                await request.read()
            elif request.target == "/streaming":
                answer.start(200, [])
                while True:
                    await answer.write(b"x" * 65_536)
            elif request.target == "/closing":
                await endless(request, answer)
            else:
                await asyncio.sleep(60)
        except asyncio.CancelledError:
            assert answer.is_disconnected
            answer.send(200) if answer.state is State.NONE else answer.finish()  # to nobody
            cancelled.append(request.target)
            raise

    async def cancelled_last(target: str) -> None:
        await until(lambda: cancelled[-1:] == [target])

    async def scenario() -> None:
        async with serving(handle, portable=way.portable) as under:
            for target in ("/sleeping", "/reading", "/streaming", "/closing"):
                async with way.connect(under.url, auto_credit=False) as client:
                    stream = await client.open("POST", target, has_body=target == "/reading")
                    await until(lambda: under.server.open_count)
                    await asyncio.sleep(0.05)
                    await stream.leave()
                    await cancelled_last(target)
                    await until(lambda: under.server.open_count == 0)

    run(scenario())


@EVERY_WAY
def test_another_task_of_a_gone_client_hears_of_it(way: Way) -> None:
    heard: list[str] = []

    async def handle(request: Request, answer: Answer) -> None:
        async def read() -> None:
            try:
                [_ async for _ in request.pieces()]
            except ClientGoneError:
                heard.append("reader")

        async def write() -> None:
            try:
                while True:
                    await answer.write(b"x" * 65_536)
            except ClientGoneError:
                heard.append("writer")

        answer.start(200, [])
        tasks = [asyncio.create_task(read()), asyncio.create_task(write())]
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.wait(tasks)

    async def scenario() -> None:
        async with (
            serving(handle, portable=way.portable) as under,
            way.connect(under.url, auto_credit=False) as client,
        ):
            stream = await client.open("POST", "/", has_body=True)
            await stream.head()
            await asyncio.sleep(0.2)
            await stream.leave()
            await until(lambda: sorted(heard) == ["reader", "writer"])
            await until(lambda: under.server.open_count == 0)

    run(scenario())


@EVERY_WAY
def test_an_answer_far_behind_is_torn_off(way: Way) -> None:
    over = asyncio.Event()

    async def handle(request: Request, answer: Answer) -> None:
        answer.start(200, [])
        try:
            while True:
                answer.write_now(b"x" * 65_536)
                await asyncio.sleep(0)
        finally:
            assert answer.is_disconnected
            over.set()

    async def scenario() -> None:
        limits = ListenerLimits(backlog_bytes_max=2 * MIB)
        async with (
            serving(handle, portable=way.portable, limits=limits) as under,
            way.connect(under.url, auto_credit=False) as client,
        ):
            stream = await client.open("GET", "/")
            await asyncio.wait_for(over.wait(), WAIT_S)
            with pytest.raises((TornError, TimeoutError)):
                async with asyncio.timeout(2):
                    [_ async for _ in stream.pieces()]

    run(scenario())


# Upgrades.


@pytest.mark.parametrize("token", ["SPDY/3.1", "websocket", "tcp", "made-up/0.1, other"])
@EVERY_SERVER
def test_any_upgrade_leads_to_raw_bytes_both_ways(way: Way, token: str) -> None:
    async def handle(request: Request, answer: Answer) -> None:
        assert request.may_upgrade
        assert request.header("upgrade") == token
        assert await request.read() == b""
        peer = answer.upgrade(token.partition(",")[0], [("X-Chosen", "v4")])
        while data := await peer.read():
            await peer.write(data[::-1])
        await peer.write(b"bye")
        peer.close()
        await asyncio.sleep(0)

    async def scenario() -> None:
        headers = [("connection", "Upgrade"), ("upgrade", token)]
        async with serving(handle, portable=way.portable) as under:
            for method in ("GET", "POST"):
                async with way.connect(under.url) as client:
                    assert isinstance(client, H1Client)
                    stream = await client.open(method, "/exec", headers)
                    status, answered = await stream.head()
                    assert status == 101
                    assert ("upgrade", token.partition(",")[0]) in answered
                    assert ("x-chosen", "v4") in answered
                    for data in (b"hello", b"\0\r\n\r\n\xff", b"x" * 10_000):
                        client.writer.write(data)
                        seen = b""
                        while len(seen) < len(data):
                            seen += await client.raw()
                        if len(data) < 1000:
                            assert seen == data[::-1]
                    client.writer.write_eof()
                    assert await client.raw() == b"bye"
                    assert await client.raw() == b""

    run(scenario())


@EVERY_SERVER
def test_bytes_that_come_with_the_request_belong_to_the_upgrade(way: Way) -> None:
    async def handle(request: Request, answer: Answer) -> None:
        await asyncio.sleep(0.02)
        peer = answer.upgrade("x")
        await peer.write(await peer.read())

    async def scenario() -> None:
        async with (
            serving(handle, portable=way.portable) as under,
            way.connect(under.url) as client,
        ):
            assert isinstance(client, H1Client)
            head = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n"
            client.writer.write(head + b"early")
            answer = b""
            while not answer.endswith(b"early"):
                answer += await asyncio.wait_for(client.reader.read(1000), WAIT_S)
            assert answer.startswith(b"HTTP/1.1 101 ")

    run(scenario())


@EVERY_SERVER
def test_an_upgrade_may_be_declined(way: Way) -> None:
    async def handle(request: Request, answer: Answer) -> None:
        assert request.may_upgrade == (request.target == "/")
        answer.send(400, [], b"no: " + await request.read())

    async def scenario() -> None:
        headers = [("connection", "Upgrade"), ("upgrade", "x")]
        async with serving(handle, portable=way.portable) as under:
            async with way.connect(under.url) as client:
                assert (await client.ask("GET", "/", headers)).body == b"no: "
            async with way.connect(under.url) as client:
                # With a body nobody could tell it from what comes after the upgrade.
                reply = await client.ask("POST", "/body", headers, b"some")
                assert (reply.status, reply.body) == (400, b"no: some")

    run(scenario())


@EVERY_SERVER
def test_an_upgraded_connection_is_held_back_both_ways(way: Way) -> None:
    written = 0
    go_on = asyncio.Event()

    async def handle(request: Request, answer: Answer) -> None:
        nonlocal written
        peer = answer.upgrade("x")
        if request.target == "/in":
            await go_on.wait()
            size = 0
            while data := await peer.read():
                size += len(data)
            await peer.write(b"%d" % size)
        else:
            while written < 64 * MIB:
                await peer.write(b"x" * 65_536)
                written += 65_536

    async def scenario() -> None:
        headers = [("connection", "Upgrade"), ("upgrade", "x")]
        async with serving(handle, portable=way.portable) as under:
            async with way.connect(under.url) as client:
                assert isinstance(client, H1Client)
                await (await client.open("GET", "/out", headers)).head()
                assert await stands_still(lambda: written) < 24 * MIB
                size = 0
                while data := await client.raw():
                    size += len(data)
                assert size == written == 64 * MIB
            async with way.connect(under.url) as client:
                assert isinstance(client, H1Client)
                await (await client.open("GET", "/in", headers)).head()
                sent = 0

                async def send() -> None:
                    nonlocal sent
                    while sent < 48 * MIB:
                        client.writer.write(b"y" * 65_536)
                        await client.writer.drain()
                        sent += 65_536
                    client.writer.write_eof()

                sending = asyncio.create_task(send())
                assert await stands_still(lambda: sent) < 24 * MIB
                go_on.set()
                await sending
                assert await client.raw() == b"%d" % (48 * MIB)

    run(scenario())


# The same bytes to many.


@EVERY_WAY
def test_one_event_goes_to_many_answers(way: Way) -> None:
    hub: dict[int, Answer] = {}

    async def handle(request: Request, answer: Answer) -> None:
        answer.start(200, [], endless=True)
        hub[answer.call] = answer
        try:
            await answer.closing()
        finally:
            del hub[answer.call]

    async def scenario() -> None:
        async with serving(handle, portable=way.portable) as under:
            streams: list[Stream] = []
            async with asyncio.TaskGroup() as group:
                release = asyncio.Event()

                async def hold() -> None:
                    async with way.connect(under.url) as client:
                        for _ in range(25 if way.protocol == "h2" else 1):
                            stream = await client.open("GET", "/")
                            await stream.head()
                            streams.append(stream)
                        await release.wait()

                for _ in range(4 if way.protocol == "h2" else 100):
                    group.create_task(hold())
                await until(lambda: len(streams) == len(hub) == 100)
                expected = b""
                for n in range(20):
                    event = b"%d," % n * (1 if n % 4 else 10_000)
                    assert under.server.write_all(hub.values(), event) == []
                    some = list(hub.values())[n]
                    some.write_now(b"")
                    expected += event
                    for stream in streams:
                        seen = b""
                        while len(seen) < len(event):
                            seen += await stream.read()
                        assert seen == event
                await streams[0].leave()
                await until(lambda: len(hub) == 99)
                assert under.server.write_all(hub.values(), b"last") == []
                for stream in streams[1:]:
                    if way.protocol == "h1" or stream is not streams[0]:
                        assert await stream.read() == b"last"
                release.set()

    run(scenario())


@EVERY_WAY
def test_order_is_kept_between_what_is_for_one_and_what_is_for_many(way: Way) -> None:
    async def scenario() -> None:
        server: list[Any] = []

        async def handle(request: Request, answer: Answer) -> None:
            answer.start(200, [])
            for n in range(10):
                await answer.write(b"a%d " % n)
                server[0].write_all([answer], b"b%d " % n)
                if n == 5:
                    await asyncio.sleep(0.01)

        async with serving(handle, portable=way.portable) as under:
            server.append(under.server)
            async with way.connect(under.url) as client:
                expected = b"".join(b"a%d b%d " % (n, n) for n in range(10))
                assert (await client.ask("GET", "/")).body == expected

    run(scenario())


@EVERY_WAY
def test_those_too_far_behind_are_reported(way: Way) -> None:
    hub: list[Answer] = []

    async def handle(request: Request, answer: Answer) -> None:
        answer.start(200, [], endless=True)
        hub.append(answer)
        await answer.closing()

    async def scenario() -> None:
        async with (
            serving(handle, portable=way.portable) as under,
            way.connect(under.url, auto_credit=False) as slow,
            way.connect(under.url) as quick,
        ):
            one, two = await slow.open("GET", "/"), None
            await one.head()
            two = await quick.open("GET", "/")
            await two.head()
            behind: list[Answer] = []
            written = 0
            while not behind:
                behind = under.server.write_all(hub, b"x" * 65_536, 4 * MIB)
                written += 65_536
                read = 0
                while read < 65_536:
                    read += len(await two.read())
                assert written < 48 * MIB
            assert behind == [hub[0]]
            waiting = asyncio.create_task(hub[0].room())
            await asyncio.sleep(0.05)
            assert not waiting.done()
            behind[0].abort()
            await hub[1].write(b"!")
            assert await two.read() == b"!"
            waiting.cancel()

    run(scenario())


# The end.


@EVERY_WAY
def test_a_drain_answers_what_was_asked_and_takes_nothing_new(way: Way) -> None:
    release = asyncio.Event()

    async def handle(request: Request, answer: Answer) -> None:
        if request.target == "/endless":
            await endless(request, answer)
        elif request.target == "/streamed":
            answer.start(200, [])
            await answer.write(b"first ")
            await release.wait()
            await answer.write(b"last")
        else:
            await release.wait()
            answer.send(200, [], b"answered")

    async def scenario() -> None:
        async with serving(handle, portable=way.portable) as under:
            server = under.server
            async with (
                way.connect(under.url) as idle,
                way.connect(under.url) as one,
                way.connect(under.url) as two,
                way.connect(under.url) as three,
            ):
                whole = await one.open("GET", "/whole")
                streamed = await two.open("GET", "/streamed")
                watching = await three.open("GET", "/endless")
                await watching.head()
                assert await watching.read() == b"begun"
                await until(lambda: server.open_count == 3)
                server.drain()
                drained = asyncio.create_task(server.drained())
                await asyncio.sleep(0.1)
                assert not drained.done()
                with pytest.raises(OSError):  # noqa: PT011
                    async with way.connect(under.url) as late:
                        await late.ask("GET", "/")
                if isinstance(idle, H1Client):
                    assert await asyncio.wait_for(idle.reader.read(), WAIT_S) == b""
                release.set()
                reply = await whole.reply()
                assert (reply.status, reply.body) == (200, b"answered")
                if way.protocol == "h1":
                    assert reply.header("connection") == "close"
                assert (await streamed.reply()).body == b"first last"
                await asyncio.wait_for(drained, WAIT_S)
                assert server.open_count == 1
                await asyncio.sleep(0.05)
                assert watching.data == b"" if not isinstance(watching, H1Client) else True  # type: ignore[attr-defined]
                server.close_endless()
                assert await watching.read() == b"over"
                assert await watching.read() == b""

    run(scenario())


@EVERY_WAY
def test_a_stop_ends_endless_answers_in_order_and_waits_for_the_others(way: Way) -> None:
    async def handle(request: Request, answer: Answer) -> None:
        if request.target == "/closing":
            await endless(request, answer)
        elif request.target == "/endless":
            answer.start(200, [], endless=True)
            await answer.write(b"begun")
            await asyncio.sleep(60)
        else:
            await asyncio.sleep(0.3)
            answer.send(200, [], b"late")

    async def scenario() -> None:
        async with serving(handle, portable=way.portable) as under:
            async with (
                way.connect(under.url) as one,
                way.connect(under.url) as two,
                way.connect(under.url) as three,
            ):
                closing = await one.open("GET", "/closing")
                sleeping = await two.open("GET", "/endless")
                late = await three.open("GET", "/late")
                await closing.head()
                await sleeping.head()
                await until(lambda: under.server.open_count == 3)
                begin = time.monotonic()
                stopping = asyncio.create_task(under.server.stop(20.0))
                assert b"".join([p async for p in closing.pieces()]) == b"begunover"
                assert b"".join([p async for p in sleeping.pieces()]) == b"begun"
                assert (await late.reply()).body == b"late"
            await stopping
            assert time.monotonic() - begin < 15  # it had 20, and did not need them
            await under.server.stop()  # again is nothing
            await under.server.serve()

    run(scenario())


@EVERY_WAY
def test_a_stop_without_time_cuts_off(way: Way) -> None:
    outcomes: list[str] = []

    async def handle(request: Request, answer: Answer) -> None:
        try:
            if request.target == "/begun":
                answer.start(200, [])
                await answer.write(b"some")
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            outcomes.append(request.target)
            raise

    async def scenario() -> None:
        async with (
            serving(handle, portable=way.portable) as under,
            way.connect(under.url) as one,
            way.connect(under.url) as two,
        ):
            asked, begun = await one.open("GET", "/asked"), await two.open("GET", "/begun")
            await begun.head()
            await until(lambda: under.server.open_count == 2)
            begin = time.monotonic()
            await under.server.stop()
            assert time.monotonic() - begin < 30  # the handlers sleep for 60
            assert sorted(outcomes) == ["/asked", "/begun"]
            assert (await asked.reply()).status == 503
            with pytest.raises(TornError):
                [_ async for _ in begun.pieces()]
            assert under.server.open_count == 0

    run(scenario())


@EVERY_WAY
def test_a_server_may_be_started_many_times_and_leaves_nothing(way: Way) -> None:
    async def handle(request: Request, answer: Answer) -> None:
        await asyncio.sleep(0)
        answer.send(200)

    async def scenario() -> None:
        before = len(asyncio.all_tasks())
        for _ in range(5):
            async with (
                serving(handle, portable=way.portable) as under,
                way.connect(under.url) as client,
            ):
                assert (await client.ask("GET", "/")).status == 200
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == before

    run(scenario())


def test_the_limit_of_what_waits_is_sane() -> None:
    assert ListenerLimits().backlog_bytes_max > UNSENT_BYTES_MAX
