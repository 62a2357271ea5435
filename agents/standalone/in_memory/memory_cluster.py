"""A cluster with a store in memory, on the running loop: the base of tests and forks.

    own = memory_stack(directory, nodes=("n1",))
    async with MemoryCluster(own, stack_options(own, CommandLine(TABLE)), logger) as cluster:
        cluster.url, cluster.server, cluster.store

Its API server listens on a free port of the loopback with TLS. The directory has certificates and
kubeconfigs, nothing else. It starts empty, or with rows of another store: the same objects, uids,
resourceVersions and current revision.

With `virtual`, store, server and agents run on the loop and by the loop's time, without a thread.
Only certificates go by the time of the machine.
"""

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Self, cast

from kvstack.agents.standalone.agent_settings import agent_options
from kvstack.agents.standalone.in_memory.cluster_time import ClusterTime
from kvstack.agents.standalone.parts import NODE
from kvstack.agents.standalone.stack_settings import (
    StackOptions,
    kubernetes_dir,
    pki_dir,
    server_url,
)
from kvstack.apiserver.server.certs.pki import Pki
from kvstack.apiserver.server.settings.options import Options
from kvstack.component.errors import ComponentError
from kvstack.component.logger import Logger
from kvstore.client import Store
from kvstore.embed import FirstRows as FirstRows

if TYPE_CHECKING:
    from kvstack.agents.standalone.local_agents import AgentOptions, LocalAgents
    from kvstack.apiserver.policy.audit.sinks import Sink
    from kvstack.apiserver.server.assembly import ApiServer
    from kvstore.embed import LoopMember, Member

STOP_S: Final = 5.0
VIRTUAL_LEASE_S: Final = 600.0
"""How often hollow nodes renew their leases in virtual time: each renewal delays those who let a
day go by. Their leases say how long they last, and are trusted to."""


class Virtual(NamedTuple):
    """What drives a cluster in virtual time."""

    time: ClusterTime
    """The time of the loop that the cluster runs on."""
    rng: Random
    """The source of names, uids and the spread of retries."""
    skips: bool = True
    """Whether work without effect is left out: periodic reconciles, and most renewals of leases."""


def memory_stack(
    directory: Path, *, nodes: tuple[str, ...] = (), without: frozenset[str] = frozenset()
) -> StackOptions:
    """Return the settings of a cluster in memory; no processes of pods run in it."""
    return StackOptions(
        directory,
        (),
        kubernetes_dir(directory) / "admin.conf",
        "warn",
        (),
        has_peers=False,
        without=without | {NODE},
        hollow_nodes=nodes,
    )


def pki_of(own: StackOptions, options: Options, url: str, logger: Logger) -> Pki:
    """Return the certificates of a cluster; url: of its API server."""
    return Pki(pki_dir(own.data_dir), own.kubeconfig, options, url, logger)


def _in_virtual_time(options: "AgentOptions") -> "AgentOptions":
    """Return the settings of agents, for a day to go by quickly."""
    nodes = replace(options.controllers.nodes, trusts_leases=True)
    return replace(
        options,
        controllers=replace(options.controllers, nodes=nodes),
        lease_every_s=VIRTUAL_LEASE_S,
        skips_looks=True,
    )


class MemoryCluster:
    """Store, API server and agents; several run at once."""

    def __init__(
        self,
        own: StackOptions,
        options: Options,
        logger: Logger,
        *,
        authorities: Path | None = None,
        first_rows: FirstRows | None = None,
        agents: Callable[[StackOptions], "AgentOptions"] = agent_options,
        on_server: "Callable[[ApiServer], None] | None" = None,
        on_serving: Callable[[], Awaitable[None]] | None = None,
        virtual: Virtual | None = None,
        changes: "Sink | None" = None,
    ) -> None:
        """Start nothing yet.

        authorities: a directory whose keys are copied instead of made. first_rows: what the store
        starts with. agents: called for their settings once the certificates exist. on_server:
        called when the API server has read the store, before there are agents; what it raises ends
        the start. on_serving: called when requests are answered; agents are started after it.
        virtual: of the running loop, which is a VirtualLoop; None: the machine's time. changes:
        gets requests that change something.
        """
        self._own: Final = own
        serving = options.serving
        if serving.listens:
            serving = replace(serving, port=0)
        rests = virtual is None or virtual.skips
        self._options: Final = replace(options, serving=serving, is_alone=True, rests=rests)
        self._logger: Final = logger
        self._authorities: Final = authorities
        self._first_rows = first_rows
        self._agents: Final = agents
        self._on_server: Final = on_server
        self._on_serving: Final = on_serving
        self._virtual: Final = virtual
        self._changes: Final = changes
        self._running = AsyncExitStack()
        self._server: ApiServer | None = None
        self._local_agents: LocalAgents | None = None
        self._store: Store | None = None
        self.url = ""
        """The address of the API server, once it runs."""

    @property
    def server(self) -> "ApiServer":
        """The API server of a running cluster."""
        if self._server is None:
            raise ComponentError("the cluster does not run")
        return self._server

    @property
    def time(self) -> ClusterTime | None:
        """The cluster's virtual time; None: it uses the machine's."""
        return None if self._virtual is None else self._virtual.time

    @property
    def agents(self) -> "LocalAgents":
        """The agents of a running cluster; some may still be starting."""
        if self._local_agents is None:
            raise ComponentError("the cluster does not run")
        return self._local_agents

    @property
    def store(self) -> Store:
        """The store of a running cluster."""
        if self._store is None:
            raise ComponentError("the cluster does not run")
        return self._store

    async def __aenter__(self) -> Self:
        """Start, and return when everything is ready."""
        try:
            await self._start(self._running)
        except BaseException:
            await self._running.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop everything."""
        await self._running.aclose()

    async def _start(self, running: AsyncExitStack) -> None:
        from kvstack.agents.standalone.local_agents import LocalAgents
        from kvstack.agents.standalone.pages.clock import add_clock_page
        from kvstack.agents.standalone.pages.settled import add_settled_page
        from kvstack.agents.standalone.pages.store import add_store_pages
        from kvstack.apiserver.server.assembly import ApiServer

        own, logger = self._own, self._logger
        pki = pki_dir(own.data_dir)
        if self._authorities is not None and not pki.exists():
            shutil.copytree(pki_dir(self._authorities), pki)
        made = pki_of(own, self._options, server_url(self._options), logger)
        await asyncio.to_thread(made.ensure)
        member = await self._member(running)
        self._store = await running.enter_async_context(member.store())
        running.callback(self._forget)
        virtual = self._virtual
        clock, rng = (None, None) if virtual is None else (virtual.time.clock, virtual.rng)
        server = ApiServer(
            self._store, self._options, logger, clock=clock, random=rng, changes=self._changes
        )
        if virtual is None:
            add_store_pages(server.site.pages, cast("Member", member).page)
        running.push_async_callback(server.stop, STOP_S)
        await server.start()
        self._server = server
        if virtual is not None:
            counts = server.site.api.in_flight.counts
            virtual.time.go_on_while(lambda: any(counts.values()))
        if self._on_server is not None:
            self._on_server(server)
        await server.ready()
        random = None if rng is None else rng.random
        settings = self._agents(own)
        if virtual is not None and virtual.skips:
            settings = _in_virtual_time(settings)
        agents = LocalAgents(server, settings, logger, clock=clock, random=random)
        self._local_agents = agents
        add_settled_page(self)
        add_clock_page(self)
        self.url = f"https://127.0.0.1:{server.port}"
        pki_of(own, self._options, self.url, logger).ensure()  # writes the kubeconfigs
        if self._on_serving is not None:
            await self._on_serving()
        await running.enter_async_context(agents)

    async def _member(self, running: AsyncExitStack) -> "Member | LoopMember":
        from kvstore import embed

        rows, self._first_rows = self._first_rows, None
        logger, virtual = self._logger, self._virtual
        if virtual is not None:
            on_loop = embed.start_on_loop(virtual.time.clock, logger=logger, first_rows=rows)
            running.callback(on_loop.stop)
            return on_loop
        member = await asyncio.to_thread(embed.start, logger=logger, first_rows=rows)
        running.push_async_callback(asyncio.to_thread, member.stop)
        return member

    def _forget(self) -> None:
        self._server = self._store = self._local_agents = None
