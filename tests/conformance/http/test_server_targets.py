"""Targets that Go's servers accept: characters that should be escaped, and very long ones."""

import asyncio
import random
from functools import partial

import pytest
from h2.exceptions import ProtocolError

from kvstack.component.http.serving.answer import Answer
from kvstack.component.http.serving.request import Request
from tests.support.http.clients import Client, H2Client, TornError
from tests.support.http.serving import WAYS, Way, run, serving

pytestmark = pytest.mark.parametrize("way", WAYS)

ODD = [
    "/api/v1/pods?labelSelector=a>1",
    "/a<b>c",
    '/x?y="z"',
    "/{}|\\^`[]",
    "/x?y={a}|\\^`[b]&z=%zz",
    "/%41?b=%20c",
    "/plain",
    "//a//b",
    "/?",
]


async def name_the_target(request: Request, answer: Answer) -> None:
    target = request.target
    shown = target if len(target) < 1000 else f"{len(target)} {target[:4]} {target[-4:]}"
    answer.send(200, [], shown.encode())


def encode_quickly(client: Client) -> None:
    """Let a client of HTTP/2 do without Huffman's code, which takes it minutes for long texts."""
    if isinstance(client, H2Client):
        client.h2.encoder.encode = partial(client.h2.encoder.encode, huffman=False)


def test_odd_characters_are_served_as_they_are(way: Way) -> None:
    async def scenario() -> None:
        async with (
            serving(name_the_target, portable=way.portable) as under,
            way.connect(under.url) as client,
        ):
            targets = 6 * ODD  # again, from the table of the header compression
            random.Random(1).shuffle(targets)
            for target in targets:
                reply = await client.ask("GET", target)
                assert (reply.status, reply.body.decode()) == (200, target)
            assert under.notices == []

    run(scenario())


@pytest.mark.parametrize("size", [40_000, 65_534, 65_535, 500_000])
def test_long_targets_are_served(way: Way, size: int) -> None:
    async def scenario() -> None:
        async with (
            serving(name_the_target, portable=way.portable) as under,
            way.connect(under.url) as client,
        ):
            encode_quickly(client)
            for target in ("/" + "a" * (size - 3) + "?z", "/<" + "b" * (size - 2)):
                reply = await client.ask("GET", target)
                expected = f"{size} {target[:4]} {target[-4:]}"
                assert (reply.status, reply.body.decode()) == (200, expected)
                assert (await client.ask("GET", "/a>1")).body == b"/a>1"
                assert (await client.ask("POST", "/plain", body=b"x" * 100)).body == b"/plain"

    run(scenario())


def test_requests_at_once_have_their_own_targets(way: Way) -> None:
    if way.protocol != "h2":
        pytest.skip("HTTP/1.1 has one request at a time")

    async def scenario() -> None:
        async with (
            serving(name_the_target, portable=way.portable) as under,
            way.connect(under.url) as client,
        ):
            targets = [f"/{number}?a{'<>x'[number % 3]}{number % 7}" for number in range(240)]
            replies = await asyncio.gather(*(client.ask("GET", each) for each in targets))
            assert [reply.body.decode() for reply in replies] == targets

    run(scenario())


async def status_of(way: Way, url: str, target: str) -> int:
    """Return the status of an answer; 0: there is none."""
    try:
        async with way.connect(url) as client, asyncio.timeout(30):
            encode_quickly(client)
            return (await client.ask("GET", target)).status
    except (AssertionError, ConnectionError, TornError, ProtocolError):  # as each protocol has it
        return 0


def test_what_is_longer_than_a_head_may_be_is_refused(way: Way) -> None:
    async def scenario() -> None:
        async with (
            serving(name_the_target, portable=way.portable) as under,
            way.connect(under.url) as other,
        ):
            assert await status_of(way, under.url, "/" + "a" * (3 << 20)) in (0, 400, 414, 431)
            assert (await other.ask("GET", "/a")).body == b"/a"

    run(scenario())


def test_bytes_that_are_no_utf_8_are_escaped(way: Way) -> None:
    if way.protocol == "h2":
        pytest.skip("the client of the test sends text")

    async def scenario() -> None:
        async with serving(name_the_target, portable=way.portable) as under:
            port = int(under.url.rpartition(":")[2])
            for target, shown in ((b"/\xffa<", "/%FFa<"), (b"/a?b=\xc3\x28", "/a?b=%C3(")):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(
                    b"GET " + target + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
                )
                async with asyncio.timeout(30):
                    answer = await reader.read()
                writer.close()
                await writer.wait_closed()
                assert answer.startswith(b"HTTP/1.1 200")
                assert answer.partition(b"\r\n\r\n")[2].decode() == shown
            for bad in (b"/a\x01b", b"/a\x7f"):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"GET " + bad + b" HTTP/1.1\r\nHost: x\r\n\r\n")
                async with asyncio.timeout(30):
                    assert (await reader.read()).startswith(b"HTTP/1.1 400")
                writer.close()
                await writer.wait_closed()

    run(scenario())
