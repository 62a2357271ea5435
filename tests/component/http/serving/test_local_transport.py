"""Requests of the same process: how long they wait, and that nothing of them stays."""

import asyncio
import gc
from collections.abc import Awaitable, Callable

import pytest

from kvstack.component.http.serving.answer import Answer
from kvstack.component.http.serving.local_transport import LocalTransport
from kvstack.component.http.serving.request import Request
from kvstack.component.http.serving.server import HttpServer
from kvstack.component.parking import Wait
from tests.apiserver.support.virtual_time import run

LIMIT_S = 30.0


def run_story(story: Callable[[LocalTransport, list[str]], Awaitable[None]]) -> None:
    """Tell a story to a server, and what its handlers note."""
    seen: list[str] = []

    async def handle(request: Request, answer: Answer) -> None:
        try:
            if request.target == "/never":
                await asyncio.Event().wait()
            if request.target == "/slow":
                await asyncio.sleep(LIMIT_S - 1)
            if request.target == "/parked":
                wait = Wait[int]()
                asyncio.get_running_loop().call_later(1.0, wait.set_result, 1)
                await wait
            answer.start(200, [])
            await answer.write(b"begun")
            if request.target == "/endless":
                await asyncio.sleep(2 * LIMIT_S)
            answer.finish()
            seen.append(request.target)
        except asyncio.CancelledError:
            seen.append(f"{request.target} given up")
            raise

    async def main() -> None:
        loopback = LocalTransport()
        server = HttpServer([], handle, transport=loopback)
        await server.start()
        await story(loopback, seen)
        await server.stop(1.0)

    run(main())


def test_a_client_waits_for_the_head_as_long_as_it_said() -> None:
    async def story(loopback: LocalTransport, seen: list[str]) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(TimeoutError):
            await loopback.request("GET", "/never", timeout_s=LIMIT_S)
        assert loop.time() - began == pytest.approx(LIMIT_S)
        await asyncio.sleep(0.1)
        assert seen == ["/never given up"], "for the server it is disconnected"

    run_story(story)


def test_an_answer_that_has_begun_is_not_late() -> None:
    async def story(loopback: LocalTransport, seen: list[str]) -> None:
        for target in ("/slow", "/endless"):
            response = await loopback.request("GET", target, timeout_s=LIMIT_S)
            assert await response.read() == b"begun"
        assert seen == ["/slow", "/endless"]

    run_story(story)


def test_nothing_of_an_answer_is_left_to_the_collector() -> None:
    async def story(loopback: LocalTransport, _seen: list[str]) -> None:
        for target in ("/slow", "/parked"):
            response = await loopback.request("GET", target, timeout_s=LIMIT_S)
            await response.read()
        await asyncio.sleep(0.1)
        assert not [each for each in gc.get_objects() if isinstance(each, Answer)]

    gc.collect()
    gc.disable()
    try:
        run_story(story)
    finally:
        gc.enable()
