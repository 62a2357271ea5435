"""A cluster in a thread of this process, for tests of programs that use one.

    with BackgroundCluster(directory) as cluster:
        cluster.url, cluster.kubeconfig, cluster.ca_file

Its store is in memory; its API server listens on a free port of the loopback with TLS. Several run
at once. Certificates that are in the directory already are used, so that who starts many makes them
once (`make_authorities`).

    cluster.settle()                   until its parts have done what they can
    cluster.clock.advance(hours=24)    where `Settings.clock` is VIRTUAL or PAUSED

`rows` is a snapshot of all objects; a cluster that gets one starts with them: the same objects,
uids, resourceVersions and current revision. Events, whose leases end, are left out.
"""

import asyncio
import threading
import time
from collections.abc import Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeAlias, TypeVar

from kvstack.agents.kubelet.hollow.nodes import named
from kvstack.agents.standalone.in_memory.cluster_time import (
    CLOCKS,
    MACHINE,
    PAUSED,
    VIRTUAL,
    ClusterTime,
)
from kvstack.agents.standalone.in_memory.memory_cluster import (
    FirstRows,
    MemoryCluster,
    Virtual,
    memory_stack,
    pki_of,
)
from kvstack.agents.standalone.in_memory.settling import (
    TIMEOUT_S,
    WITHIN_S,
    NotSettledError,
    Settled,
    settle,
)
from kvstack.agents.standalone.stack_settings import (
    StackOptions,
    pki_dir,
    server_url,
    stack_options,
)
from kvstack.apiserver.server.settings.flags import TABLE
from kvstack.component.errors import ComponentError, ConfigError
from kvstack.component.flags.command_line import CommandLine, Value
from kvstack.component.line_log.line_logger import LineLogger
from kvstack.component.logger import Logger
from kvstack.component.virtual_time.loop import VirtualLoop
from kvstack.component.virtual_time.timeline import AT_ONCE, REAL, STANDING, Timeline
from kvstore.client import Store
from kvstore.client.values import KeyValue, prefix_end

__all__ = ("BackgroundCluster", "NotSettledError", "Rows", "Settings", "make_authorities")

Rows: TypeAlias = FirstRows
T = TypeVar("T")

START_S_MAX: Final = 60.0

_OBJECTS: Final = b"/registry/"
_OWN: Final = (
    # Of the server that wrote them, and remade by the next one.
    b"/registry/masterleases/",
    b"/registry/leases/kube-system/apiserver-",
)


class Settings(NamedTuple):
    """Settings of a cluster."""

    nodes: int = 1
    without: frozenset[str] = frozenset()
    rows: Rows | None = None
    """The initial objects: another cluster's `rows`."""
    flags: Mapping[str, Value] = {}
    """Flags of the API server by name; they override those that suit a test."""
    clock: str = MACHINE
    """One of CLOCKS."""
    seed: int = 0
    """The seed of names and uids, for a cluster with a virtual clock."""
    skips: bool = True
    """See `memory_cluster.Virtual`, for a cluster with a virtual clock."""


def make_authorities(directory: Path, logger: Logger | None = None) -> None:
    """Make certificates and keys in a directory, for any number of clusters to be copied to."""
    own = _stack(directory, Settings())
    options = stack_options(own, CommandLine(TABLE))
    pki_of(own, options, server_url(options), logger or _quiet()).ensure()


class BackgroundCluster:
    """Store, API server, agents and hollow nodes."""

    def __init__(
        self,
        directory: Path,
        settings: Settings | None = None,
        *,
        authorities: Path | None = None,
        logger: Logger | None = None,
    ) -> None:
        """authorities: a directory that `make_authorities` has filled."""
        self._settings = settings or Settings()
        if self._settings.clock not in CLOCKS:
            raise ConfigError(f"clock {self._settings.clock!r}: one of {', '.join(CLOCKS)}")
        self._own = _stack(directory, self._settings)
        self._authorities = authorities
        self._logger = logger or _quiet()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._settled = threading.Event()
        self._failure: BaseException | None = None
        self._cluster: MemoryCluster | None = None
        self._thread: threading.Thread | None = None
        self.url = ""
        """The address of the API server, once it runs."""

    @property
    def kubeconfig(self) -> Path:
        """The file of the administrator."""
        return self._own.kubeconfig

    @property
    def ca_file(self) -> Path:
        """The authority of the server's certificate."""
        return pki_dir(self._own.data_dir) / "ca.crt"

    def start(self) -> None:
        """Start, and return when everything is ready; raises what prevented it."""
        thread = threading.Thread(target=self._run, name="kvstack-cluster", daemon=True)
        self._thread = thread
        thread.start()
        if not self._settled.wait(START_S_MAX):
            raise ComponentError(f"the cluster was not ready within {START_S_MAX} s")
        if self._failure is not None:
            thread.join()
            raise self._failure

    def stop(self) -> None:
        """Stop everything; raises the error that ended the cluster early, if one did."""
        thread, loop, stop = self._thread, self._loop, self._stop
        if thread is None:
            return
        self._thread = None
        if loop is not None and stop is not None and thread.is_alive():
            loop.call_soon_threadsafe(stop.set)
        thread.join()
        if self._failure is not None:
            raise self._failure

    def rows(self) -> Rows:
        """Return all objects as they are now."""
        return self.call(_read(self._live.store))

    def settle(self, timeout_s: float = TIMEOUT_S, *, within_s: float = WITHIN_S) -> Settled:
        """Return once all parts have done what they can; NotSettledError names what still moves.

        Nothing is due within so many seconds, then. With a virtual clock, its time
        is advanced until it is so; timeout_s counts by that clock, too.
        """
        return self.call(settle(self._live, within_s=within_s, timeout_s=timeout_s))

    @property
    def clock(self) -> "ClusterClock":
        """The cluster's virtual clock; ComponentError: it uses the machine's."""
        found = self._live.time
        if found is None:
            raise ComponentError(f'the cluster has no virtual clock: use clock="{VIRTUAL}"')
        return ClusterClock(self, found)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something on the cluster's loop."""
        if self._loop is None:
            work.close()
            raise ComponentError("the cluster does not run")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    @property
    def _live(self) -> MemoryCluster:
        if self._cluster is None:
            raise ComponentError("the cluster does not run")
        return self._cluster

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        self.stop()

    def _run(self) -> None:
        try:
            with self._runner() as runner:
                runner.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - raised by start() or stop()
            self._failure = error
        finally:
            self._settled.set()

    def _runner(self) -> AbstractContextManager[asyncio.Runner]:
        if self._settings.clock == MACHINE:
            return asyncio.Runner()
        # Before it runs, a cluster gets no requests, so its time needs no waiting for them.
        line = Timeline(AT_ONCE, real_s=time.monotonic())
        return asyncio.Runner(loop_factory=partial(VirtualLoop, line))

    def _new_cluster(self, virtual: Virtual | None) -> AbstractAsyncContextManager[MemoryCluster]:
        """Return the cluster, which is started by who enters it."""
        return MemoryCluster(
            self._own,
            stack_options(self._own, CommandLine(TABLE, dict(self._settings.flags))),
            self._logger,
            authorities=self._authorities,
            first_rows=self._settings.rows,
            virtual=virtual,
        )

    async def _serve(self) -> None:
        loop = self._loop = asyncio.get_running_loop()
        virtual = None
        if isinstance(loop, VirtualLoop):
            rng = Random(_seed(self._settings))  # noqa: S311 - of names and uids, of no secrets
            virtual = Virtual(ClusterTime(loop), rng, self._settings.skips)
        self._stop = asyncio.Event()
        async with self._new_cluster(virtual) as cluster:
            if virtual is not None:
                virtual.time.set_rate(STANDING if self._settings.clock == PAUSED else REAL)
            self.url = cluster.url
            self._cluster = cluster
            self._settled.set()
            await self._stop.wait()
            self._cluster = None
            if virtual is not None:
                virtual.time.set_rate(REAL)  # sockets need real time to end


class ClusterClock:
    """The virtual clock of a cluster, for tests."""

    def __init__(self, cluster: BackgroundCluster, time_: ClusterTime) -> None:
        """cluster: must be running."""
        self._cluster: Final = cluster
        self._time: Final = time_

    def now(self) -> datetime:
        """Return the cluster's time."""
        return datetime.fromtimestamp(self._time.now_s, UTC)

    def advance(
        self, seconds: float = 0.0, *, minutes: float = 0.0, hours: float = 0.0, days: float = 0.0
    ) -> None:
        """Advance time at once; all that is due meanwhile happens in order, and is done then."""
        total_s = seconds + 60 * (minutes + 60 * (hours + 24 * days))
        self._cluster.call(self._time.advance(total_s))

    def pause(self) -> None:
        """Stop time."""
        self.set_rate(STANDING)

    def resume(self) -> None:
        """Run time as fast as the machine's."""
        self.set_rate(REAL)

    def set_rate(self, rate: float) -> None:
        """Run time so many times as fast as the machine's."""

        async def set_() -> None:
            self._time.set_rate(rate)

        self._cluster.call(set_())


def _stack(directory: Path, settings: Settings) -> StackOptions:
    return memory_stack(directory, nodes=named(settings.nodes), without=settings.without)


def _quiet() -> LineLogger:
    return LineLogger([], "fatal")


def _seed(settings: Settings) -> str:
    """Return the seed of names and uids.

    The rows may be of a cluster of the same seed: what was given there is not given again.
    """
    return f"{settings.seed} {0 if settings.rows is None else settings.rows.revision}"


async def _read(store: Store) -> Rows:
    rows: list[KeyValue] = []
    revision = 0
    async for page in store.pages(_OBJECTS, prefix_end(_OBJECTS)):
        revision = revision or page.revision
        rows += [kv for kv in page.kvs if not kv.lease and not kv.key.startswith(_OWN)]
    rows.sort(key=lambda kv: kv.mod_revision)
    return FirstRows(rows, revision, readable_from=revision)
