"""A cluster that begins with contents, on the running loop.

    async with ForkCluster(contents, ForkSettings(), directory, logger) as fork:
        fork.url, fork.kubeconfig, fork.left_out, fork.unasked

It has the same objects, uids, resourceVersions and current revision. Nodes of the contents become
hollow nodes, on which pods go on as they were found; `settings.nodes` asks for others. Nothing
leaves it (`Outbound`), its keys are its own, and its user is of system:masters, so that no binding
of the contents is needed. Objects that cannot be read are set aside and named: one that is damaged
would make every list of its kind fail.
"""

from collections.abc import Awaitable, Callable, Collection
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from kvstack.agents.kubelet.hollow.nodes import named
from kvstack.agents.standalone.agent_settings import agent_options
from kvstack.agents.standalone.in_memory.memory_cluster import (
    MemoryCluster,
    Virtual,
    memory_stack,
)
from kvstack.agents.standalone.parts import (
    DASHBOARD,
    DNS,
    JOINING,
    LOAD_BALANCER,
    LOCAL_PATH,
    METRICS,
    NETWORK_POLICY,
    NODE,
    PARTS,
    PROXY,
)
from kvstack.agents.standalone.stack_settings import StackOptions, kubernetes_dir
from kvstack.apimachinery.objects.core.node_status import is_ready
from kvstack.clusters.contents import Contents, LeftOut
from kvstack.clusters.forks.fork_settings import NO_NODES as NO_NODES
from kvstack.clusters.forks.fork_settings import ForkSettings as ForkSettings
from kvstack.clusters.forks.server_settings import server_options
from kvstack.clusters.kinds import Kinds, key_text
from kvstack.component.errors import ComponentError
from kvstack.component.logger import Logger
from kvstore.client.values import KeyValue

if TYPE_CHECKING:
    from kvstack.agents.standalone.local_agents import AgentOptions
    from kvstack.apiserver.policy.audit.sinks import Sink
    from kvstack.apiserver.server.assembly import ApiServer
    from kvstack.apiserver.webhooks.outbound import Unasked

UNREADABLE_MAX: Final = 1_000
"""Objects that are set aside; more are an error of the contents as a whole."""
_NEVER: Final = frozenset((NODE, DNS, PROXY, JOINING, NETWORK_POLICY, LOAD_BALANCER, LOCAL_PATH))
"""Parts that would act on the machine."""
_NODES: Final = b"/registry/minions/"
_OF_NODES: Final = (_NODES, b"/registry/csinodes/", b"/registry/leases/kube-node-lease/")
_PODS: Final = b"/registry/pods/"
_METRICS: Final = b"/registry/apiregistration.k8s.io/apiservices/v1beta1.metrics.k8s.io"


class _UnreadableError(Exception):
    """There are objects that cannot be read, by key."""

    def __init__(self, why: dict[bytes, str]) -> None:
        super().__init__()
        self.why: Final = why


class ForkCluster:
    """A running fork."""

    def __init__(
        self,
        contents: Contents,
        settings: ForkSettings,
        directory: Path,
        logger: Logger,
        *,
        virtual: Virtual | None = None,
        changes: "Sink | None" = None,
        agents: "Callable[[StackOptions], AgentOptions]" = agent_options,
        authorities: Path | None = None,
        on_serving: "Callable[[ForkCluster], Awaitable[None]] | None" = None,
    ) -> None:
        """Start nothing yet; directory: for certificates and kubeconfigs.

        virtual: the time that it follows; changes: is told of what is changed; agents: gives their
        settings; authorities: keys that are copied instead of made; on_serving: called when
        requests are answered, before agents are started (`MemoryCluster`).
        """
        self._contents: Contents | None = contents
        self._settings: Final = settings
        self._directory: Final = directory
        self._logger: Final = logger
        self._virtual: Final = virtual
        self._changes: Final = changes
        self._agents: Final = agents
        self._authorities: Final = authorities
        self._on_serving: Final = on_serving
        self._running = AsyncExitStack()
        self._cluster: MemoryCluster | None = None
        self.left_out: Final = list(contents.left_out)
        """What is not as it was in the source, and why."""

    @property
    def url(self) -> str:
        """Of the API server."""
        return self._live.url

    @property
    def kubeconfig(self) -> Path:
        """The file of the fork's user."""
        return kubernetes_dir(self._directory) / "super-admin.conf"

    @property
    def server(self) -> "ApiServer":
        """The API server."""
        return self._live.server

    @property
    def unasked(self) -> "list[Unasked]":
        """What was not asked of others."""
        return self.server.outbound.unasked

    @property
    def cluster(self) -> MemoryCluster:
        """Store, server and agents."""
        return self._live

    @property
    def _live(self) -> MemoryCluster:
        if self._cluster is None:
            raise ComponentError("the fork does not run")
        return self._cluster

    async def __aenter__(self) -> Self:
        """Start, and return when everything is ready; raises ComponentError."""
        try:
            await self._start()
        except _UnreadableError as error:
            self._set_aside(error.why)
            await self._start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop everything."""
        self._cluster = None
        await self._running.aclose()

    async def _start(self) -> None:
        async def serving() -> None:
            self._cluster = cluster
            if self._on_serving is not None:
                await self._on_serving(self)

        cluster = self._new_cluster(serving)
        await self._running.enter_async_context(cluster)

    def _new_cluster(self, on_serving: Callable[[], Awaitable[None]]) -> MemoryCluster:
        contents, settings = self._contents, self._settings
        assert contents is not None, "a fork is started once"
        rows, hollow, found = self._with_nodes(contents)
        without = frozenset(PARTS) if settings.is_read_only else settings.without | _NEVER
        own = memory_stack(self._directory, nodes=hollow, without=without)
        kinds = Kinds.of(rows)
        if not _serves_own_metrics(kinds, rows):
            own = own._replace(without=own.without | {METRICS})
        options = server_options(
            own,
            kinds,
            rows,
            asks_others=settings.asks_others,
            is_read_only=settings.is_read_only,
        )
        first = replace(contents, rows=rows).first_rows(has_leases=not settings.is_read_only)
        # What follows holds nothing of the contents: they are let go once they are laid.
        unread = frozenset((each.group, each.resource) for each in contents.unread)

        def agents(stack: StackOptions) -> "AgentOptions":
            given = self._agents(stack)
            controllers = replace(given.controllers, unread_kinds=unread)
            return replace(
                given,
                controllers=controllers,
                found_nodes=found,
                adopts_nodes=settings.nodes != NO_NODES,
                ready_after_s=settings.ready_after_s,
            )

        return MemoryCluster(
            own,
            options,
            self._logger,
            first_rows=first,
            agents=agents,
            on_server=self._look_at,
            on_serving=on_serving,
            virtual=self._virtual,
            changes=self._changes,
            authorities=self._authorities,
        )

    def _with_nodes(
        self, contents: Contents
    ) -> tuple[list[KeyValue], tuple[str, ...], tuple[str, ...]]:
        """Return the rows, the hollow nodes that are made, and those that are found."""
        rows, asked = list(contents.rows), self._settings.nodes
        if asked and asked != NO_NODES:
            return [kv for kv in rows if not kv.key.startswith(_OF_NODES)], named(int(asked)), ()
        if asked == NO_NODES or self._settings.is_read_only:
            return rows, (), ()
        kinds = Kinds()
        nodes = [obj for _, obj in kinds.objects(kv for kv in rows if kv.key.startswith(_NODES))]
        if nodes:
            return rows, (), tuple(each["metadata"]["name"] for each in nodes if is_ready(each))
        # They could not be read: pods tell which there are.
        pods = kinds.objects(kv for kv in rows if kv.key.startswith(_PODS))
        names = tuple(sorted({name for _, pod in pods if (name := pod["spec"].get("nodeName"))}))
        return rows, names, names

    def _look_at(self, server: "ApiServer") -> None:
        """Raise if the server cannot read objects that it was given."""
        cache = server.registry.watch_cache
        why = {
            cache.prefixes.key(prefix, key): record.error
            for prefix, collection in cache.collections.items()
            for key, record in collection.broken.items()
        }
        if why:
            raise _UnreadableError(why)
        self._contents = None  # as large as all that follows, and of no more use
        if DASHBOARD not in self._settings.without:
            from kvstack.agents.standalone.pages.dashboard import add_dashboard

            add_dashboard(server.site.pages)

    def _set_aside(self, why: dict[bytes, str]) -> None:
        contents = self._contents
        assert contents is not None
        if len(why) > UNREADABLE_MAX:
            key, text = next(iter(why.items()))
            raise ComponentError(
                f"{len(why)} objects cannot be read, more than {UNREADABLE_MAX}; "
                f"{key_text(key)}: {text}"
            )
        self.left_out.extend(LeftOut(key_text(key), text, 1) for key, text in sorted(why.items()))
        history = contents.history
        if history is not None:
            history = history._replace(records=_without(history.records, why))
        self._contents = replace(contents, rows=_without(contents.rows, why), history=history)


def _without(rows: Collection[KeyValue], keys: Collection[bytes]) -> list[KeyValue]:
    return [kv for kv in rows if kv.key not in keys]


def _serves_own_metrics(kinds: Kinds, rows: Collection[KeyValue]) -> bool:
    """Whether the API server of the contents told what nodes use, by itself."""
    for kv in rows:
        if kv.key == _METRICS:
            found = next((obj for _, obj in kinds.objects([kv])), {})
            return (found.get("spec") or {}).get("service") is None
    return False
