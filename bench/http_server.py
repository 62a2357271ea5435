"""An HTTP server to be measured, in a process of its own: small answers, and events to open ones.

    GET /small    100 bytes of JSON, from an async handler that does not wait
    GET /waits    the same, from one that waits for the next iteration of the loop
    GET /open     an answer that stays open: every event is written to all of these

    with serving(directory, portable=False) as server:
        server.plain_url, server.tls_url
        server.tell("events 100 256")     → Events, once so many were sent to all that are open

The process is told what to do by lines on its standard input and answers each with a line of JSON.
"""

import argparse
import asyncio
import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from kvstack.component.http.serving.answer import Answer
from kvstack.component.http.serving.listeners import KeyPair, Listener, ListenerLimits, ServerTls
from kvstack.component.http.serving.request import Request
from kvstack.component.http.serving.server import HttpOptions, HttpServer

SMALL: Final = (
    b'{"kind":"Status","status":"Success","code":200,"details":{"name":"a-small-answer"}}'.ljust(
        100
    )
)
_HEADERS: Final = [("Content-Type", "application/json")]
_PAUSE_S: Final = 0.01  # between two events, so that each is sent by itself


class Server(NamedTuple):
    """A server that runs."""

    process: "subprocess.Popen[str]"
    plain_url: str
    tls_url: str

    def tell(self, command: str) -> Any:  # noqa: ANN401  # JSON
        """Have it do something; return its answer."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f"{command}\n")
        stdin.flush()
        line = stdout.readline()
        if not line:
            raise RuntimeError(f"the HTTP server ended at: {command}")
        return json.loads(line)


@contextmanager
def serving(pair: tuple[str, str], *, portable: bool) -> Iterator[Server]:
    """Run a server with a certificate and its key; end it whatever happens."""
    command = [sys.executable, "-m", "bench.http_server", *pair]
    if portable:
        command.append("--portable")
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    try:
        assert process.stdout is not None
        urls = json.loads(process.stdout.readline() or "null")
        if urls is None:
            raise RuntimeError("the HTTP server did not start")
        yield Server(process, *urls)
    finally:
        process.kill()
        process.communicate()


class _Site:
    """The handler, and what is done with the answers that stay open."""

    def __init__(self) -> None:
        self.server: HttpServer | None = None
        self._open: dict[Answer, asyncio.Future[None]] = {}

    async def handle(self, request: Request, answer: Answer) -> None:
        """Answer one request."""
        if request.target == "/open":
            answer.start(200, _HEADERS)
            self._open[answer] = asyncio.get_running_loop().create_future()
            try:
                await self._open[answer]
            finally:
                del self._open[answer]
            return
        if request.target == "/waits":
            await asyncio.sleep(0)
        answer.send(200, _HEADERS, SMALL)

    async def events(self, count: int, size: int) -> dict[str, float]:
        """Write so many events to every open answer; return what that cost, of each event."""
        assert self.server is not None
        answers, event = list(self._open), b"e" * size
        await asyncio.sleep(_PAUSE_S)
        begin = resource.getrusage(resource.RUSAGE_SELF)
        for _ in range(count):
            self.server.write_all(answers, event)
            await asyncio.sleep(_PAUSE_S)
        end = resource.getrusage(resource.RUSAGE_SELF)
        each_us = 1e6 / (count * len(answers))
        return {
            "user_us": (end.ru_utime - begin.ru_utime) * each_us,
            "system_us": (end.ru_stime - begin.ru_stime) * each_us,
        }

    async def obey(self, command: str) -> object:
        """Do what a line asks for."""
        match command.split():
            case ["open"]:
                return len(self._open)
            case ["events", count, size]:
                return await self.events(int(count), int(size))
            case ["end"]:
                for future in self._open.values():
                    future.set_result(None)
                return len(self._open)
        raise ValueError(f"unknown command: {command}")


async def _serve(pair: KeyPair, *, portable: bool) -> None:
    # An idle connection is not to be closed while it is measured.
    limits = ListenerLimits(idle_timeout_s=600.0)
    listeners = [
        Listener("http://127.0.0.1:0", limits=limits),
        Listener("https://127.0.0.1:0", tls=ServerTls(pair), limits=limits),
    ]
    site = _Site()
    async with HttpServer(listeners, site.handle, HttpOptions(portable=portable)) as server:
        site.server = server
        print(json.dumps(server.urls), flush=True)
        while command := await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(await site.obey(command)), flush=True)


def main() -> None:
    """Serve until the standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("cert")
    parser.add_argument("key")
    parser.add_argument("--portable", action="store_true")
    options = parser.parse_args()
    asyncio.run(_serve(KeyPair(options.cert, options.key), portable=options.portable))


if __name__ == "__main__":
    main()
