"""The process of an API server: `kvstack apiserver`.

    flags ─► options ─► log ─► store, API server ─► until SIGTERM or SIGINT ─► exit code

Exit code 0: stopped by a signal. 1: invalid flags or settings, or the store cannot be reached; the
error goes to stderr, flag errors in the format of Go programs. A second signal ends the process at
once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from kvstack.apiserver.server.settings.flags import TABLE
from kvstack.apiserver.server.settings.options import (
    Options,
    StoreOptions,
    options_of,
)
from kvstack.component.flags.command_line import CommandLine
from kvstack.component.line_log.line_logger import LineLogger
from kvstack.component.logger import Logger
from kvstack.component.process.command import Command, Work, level_of, run_command
from kvstack.component.process.program import is_done_before, settle, stop_event
from kvstack.component.process.systemd import notify_ready
from kvstack.component.version import KUBERNETES_VERSION
from kvstore.client import ClientOptions, ClientTls, Store, connect

if TYPE_CHECKING:
    from kvstack.apiserver.server.assembly import ApiServer

Beside: TypeAlias = Callable[["ApiServer"], "Part"]
Body: TypeAlias = Callable[[Options, LineLogger], Coroutine[Any, Any, None]]

COMMAND: Final = "kvstack apiserver"
ABOUT: Final = """\
An API server of Kubernetes 1.37 over a store that speaks etcd's API. Flags are kube-apiserver's."""


class Part(Protocol):
    """What runs in the process of an API server."""

    async def start(self) -> None:
        """Return once it is ready."""
        ...

    async def stop(self) -> None:
        """Stop what was started, also after an incomplete start."""
        ...


def main(arguments: Sequence[str], body: Body | None = None) -> int:
    """Run the command; return the exit code. body: replaces `serve`."""

    def prepare(given: CommandLine) -> Work:
        options = options_of(given)

        async def work(log: LineLogger) -> None:
            announce(options, log)
            await (body or serve)(options, log)

        return Work(work, level_of(options.verbosity), options.without_effect)

    return run_command(Command(COMMAND, ABOUT, TABLE), arguments, prepare)


async def serve(options: Options, log: LineLogger) -> None:
    """Serve from the store of the flags until a signal arrives."""
    async with open_store(options.store, log) as store:
        await serve_store(store, options, log)


async def serve_store(
    store: Store,
    options: Options,
    log: Logger,
    on_made: Callable[["ApiServer"], None] | None = None,
    on_ready: Callable[[], None] | None = None,
    ended: Awaitable[None] | None = None,
    renew: Callable[[], None] | None = None,
    beside: Beside | None = None,
) -> None:
    """Serve from a store until a signal arrives, or `ended` completes.

    on_made is called before the server listens; on_ready when the objects that are made at start
    exist; renew periodically, to renew certificates. The parts that `beside` returns for the server
    are started before on_ready, and stopped before the server, also if the start failed.
    """
    from kvstack.apiserver.server.assembly import ApiServer

    stop = stop_event()
    server = ApiServer(store, options, log, renew=renew)
    if on_made is not None:
        on_made(server)
    end = asyncio.ensure_future(_first(stop.wait(), ended))
    try:
        if await is_done_before(end, _start(server)):
            parts = None if beside is None else beside(server)
            try:
                if parts is None or await is_done_before(end, parts.start()):
                    if on_ready is not None:
                        on_ready()
                    _settle(log)
                    await is_done_before(end, server.serve())
            finally:
                if parts is not None:
                    await parts.stop()
        if end.done():
            end.result()
    finally:
        end.cancel()
        await asyncio.wait((end,))
        await server.stop()


async def _start(server: "ApiServer") -> None:
    await server.start()
    await server.ready()


async def _first(*each: Awaitable[object] | None) -> None:
    """Wait for the first to complete; raises its exception."""
    waiting = [asyncio.ensure_future(one) for one in each if one is not None]
    try:
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waiting:
            one.cancel()
        await asyncio.wait(waiting)
    for one in done:
        one.result()


def open_store(options: StoreOptions, log: Logger) -> Store:
    """Return the store of the flags, for `async with`; raises ConfigError."""
    tls = ClientTls(options.cert_file, options.key_file, options.ca_file)
    return connect(
        options.servers,
        ClientOptions(tls=tls, revision_key=f"{options.root}health".encode()),
        on_notice=lambda line: log.info("the connection to the store", what=line),
    )


def announce(options: Options, log: Logger) -> None:
    """Log the start."""
    log.info(
        "starting an API server", version=KUBERNETES_VERSION, store=list(options.store.servers)
    )


def _settle(log: Logger) -> None:
    """Tune the garbage collector and notify the init system, once everything is loaded."""
    settle()
    notify_ready(log)
