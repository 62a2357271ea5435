"""A loop whose time goes on as it is told to."""

import asyncio
import os
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from kvstack.component.virtual_time.clock import LoopClock, began_now_ms
from kvstack.component.virtual_time.loop import (
    StandstillError,
    VirtualLoop,
    call_real_later,
    pass_time,
    run,
    standing,
)
from kvstack.component.virtual_time.timeline import AT_ONCE, REAL, STANDING, Timeline

DAY_S = 86_400.0


def play(rate: float, main: Callable[[VirtualLoop], Coroutine[Any, Any, None]]) -> VirtualLoop:
    """Run something on a loop of a rate."""
    loop = VirtualLoop(Timeline(rate, real_s=time.monotonic()))
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main(loop))
    return loop


def test_a_day_goes_by_at_once() -> None:
    async def main() -> float:
        await asyncio.sleep(DAY_S)
        return asyncio.get_running_loop().time()

    began_s = time.monotonic()
    assert run(main()) == pytest.approx(DAY_S)
    assert time.monotonic() - began_s < 30


def test_everything_comes_in_order_and_at_its_time() -> None:
    seen: list[tuple[float, int]] = []

    async def main(loop: VirtualLoop) -> None:
        async def every(period_s: float, number: int) -> None:
            while True:
                await asyncio.sleep(period_s)
                seen.append((round(loop.time(), 6), number))

        tasks = [asyncio.create_task(every(each, number)) for number, each in enumerate((3, 7, 11))]
        await pass_time(loop, 1000)
        for each in tasks:
            each.cancel()

    play(STANDING, main)
    wanted = [(float(at), n) for n, p in enumerate((3, 7, 11)) for at in range(p, 1001, p)]
    assert [each[0] for each in seen] == sorted(each[0] for each in wanted)
    assert sorted(seen) == sorted(wanted)


def test_time_stands_until_it_is_advanced() -> None:
    async def main(loop: VirtualLoop) -> None:
        slept = asyncio.create_task(asyncio.sleep(0.001))
        await asyncio.to_thread(time.sleep, 0.05)
        for _ in range(100):
            await loop.idle()
        assert not slept.done()
        await pass_time(loop, 0.0005)
        assert not slept.done()
        await pass_time(loop, 0.0005)
        assert slept.done()
        assert loop.time() == pytest.approx(0.001, abs=1e-6)
        loop.set_rate(AT_ONCE)
        await asyncio.sleep(5)
        assert loop.time() == pytest.approx(5.001)

    play(STANDING, main)


def test_what_is_due_at_the_end_is_done_before_the_time_is_over() -> None:
    async def main(loop: VirtualLoop) -> None:
        done = []

        async def work() -> None:
            await asyncio.sleep(10)
            for _ in range(5):
                await asyncio.sleep(0)
            done.append(loop.time())

        task = asyncio.create_task(work())
        await pass_time(loop, 10)
        assert done == [10.0]
        await task

    play(STANDING, main)


def test_time_goes_so_many_times_as_fast_as_real_time() -> None:
    async def main(loop: VirtualLoop) -> None:
        began_s, real_s = loop.time(), time.monotonic()
        await asyncio.sleep(20)
        assert loop.time() - began_s == pytest.approx(20)
        assert time.monotonic() - real_s >= 0.19

    play(100.0, main)


def test_a_real_loop_is_as_any_other() -> None:
    async def main(loop: VirtualLoop) -> None:
        real_s, began_s = time.monotonic(), loop.time()
        await asyncio.sleep(0.05)
        assert time.monotonic() - real_s >= 0.05
        assert loop.time() - began_s == pytest.approx(time.monotonic() - real_s, abs=0.02)
        assert await asyncio.to_thread(lambda: 7) == 7
        clock = LoopClock(began_now_ms(loop))
        assert abs(clock.unix_ms() - time.time_ns() // 1_000_000) < 1000
        await loop.idle()

    play(REAL, main)


def test_sockets_are_served_while_time_stands() -> None:
    async def main(loop: VirtualLoop) -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"%r" % loop.time() + await reader.readline())
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b" hello\n")
        assert await reader.read() == b"0.0 hello\n"
        writer.close()
        server.close()

    play(STANDING, main)


def test_those_who_never_stop_asking_cannot_stop_time() -> None:
    async def main(loop: VirtualLoop) -> None:
        mine, other = socket.socketpair()
        for each in (mine, other):
            each.setblocking(False)
        mine.send(b"x")

        def pass_on(one: socket.socket) -> None:
            one.send(one.recv(1))

        # One byte goes back and forth for ever, so that there is always something to be read.
        for one in (mine, other):
            loop.add_reader(one, pass_on, one)
        try:
            await asyncio.wait_for(pass_time(loop, 5.0), None)
            assert loop.time() == pytest.approx(5.0)
            loop.set_rate(1000.0)
            await asyncio.sleep(5.0)
        finally:
            for one in (mine, other):
                loop.remove_reader(one)
                one.close()

    play(STANDING, main)


def test_time_stands_while_something_outside_is_asked() -> None:
    async def main(loop: VirtualLoop) -> None:
        mine, other = socket.socketpair()
        mine.setblocking(False)
        beside = asyncio.create_task(asyncio.sleep(1000))
        with standing():
            thread = threading.Timer(0.1, other.send, (b"x",))  # in real time
            thread.start()
            assert await loop.sock_recv(mine, 1) == b"x"
            thread.join()
        assert not beside.done()
        await beside
        mine.close()
        other.close()

    play(AT_ONCE, main)


def test_what_is_held_for_too_long_is_held_no_more() -> None:
    async def main(loop: VirtualLoop) -> None:
        with loop.hold(0.05):
            await asyncio.sleep(3600)
        assert loop.time() == pytest.approx(3600)

    play(AT_ONCE, main)


def test_work_for_threads_is_done_at_once_and_in_order() -> None:
    async def main(loop: VirtualLoop) -> None:
        done: list[int] = []
        await asyncio.gather(*(asyncio.to_thread(done.append, number) for number in range(50)))
        assert done == list(range(50))
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        found = await loop.getaddrinfo("127.0.0.1", 80)
        assert found[0][4] == ("127.0.0.1", 80)

    play(STANDING, main)


@pytest.mark.parametrize("rate", [STANDING, AT_ONCE, REAL])
def test_timers_of_real_time_fire_whatever_the_loops_time_does(rate: float) -> None:
    fired: list[str] = []

    async def main(loop: VirtualLoop) -> None:
        began_s = time.monotonic()
        never = call_real_later(loop, 0.001, lambda: fired.append("cancelled"))
        call_real_later(loop, 0.06, lambda: fired.append("second"))
        call_real_later(loop, 0.03, lambda: fired.append("first"))
        never.cancel()
        never.cancel()
        await loop.real_sleep(0.1)
        assert time.monotonic() - began_s >= 0.1
        assert rate != STANDING or loop.time() == 0

    play(rate, main)
    assert fired == ["first", "second"]


def test_a_day_fires_no_timer_of_real_time_before_it_is_due() -> None:
    async def main(loop: VirtualLoop) -> None:
        fired: list[int] = []
        timer = call_real_later(loop, 3600.0, lambda: fired.append(1))
        await pass_time(loop, DAY_S)
        assert not fired
        timer.cancel()

    play(STANDING, main)


def test_a_world_in_which_nobody_can_come_tells_when_everybody_waits() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(StandstillError, match="all tasks wait"):
        run(main(), patience_s=0.01)


def test_a_world_in_which_somebody_never_waits_tells() -> None:
    async def main() -> None:
        while True:  # noqa: ASYNC110 - which is what is wrong with it
            await asyncio.sleep(0)

    with pytest.raises(StandstillError, match="time stands still"):
        run(main(), still_max=1000)


def test_whoever_comes_early_finds_its_time_all_the_same() -> None:
    """Timers come up to the resolution of the clock early; who then sets them again comes on."""

    async def main(loop: VirtualLoop) -> None:
        due_s = 1e8 + 1 / 3
        future = loop.create_future()

        def look() -> None:
            if loop.time() >= due_s:
                future.set_result(None)
            else:
                loop.call_later(max(0.0, due_s - loop.time()), look)

        loop.call_later(due_s - 1e-9, look)
        await future

    play(AT_ONCE, main)


@pytest.mark.parametrize("rate", [STANDING, REAL])
def test_a_forked_process_goes_on_with_the_loop(rate: float) -> None:
    loop = VirtualLoop(Timeline(rate, real_s=time.monotonic()))

    async def wait(event: asyncio.Event) -> str:
        await event.wait()
        return "woken"

    async def begin() -> tuple[asyncio.Event, "asyncio.Task[str]"]:
        event = asyncio.Event()
        return event, asyncio.ensure_future(wait(event))

    async def end(event: asyncio.Event, task: "Awaitable[str]") -> bytes:
        loop.call_soon_threadsafe(event.set)
        text = await task
        if rate == STANDING:
            await pass_time(loop, 60.0)
            assert loop.time() == pytest.approx(60.0)
        return text.encode()

    event, task = loop.run_until_complete(begin())
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            loop.after_fork()
            os.write(write_end, loop.run_until_complete(end(event, task)))
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        assert pipe.read() == b"woken"
    os.waitpid(child, 0)
    assert loop.run_until_complete(end(event, task)) == b"woken"  # nothing of it was taken away
    loop.close()


def test_time_that_stands_goes_on_while_somebody_is_answered() -> None:
    async def main(loop: VirtualLoop) -> None:
        asked: list[int] = []
        loop.go_on_while(lambda: bool(asked))
        slept = asyncio.create_task(asyncio.sleep(0.02))
        await asyncio.to_thread(time.sleep, 0.05)
        await loop.idle()
        assert not slept.done()
        asked.append(1)
        await slept
        asked.clear()
        assert loop.time() == pytest.approx(0.02, abs=1e-6)
        late = asyncio.create_task(asyncio.sleep(0.001))
        await asyncio.to_thread(time.sleep, 0.05)
        await loop.idle()
        assert not late.done()
        late.cancel()

    play(STANDING, main)
