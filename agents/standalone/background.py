"""A cluster in a thread of this process, for tests of programs that use one.

    with BackgroundCluster(directory) as cluster:
        cluster.url, cluster.kubeconfig, cluster.ca_file

Its store is in memory; its API server listens on a free port of the loopback with TLS. Several run
at once. Certificates that are in the directory already are used, so that who starts many makes them
once (`make_authorities`).

`rows` is a snapshot of all objects; a cluster that is given one begins with them: the same objects,
uids, resourceVersions and current revision. Events, which end by themselves, are left behind.
"""

import asyncio
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeAlias

from kvstack.agents.kubelet.hollow.nodes import named
from kvstack.agents.standalone.memory_cluster import (
    FirstRows,
    MemoryCluster,
    memory_stack,
    pki_of,
)
from kvstack.agents.standalone.stack_settings import (
    StackOptions,
    pki_dir,
    server_url,
    stack_options,
)
from kvstack.apiserver.server.settings.flags import TABLE
from kvstack.component.errors import ComponentError
from kvstack.component.flags.command_line import CommandLine, Value
from kvstack.component.line_log.line_logger import LineLogger
from kvstack.component.logger import Logger
from kvstore.client import Store
from kvstore.client.values import KeyValue, prefix_end

Rows: TypeAlias = FirstRows

START_S_MAX: Final = 60.0

_OBJECTS: Final = b"/registry/"
_OWN: Final = (
    # Of the server that wrote them, and remade by the next one.
    b"/registry/masterleases/",
    b"/registry/leases/kube-system/apiserver-",
)


class Settings(NamedTuple):
    """What runs in the cluster."""

    nodes: int = 1
    without: frozenset[str] = frozenset()
    rows: Rows | None = None
    """What there is at the start: of another cluster's `rows`."""
    flags: Mapping[str, Value] = {}
    """Of the API server, by name, over those that suit a test."""


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
        """Start nothing yet; authorities: a directory that `make_authorities` has filled."""
        self._own = _stack(directory, settings or Settings())
        self._settings = settings or Settings()
        self._authorities = authorities
        self._logger = logger or _quiet()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._settled = threading.Event()
        self._failure: BaseException | None = None
        self._store: Store | None = None
        self._thread: threading.Thread | None = None
        self.url = ""
        """Of the API server, once it runs."""

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
        """End everything; raises what ended it, if it ended by itself."""
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
        loop, store = self._loop, self._store
        if loop is None or store is None:
            raise ComponentError("the cluster does not run")
        return asyncio.run_coroutine_threadsafe(_read(store), loop).result()

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
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - raised by start() or stop()
            self._failure = error
        finally:
            self._settled.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        cluster = MemoryCluster(
            self._own,
            stack_options(self._own, CommandLine(TABLE, dict(self._settings.flags))),
            self._logger,
            authorities=self._authorities,
            first_rows=self._settings.rows,
        )
        async with cluster:
            self.url = cluster.url
            self._store = cluster.store
            self._settled.set()
            await self._stop.wait()
            self._store = None


def _stack(directory: Path, settings: Settings) -> StackOptions:
    return memory_stack(directory, nodes=named(settings.nodes), without=settings.without)


def _quiet() -> LineLogger:
    return LineLogger([], "fatal")


async def _read(store: Store) -> Rows:
    rows: list[KeyValue] = []
    revision = 0
    async for page in store.pages(_OBJECTS, prefix_end(_OBJECTS)):
        revision = revision or page.revision
        rows += [kv for kv in page.kvs if not kv.lease and not kv.key.startswith(_OWN)]
    rows.sort(key=lambda kv: kv.mod_revision)
    return FirstRows(rows, revision, readable_from=revision)
