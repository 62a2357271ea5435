"""A cluster in a thread of this process, for tests of programs that use one.

    with BackgroundCluster(directory) as cluster:
        cluster.url, cluster.kubeconfig, cluster.ca_file

Its store is in memory; its API server listens on a free port of the loopback with TLS. Several run
at once. Certificates that are in the directory already are used, so that who starts many makes them
once (`make_authorities`).

`rows` is a snapshot of all objects; a cluster that is given one begins with them. They keep their
names, uids and contents; resourceVersions are the new store's. Events, which end by themselves, are
left behind.
"""

import asyncio
import shutil
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeAlias

from kvstack.agents.kubelet.hollow.nodes import named
from kvstack.agents.standalone.agent_settings import agent_options
from kvstack.agents.standalone.parts import NODE
from kvstack.agents.standalone.stack_settings import (
    StackOptions,
    kubernetes_dir,
    pki_dir,
    server_url,
    stack_options,
)
from kvstack.apiserver.server.certs.pki import Pki
from kvstack.apiserver.server.settings.flags import TABLE
from kvstack.apiserver.server.settings.options import Options
from kvstack.component.errors import ComponentError
from kvstack.component.flags.command_line import CommandLine, Value
from kvstack.component.line_log.line_logger import LineLogger
from kvstack.component.logger import Logger
from kvstore.client import Store
from kvstore.client.values import Put, prefix_end

Rows: TypeAlias = Sequence[tuple[bytes, bytes]]

START_S_MAX: Final = 60.0
STOP_S: Final = 5.0
PUTS_MAX: Final = 100  # of one transaction; the store's own limit is 128

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
    rows: Rows = ()
    """What there is at the start: of another cluster's `rows`."""
    flags: Mapping[str, Value] = {}
    """Of the API server, by name, over those that suit a test."""


def make_authorities(directory: Path, logger: Logger | None = None) -> None:
    """Make certificates and keys in a directory, for any number of clusters to be copied to."""
    own = _stack(directory, Settings())
    options = stack_options(own, CommandLine(TABLE))
    _pki(own, options, logger or _quiet()).ensure()


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
        from kvstack.agents.standalone.local_agents import LocalAgents
        from kvstack.agents.standalone.store_pages import add_store_pages
        from kvstack.apiserver.server.assembly import ApiServer
        from kvstore import embed

        own = self._own
        pki = pki_dir(own.data_dir)
        if self._authorities is not None and not pki.exists():
            shutil.copytree(pki_dir(self._authorities), pki)
        options = stack_options(own, CommandLine(TABLE, dict(self._settings.flags)))
        await asyncio.to_thread(_pki(own, options, self._logger).ensure)
        options = replace(options, serving=replace(options.serving, port=0))
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        member = await asyncio.to_thread(embed.start, logger=self._logger)
        try:
            async with member.store() as store:
                await _write(store, self._settings.rows)
                server = ApiServer(store, options, self._logger)
                add_store_pages(server.site.pages, member.page)
                await server.start()
                try:
                    await server.ready()
                    async with LocalAgents(server, agent_options(own), self._logger):
                        self.url = f"https://127.0.0.1:{server.port}"
                        self._write_kubeconfig(own, options)
                        self._store = store
                        self._settled.set()
                        await self._stop.wait()
                        self._store = None
                finally:
                    await server.stop(STOP_S)
        finally:
            await asyncio.to_thread(member.stop)

    def _write_kubeconfig(self, own: StackOptions, options: Options) -> None:
        Pki(pki_dir(own.data_dir), own.kubeconfig, options, self.url, self._logger).ensure()


def _stack(directory: Path, settings: Settings) -> StackOptions:
    return StackOptions(
        directory,
        (),
        kubernetes_dir(directory) / "admin.conf",
        "warn",
        (),
        has_peers=False,
        without=settings.without | {NODE},  # tests run no processes of pods
        hollow_nodes=named(settings.nodes),
    )


def _pki(own: StackOptions, options: Options, logger: Logger) -> Pki:
    return Pki(pki_dir(own.data_dir), own.kubeconfig, options, server_url(options), logger)


def _quiet() -> LineLogger:
    return LineLogger([], "fatal")


async def _read(store: Store) -> Rows:
    rows: list[tuple[bytes, bytes]] = []
    async for page in store.pages(_OBJECTS, prefix_end(_OBJECTS)):
        rows += [
            (kv.key, kv.value) for kv in page.kvs if not kv.lease and not kv.key.startswith(_OWN)
        ]
    return rows


async def _write(store: Store, rows: Rows) -> None:
    for first in range(0, len(rows), PUTS_MAX):
        await store.txn((), [Put(key, value) for key, value in rows[first : first + PUTS_MAX]])
