"""A node and a side loop in this process, its pages asked without a socket.

with Pages(tmp_path) as pages:
    answer = pages.ask("GET", "/health")       answer.status, answer.headers, answer.body
"""

import queue
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from typing_extensions import override

from kvstack.component.line_log.line_logger import LineLogger
from kvstore.batch import HttpHeaders, Inbox, Outbox
from kvstore.config.model import Config
from kvstore.http.exchange import PageHandler, PageRequest, Responder, UpgradedConnection, WholeBody
from kvstore.runtime.side_loop import SideLoop
from kvstore.server.pages.service import Extras, PageService
from tests.support.node.harness import Disk, Harness

WAIT_S = 60.0


@dataclass
class KeptAnswer(Responder):
    """An answer that is kept."""

    status: int = 0
    headers: HttpHeaders = field(default_factory=list)
    body: bytes = b""
    is_whole: bool = False

    @override
    async def whole(self, status: int, headers: HttpHeaders, body: bytes) -> None:
        await self.start(status, headers)
        await self.write(body)
        await self.finish()

    @override
    async def start(self, status: int, headers: HttpHeaders) -> None:
        assert self.status == 0, "answered twice"
        self.status, self.headers = status, headers

    @override
    async def write(self, data: bytes) -> None:
        assert self.status, "a body without a head"
        self.body += data

    @override
    async def finish(self) -> None:
        assert not self.is_whole, "ended twice"
        self.is_whole = True

    @override
    async def upgrade(self, headers: HttpHeaders) -> UpgradedConnection:
        raise AssertionError("no connection to take over")

    def header(self, name: str) -> str | None:
        return next((value for each, value in self.headers if each == name), None)


class Pages:
    """A member's pages; a thread takes the node's turns."""

    def __init__(
        self, data_dir: Path, config: Config | None = None, extras: Extras | None = None
    ) -> None:
        self.harness = Harness(data_dir, Disk(in_memory=True))
        self.bell: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self.side = SideLoop(lambda: self.bell.put(True), LineLogger([], "info"))
        self.service = PageService(
            config or Config(),
            self.side,
            self.harness.node.methods,
            LineLogger([], "info"),
            extras or Extras(),
        )
        self.fault: BaseException | None = None
        self.hold = threading.Event()  # while set, the node takes no turns
        self._thread = threading.Thread(target=self._drive)

    def __enter__(self) -> Self:
        self.side.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bell.put(False)
        self._thread.join()
        self.side.stop()
        self.harness.close()
        if self.fault is not None:
            raise self.fault

    def _drive(self) -> None:
        try:
            while self.bell.get():
                if self.hold.is_set():
                    continue
                inbox = Inbox()
                self.side.fill(inbox)
                out: Outbox = self.harness.turn(inbox)
                self.side.drain(out)
        except BaseException as error:  # noqa: BLE001 - raised by the test's thread
            self.fault = error

    def ask(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        headers: HttpHeaders | None = None,
        *,
        handler: PageHandler | None = None,
        **about: object,
    ) -> KeptAnswer:
        """Ask the client port's pages, or another handler."""
        kept = KeptAnswer()
        request = PageRequest(method, target, headers or [("host", "x:1")], WholeBody(body))
        for name, value in about.items():
            setattr(request, name, value)
        serve = handler or self.service._client_pages.serve

        async def serving() -> None:
            await serve(request, kept)

        self.side.submit(serving()).result(WAIT_S)
        assert kept.is_whole
        return kept
