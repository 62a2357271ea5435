"""A member inside another program: start it, use it, stop it.

    with embed.start() as member:                    in memory, no socket
        async with member.store() as store: ...

    embed.start(first_rows=embed.FirstRows(...))     in memory, with another store's rows

    member = embed.start_on_loop(clock)              in memory, on the running loop, without thread

    member = embed.start("/var/lib/state", client_urls=["http://127.0.0.1:2379"])
    ...
    member.stop()

A member's turns run in their own thread. A member sets no signal handler, changes no global state
of the process (collector, allocator, log, environment), and several can run at once. A member in
memory is its cluster's only member and stores nothing; one on disk is equal to a process of
`kvstore --data-dir`: each can open the other's directory after it has stopped.

Python threads share one interpreter lock. A thread that computes without pause beside a member
makes each of its turns wait for up to `sys.getswitchinterval()` (5 ms by default): such a program
should set it to about 0.0005 if latency matters. A program with many objects should freeze them
(`gc.freeze()`) after creating them, or a full collection delays the turns as well. bench/results
has measurements of both.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from kvstack.component.clock import Clock, SystemClock
from kvstack.component.errors import ConfigError
from kvstack.component.line_log.line_logger import LineLogger
from kvstack.component.logger import Logger
from kvstore.client import ClientOptions, Store
from kvstore.client.channels.embedded import DrainedPort, EmbeddedPort
from kvstore.config.flags import BY_NAME, Effect
from kvstore.config.flags import FlagKind as FlagKind
from kvstore.config.model import Config
from kvstore.config.parse import configure
from kvstore.config.sources import read_command_line
from kvstore.errors import KvstoreError
from kvstore.node.turn import NEVER_NS, Node
from kvstore.runtime.driver import Driver
from kvstore.runtime.loop_driver import LoopDriver
from kvstore.server.boot.assemble import build
from kvstore.server.boot.first_rows import FirstRows as FirstRows
from kvstore.server.boot.state import State, open_disk, open_memory
from kvstore.server.client_port import check_port
from kvstore.server.member import Host, Running, run_member
from kvstore.server.pages.local import PageAnswer as PageAnswer

FLAGS: Final = BY_NAME
"""The flags of `kvstore` by name, which `start` accepts."""
FLAGS_WITH_EFFECT: Final = tuple(each for each in BY_NAME.values() if each.effect is Effect.USED)
START_S_MAX: Final = 60.0
STOP_S_MAX: Final = 60.0


def start(
    data_dir: str | Path | None = None,
    *,
    client_urls: Sequence[str] = (),
    has_peers: bool = False,
    flags: Sequence[str] = (),
    logger: Logger | None = None,
    timeout_s: float = START_S_MAX,
    on_opened: Callable[[], None] | None = None,
    first_rows: FirstRows | None = None,
) -> "Member":
    """Start a member and return it when it serves; raises the error that prevented the start.

    data_dir: None is a member in memory. client_urls: where to listen for clients besides those in
    this process, `http://127.0.0.1:0` for any port. has_peers: whether to listen for other members,
    at the addresses of the flags. flags: any of `kvstore`'s, such as `--quota-backend-bytes=...`.
    logger: where to log to; None drops what is logged. on_opened: called in the member's thread
    once the data directory is this member's and before it listens; what it raises ends the start.
    first_rows: what a member in memory begins with; its records are read once, in its thread.
    Raises ConfigError, DataDirError, and KvstoreError if it is not ready after timeout_s.
    """
    if first_rows is not None and data_dir is not None:
        raise ConfigError(
            f"first_rows is for members in memory only, not for data directory {data_dir}"
        )
    arguments = [f"--data-dir={data_dir}"] if data_dir is not None else []
    if client_urls:
        addresses = ",".join(client_urls)
        arguments += [f"--listen-client-urls={addresses}", f"--advertise-client-urls={addresses}"]
    config = configure(read_command_line([*arguments, *flags]), {})
    if client_urls:
        check_port(config)
    return Member(
        config,
        logger or LineLogger([], "fatal"),
        in_memory=data_dir is None,
        has_peers=has_peers,
        has_port=bool(client_urls),
        timeout_s=timeout_s,
        on_opened=on_opened,
        first_rows=first_rows,
    )


def start_on_loop(
    clock: Clock,
    *,
    flags: Sequence[str] = (),
    logger: Logger | None = None,
    first_rows: FirstRows | None = None,
) -> "LoopMember":
    """Start a member in memory on the running loop, and return it when it serves.

    clock: the loop's time, by which leases end. Its behaviour depends only on this clock and on
    the requests. It serves the Stores of its loop alone; services built on the store and users with
    passwords are refused. Raises ConfigError, and DataDirError for invalid rows.
    """
    config = configure(read_command_line(flags), {})
    return LoopMember(config, clock, logger or LineLogger([], "fatal"), first_rows)


class LoopMember:
    """A member in memory whose turns run on the running loop, created by `start_on_loop`."""

    def __init__(
        self, config: Config, clock: Clock, logger: Logger, first_rows: FirstRows | None
    ) -> None:
        """Start it; see `start_on_loop`."""
        state = open_memory(config, logger, first_rows)
        self._parts = parts = build(config, state.booted, state.snapshots, clock, logger)
        parts.limits.is_solitary = True
        parts.limits.commit_interval_ns = NEVER_NS  # there is no disk: rows are committed by number
        self._driver = LoopDriver(Node(parts), state.streams, clock)
        self._port = EmbeddedPort(
            self._driver.wake, self._revision, self._is_auth_enabled, is_on_loop=True
        )
        self._driver.attach(self._port)
        self._driver.start()

    @property
    def revision(self) -> int:
        """The store's current revision."""
        return self._parts.state.store.revision

    def store(self, options: ClientOptions | None = None) -> Store:
        """Return a Store of this member, to be used in `async with` on the same loop."""
        return self._port.connect(options)

    def stop(self) -> None:
        """Stop the member: open and later calls fail."""
        if not self._port.is_closed:
            self._driver.stop()
            self._port.close()

    def _revision(self) -> int | None:
        index = self._parts.raft.read_index_if_alone()
        is_current = index is not None and self._parts.raft.applied >= index
        return self._parts.state.store.revision if is_current else None

    def _is_auth_enabled(self) -> bool:
        return self._parts.state.auth.enabled


class Member:
    """A running member, created by `start`. Its methods may be called from any thread."""

    def __init__(
        self,
        config: Config,
        logger: Logger,
        *,
        in_memory: bool,
        has_peers: bool,
        has_port: bool,
        timeout_s: float,
        on_opened: Callable[[], None] | None = None,
        first_rows: FirstRows | None = None,
    ) -> None:
        """Start it and return when it is ready; see `start`."""
        self._config = config
        self._logger = logger
        self._in_memory = in_memory
        self._on_opened = on_opened
        self._first_rows = first_rows
        self._stores: EmbeddedPort | None = None
        self._ports: list[DrainedPort] = []
        self._host = Host(
            on_driver=self._on_driver,
            on_ready=self._on_ready,
            ports=self._ports,
            has_peers=has_peers,
            has_port=has_port,
        )
        self._settled = threading.Event()  # it is ready, or it ended
        self._driver: Driver | None = None
        self._running: Running | None = None
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = threading.Thread(
            target=self._run, name="kvstore-member", daemon=True
        )
        self._thread.start()
        if not self._settled.wait(timeout_s):
            self.stop()
            raise KvstoreError(f"the member was not ready within {timeout_s} s")
        if self._running is None:
            self.stop()
            raise KvstoreError("the member ended before it was ready")

    @property
    def client_urls(self) -> list[str]:
        """The addresses for clients, with the bound ports."""
        port = self._live().port
        return [] if port is None else port.urls

    def store(self, options: ClientOptions | None = None) -> Store:
        """Return a Store of this member, to be used in `async with` on any event loop.

        Without user or token in the options it has root's permission.
        """
        self._live()
        assert self._stores is not None, "a member that runs has a driver"
        return self._stores.connect(options)

    def page(self, method: str, path: str) -> Future[PageAnswer]:
        """Return the answer of one of its pages of health, metrics and status, without a socket.

        The future is cancelled if the member stops meanwhile.
        """
        running = self._live()
        return running.side.submit(running.pages.answer(method, path))

    def stop(self, timeout_s: float = STOP_S_MAX) -> None:
        """Stop it as SIGTERM stops a server, and return when all is closed; may be called again.

        Raises the error that ended the member, if one did, and KvstoreError if it does not end
        within timeout_s.
        """
        thread = self._thread
        if thread is None:
            return
        if self._driver is not None:
            self._driver.stop()
        thread.join(timeout_s)
        if thread.is_alive():
            raise KvstoreError(f"the member did not stop within {timeout_s} s")
        self._thread = None
        if self._failure is not None:
            raise self._failure

    def wait(self) -> None:
        """Return when the member has ended; `stop` raises the reason if it was an error."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def __enter__(self) -> Self:
        """Return the member."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop it."""
        self.stop()

    def _run(self) -> None:
        try:
            # Here and not in the caller's thread: a write transaction of LMDB belongs to one.
            clock = SystemClock()
            if self._in_memory:
                state = open_memory(self._config, self._logger, self._take_first_rows())
            else:
                state = open_disk(self._config, clock, self._logger)
            self._opened(state)
            run_member(state, clock, self._logger, self._host)
        except BaseException as error:  # noqa: BLE001 - raised by stop()
            self._failure = error  # raised by stop()
        finally:
            if self._stores is not None:
                self._stores.close()
            self._settled.set()

    def _take_first_rows(self) -> FirstRows | None:
        """Return them and keep none: a frame that lives as long as the member would hold them."""
        rows, self._first_rows = self._first_rows, None
        return rows

    def _opened(self, state: State) -> None:
        if self._on_opened is None:
            return
        try:
            self._on_opened()
        except BaseException:
            state.abandon()
            raise

    def _on_driver(self, driver: Driver) -> None:
        # Before all other sources: they claim every answer with a negative id.
        self._stores = EmbeddedPort(driver.wake, self._revision, self._is_auth_enabled)
        self._ports.append(self._stores.drained_port)
        driver.attach(self._stores)
        self._driver = driver

    def _revision(self) -> int | None:
        """Return the store's revision if a linearizable read could be answered at once."""
        if self._running is None:
            return None
        parts = self._running.parts
        index = parts.raft.read_index_if_alone()
        return (
            parts.state.store.revision
            if index is not None and parts.raft.applied >= index
            else None
        )

    def _is_auth_enabled(self) -> bool:
        return self._running is not None and self._running.parts.state.auth.enabled

    def _on_ready(self, running: Running) -> None:
        self._running = running
        self._settled.set()

    def _live(self) -> Running:
        if self._running is None or self._thread is None:
            raise KvstoreError("the member was stopped")
        return self._running
