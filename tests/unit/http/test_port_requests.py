"""Requests of the client port: an answer that was begun is ended, however it goes."""

import asyncio
import queue
from collections.abc import Iterator
from typing import Any

import pytest

from kvstack.component.line_log.line_logger import LineLogger
from kvstore.batch import Inbox, Outbox
from kvstore.errors import Code
from kvstore.http.exchange import PageRequest, Responder
from kvstore.http.port_requests import PortRequests
from kvstore.runtime.side_loop import SideLoop

WAIT_S = 60.0


class Port:
    """A side loop that serves requests with one handler; this thread is the driver."""

    def __init__(self) -> None:
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.side = SideLoop(lambda: self._bell.put(None), LineLogger([], "info"))
        self.side.start()
        PortRequests(self.side, self._handle).attach()

    async def _handle(self, request: PageRequest, respond: Responder) -> None:
        await respond.start(200, [])
        if request.target == "/broken":
            raise RuntimeError("broken")
        if request.target == "/endless":
            await asyncio.Event().wait()
        await respond.finish()

    def ask(self, target: str) -> None:
        self.side.fill(Inbox(requests=[(1, "GET", target, [], b"")]))

    def until(self, expected: str) -> list[Any]:
        """Drain when woken until something is in a column; return all that came in it."""
        while True:
            self._bell.get(timeout=WAIT_S)
            out = Outbox()
            self.side.drain(out)
            if found := getattr(out, expected):
                return list(found)


@pytest.fixture
def port() -> Iterator[Port]:
    made = Port()
    yield made
    made.side.stop()


def test_a_finished_answer_is_ended_once(port: Port) -> None:
    port.ask("/")
    assert port.until("ends") == [(1, Code.OK, b"")]


def test_an_answer_that_breaks_off_is_ended_with_an_error(port: Port) -> None:
    port.ask("/broken")
    assert port.until("ends")[0] == (1, Code.INTERNAL, b"internal error")


def test_an_answer_whose_client_is_gone_is_ended(port: Port) -> None:
    port.ask("/endless")
    assert port.until("responses") == [(1, 200, [], None)]
    port.side.fill(Inbox(gone=[1]))
    assert port.until("ends") == [(1, Code.INTERNAL, b"internal error")]
