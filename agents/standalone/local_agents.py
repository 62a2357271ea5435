"""The agents that run in the process of an API server.

    async with LocalAgents(server, options, logger): …

Each acts as its own user, through the whole of the server's pipeline, as it would from outside.
What they know of the cluster is held once: one set of informers serves all of them. It reads as the
controller manager's user, whom the bootstrap roles let list and watch every resource.
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from random import SystemRandom
from socket import gethostname
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from kvstack.agents.client.activity import Activity, Moving
from kvstack.agents.client.api import Api, Options
from kvstack.agents.client.built_in import NODES as BUILT_IN_NODES
from kvstack.agents.client.event_recorder import EventRecorder
from kvstack.agents.client.in_process import InProcess
from kvstack.agents.client.informers import Informers
from kvstack.agents.controllers.light_objects import LIGHT
from kvstack.agents.controllers.options import Options as ControllerOptions
from kvstack.agents.controllers.table import controllers
from kvstack.agents.kubelet.hollow.hollow_nodes import HollowNodes, HollowOptions
from kvstack.agents.reconcile.local_users import LocalUsers
from kvstack.agents.reconcile.manager import Manager
from kvstack.agents.reconcile.runner import Environment
from kvstack.agents.standalone.dns_access import USER as DNS_USER
from kvstack.agents.standalone.local_metrics import (
    LocalMetrics,
    MetricsOptions,
    NodeAtHand,
    OwnNode,
)
from kvstack.agents.standalone.local_path.directories import VOLUMES, Directories
from kvstack.agents.standalone.local_path.provisioner import LocalNode, LocalPathProvisioner
from kvstack.agents.standalone.own_usage import HollowUsage, of_real_node
from kvstack.agents.standalone.pages.scheduling import add_scheduling_page
from kvstack.agents.standalone.parts import (
    CONTROLLERS,
    DNS,
    LOAD_BALANCER,
    LOCAL_PATH,
    METRICS,
    NODE,
    NODES,
    SCHEDULER,
)
from kvstack.apimachinery.attributes import (
    AUTHENTICATED,
    PRIVILEGED,
    User,
    service_account_groups,
    service_account_name,
)
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apiserver.registry.registry import Registry
from kvstack.apiserver.server.assembly import ApiServer
from kvstack.apiserver.server.components import CONTROLLER_MANAGER
from kvstack.apiserver.server.components import SCHEDULER as COMPONENT_SCHEDULER
from kvstack.component.clock import Clock, SystemClock
from kvstack.component.errors import ConfigError
from kvstack.component.logger import Logger

if TYPE_CHECKING:
    from kvstack.agents.kubelet.real_node import RealNodeOptions
    from kvstack.agents.kubelet.routes.node_routes import RouteOptions
    from kvstack.agents.standalone.joining.cluster_facts import ClusterFacts
    from kvstack.agents.standalone.local_dns import LocalDnsOptions
    from kvstack.agents.standalone.local_proxy import LocalProxyOptions
    from kvstack.agents.standalone.rootless.outside import Outside

WATCH_S: Final = 86_400
"""How long a watch of this process lasts: no connection can break unnoticed."""
_NAMESPACE: Final = "kube-system"
_MANAGER: Final = "system:kube-controller-manager"
_SCHEDULER: Final = "system:kube-scheduler"
_NODES: Final = "system:nodes"
_KUBELETS: Final = "kvstack:hollow-nodes"


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """What runs, and how."""

    without: frozenset[str] = frozenset()
    hollow_nodes: tuple[str, ...] = ()
    """The nodes that run pods without processes."""
    chosen: str = "*"
    """The controllers that run, in the syntax of `--controllers`."""
    node: "RealNodeOptions | None" = None
    """The node that runs pods as processes."""
    dns: "LocalDnsOptions | None" = None
    """The DNS of the cluster."""
    controllers: ControllerOptions = field(default_factory=ControllerOptions)
    metrics: MetricsOptions = field(default_factory=MetricsOptions)
    proxy: "LocalProxyOptions | None" = None
    """The service proxy of this machine; None: others serve it, or it is no node."""
    routes: "RouteOptions | None" = None
    """How pods of other nodes are reached; None: pods share their nodes' networks."""
    facts: "ClusterFacts | None" = None
    """The ConfigMaps for joining machines; None: none are written."""
    outside: "Outside | None" = None
    """The process outside of the user namespace that this one is in; None: it is in none."""
    found_nodes: tuple[str, ...] = ()
    """Nodes of a copied cluster, which are run without processes."""
    adopts_nodes: bool = True
    """Whether nodes of others with the label of hollow nodes are run, too."""
    ready_after_s: float = 0.0
    """The time from the start of hollow nodes' pods until they are ready."""
    lease_every_s: float = 10.0
    """The interval at which hollow nodes renew their leases."""
    skips_looks: bool = False
    """Whether periodic reconciles that would do nothing are left out."""


class LocalAgents:
    """Runs the agents beside an API server."""

    def __init__(
        self,
        server: ApiServer,
        options: AgentOptions,
        logger: Logger,
        *,
        clock: Clock | None = None,
        random: Callable[[], float] | None = None,
    ) -> None:
        self._server = server
        self._options = options
        self._logger = logger
        self._clock = clock or SystemClock()
        self._random = random or SystemRandom().random
        self._running = AsyncExitStack()
        self._own_nodes: list[OwnNode] = []
        self._nodes_at_hand: list[NodeAtHand] = []
        self._active: list[Callable[[Activity], None]] = []
        """Add what parts do now."""
        self._informers: Informers | None = None
        self._is_started = False

    async def start(self) -> None:
        """Return once all of them work; whatever comes of it, `stop` ends them."""
        running = self._running
        api = self.api(User(_MANAGER), "kube-controller-manager/shared-informers")
        informers = Informers(
            api, self._clock, self._random, self._logger, watch_s=WATCH_S, lighten=LIGHT
        )
        await running.enter_async_context(informers)
        self._informers = informers
        if CONTROLLERS not in self._options.without:
            await self._start_controllers(running, informers)
        if LOCAL_PATH not in self._options.without:
            await self._start_local_path(running, informers)
        if SCHEDULER not in self._options.without:
            await self._start_scheduler(running, informers)
        if NODES not in self._options.without:
            await self._start_nodes(running, informers)
        if self._options.proxy is not None:
            await self._start_proxy(running, informers, self._options.proxy)
        if self._options.node is not None and NODE not in self._options.without:
            await self._start_node(running, informers, self._options.node)
        if self._options.outside is not None and self._options.node is not None:
            own = self._options.node.name, self._options.node.ip
            await self._publish(running, informers, self._options.outside, own)
        if self._options.facts is not None:
            self._start_telling(running, self._options.facts)
        if METRICS not in self._options.without:
            await self._start_metrics(running, informers)
        if self._options.dns is not None and DNS not in self._options.without:
            await self._start_dns(running, informers, self._options.dns)
        self._is_started = True

    def activity(self) -> Activity:
        """Return the current work of all agents, and which watches are behind."""
        activity = Activity()
        if not self._is_started:
            activity.moving.append(Moving("agents", "", "are being started"))
        for add in self._active:
            add(activity)
        if self._informers is not None:
            add_positions(activity, self._informers, self._server.registry)
        return activity

    async def stop(self) -> None:
        """End all of them."""
        await self._running.aclose()

    async def __aenter__(self) -> Self:
        """Start."""
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        await self.stop()

    def api(self, user: User, user_agent: str) -> Api:
        """Return the API as a user."""
        local = self._server.local
        named = user._replace(groups=(*user.groups, AUTHENTICATED))
        transport = InProcess(local.transport, local.token_for(named))
        return Api(transport, Options(user_agent=user_agent))

    async def _start_controllers(self, stack: AsyncExitStack, informers: Informers) -> None:
        users = LocalUsers(
            self._server.local.transport, self._account_token, "kube-controller-manager"
        )
        environment = self._environment(informers)
        chosen = controllers(self._options.controllers, self._options.chosen)
        if LOAD_BALANCER not in self._options.without and self._options.proxy is not None:
            from kvstack.agents.controllers.network.node_balancers import NodeBalancers

            chosen = [*chosen, NodeBalancers()]
        manager = Manager(chosen, users, environment)
        stack.push_async_callback(manager.stop)
        await manager.start()
        self._active.append(manager.add_activity)
        self._tell_health(stack, CONTROLLER_MANAGER, lambda: manager.is_working)
        self._logger.info("controllers are running", count=len(manager.runners))

    async def _start_local_path(self, stack: AsyncExitStack, informers: Informers) -> None:
        options = self._options.node
        node = None
        if options is not None and NODE not in self._options.without:
            directories = Directories(options.root / VOLUMES)
            node = LocalNode(options.name, directories)
            problem = await asyncio.to_thread(directories.quotas.problem)
            text = "capacity of local-path volumes"
            self._logger.info(text, enforced=not problem, reason=problem or "project quotas")
        transport = self._server.local.transport
        users = LocalUsers(transport, self._account_token, "kvstack-local-path")
        environment = self._environment(informers)
        manager = Manager([LocalPathProvisioner(node)], users, environment)
        stack.push_async_callback(manager.stop)
        await manager.start()
        self._active.append(manager.add_activity)

    async def _start_scheduler(self, stack: AsyncExitStack, informers: Informers) -> None:
        from kvstack.agents.scheduler.live.scheduler import (
            Scheduler,  # brings numpy: only where wanted
        )

        api = self.api(User(_SCHEDULER), "kube-scheduler/scheduler")
        scheduler = Scheduler(
            api, informers, self._clock, self._random, self._logger, host=gethostname()
        )
        stack.push_async_callback(scheduler.stop)
        await scheduler.start()
        self._active.append(scheduler.add_activity)
        self._tell_health(stack, COMPONENT_SCHEDULER, lambda: scheduler.is_synced)
        add_scheduling_page(self._server.site.pages, scheduler.refusals.rows)
        self._logger.info("the scheduler is running")

    def _environment(self, informers: Informers) -> Environment:
        skips, pages = self._options.skips_looks, self._server.site.discovery
        return Environment(
            informers,
            self._clock,
            self._random,
            self._logger,
            skips_looks=skips,
            served=(lambda: pages.generation) if skips else None,
        )

    def _tell_health(
        self, stack: AsyncExitStack, name: str, is_working: Callable[[], bool]
    ) -> None:
        """Show a part of this process in ComponentStatuses until it is stopped."""
        components = self._server.components
        components.attach(name, is_working)
        stack.callback(components.detach, name)

    async def _start_nodes(self, stack: AsyncExitStack, informers: Informers) -> None:
        api = self.api(User(_KUBELETS, groups=(PRIVILEGED,)), "kvstack-hollow-nodes")
        given = self._options
        options = HollowOptions(
            given.hollow_nodes,
            given.adopts_nodes,
            given.found_nodes,
            ready_after_s=given.ready_after_s,
            lease_every_s=given.lease_every_s,
        )
        nodes = HollowNodes(api, informers, self._clock, self._random, self._logger, options)
        stack.push_async_callback(nodes.stop)
        await nodes.start()
        self._active.append(nodes.add_activity)
        self._nodes_at_hand.append(HollowUsage(nodes, self._clock))
        self._logger.info("hollow nodes are ready", count=len(self._options.hollow_nodes))

    async def _start_proxy(
        self, stack: AsyncExitStack, informers: Informers, options: "LocalProxyOptions"
    ) -> None:
        from kvstack.agents.standalone.local_proxy import LocalProxy  # only loaded if needed

        proxy = LocalProxy(informers, options, self._clock, self._logger)
        stack.push_async_callback(proxy.stop)
        await proxy.start()

    async def _start_node(
        self, stack: AsyncExitStack, informers: Informers, options: "RealNodeOptions"
    ) -> None:
        from kvstack.agents.kubelet.real_node import RealNode  # only loaded if needed
        from kvstack.agents.kubelet.routes.node_routes import NodeRoutes

        user = User(f"system:node:{options.name}", groups=(_NODES,))
        api = self.api(user, "kubelet")
        if self._options.routes is not None:
            recorder = EventRecorder(
                api, "kubelet", self._clock, self._random, self._logger, host=options.name
            )
            stack.push_async_callback(recorder.close)
            nodes = informers.of(BUILT_IN_NODES)
            routes = NodeRoutes(nodes, recorder, self._logger, self._options.routes)
            stack.push_async_callback(routes.stop)
            await routes.start()
        node = RealNode(api, self._clock, self._random, self._logger, options, informers)
        stack.push_async_callback(node.stop)
        try:
            await node.start()
        except ConfigError as error:
            # A cluster is of use without one, and this machine cannot have one.
            self._logger.warning("no node runs pods", reason=str(error))
            return
        self._own_nodes.append(of_real_node(node, self._clock))
        self._active.append(node.kubelet.add_activity)
        self._logger.info("the node is ready", name=options.name)

    async def _publish(
        self,
        stack: AsyncExitStack,
        informers: Informers,
        outside: "Outside",
        node: tuple[str, str],
    ) -> None:
        from kvstack.agents.standalone.rootless.published import PublishedPorts

        ports = PublishedPorts(outside, informers, node, self._logger)
        stack.push_async_callback(ports.stop)
        await ports.start()

    async def _start_metrics(self, stack: AsyncExitStack, informers: Informers) -> None:
        metrics = LocalMetrics(
            self._server,
            informers,
            self._clock,
            self._logger,
            self._options.metrics,
            self._own_nodes,
            self._nodes_at_hand,
        )
        stack.push_async_callback(metrics.stop)
        await metrics.start()
        self._logger.info("metrics of nodes and pods are served")

    def _start_telling(self, stack: AsyncExitStack, facts: "ClusterFacts") -> None:
        from kvstack.agents.standalone.joining.access import USER as JOINING_USER
        from kvstack.agents.standalone.joining.cluster_facts import FactsKeeper

        api = self.api(User(JOINING_USER), "kvstack-joining")
        keeper = FactsKeeper(api, facts, self._logger)
        stack.push_async_callback(keeper.stop)
        keeper.start()

    async def _start_dns(
        self, stack: AsyncExitStack, informers: Informers, options: "LocalDnsOptions"
    ) -> None:
        from kvstack.agents.standalone.local_dns import LocalDns  # brings dnspython

        api = self.api(User(DNS_USER), "kvstack-dns")
        dns = LocalDns(api, informers, self._clock, self._logger, options)
        stack.push_async_callback(dns.stop)
        await dns.start()

    def _account_token(self, account: str) -> str:
        """Return a token of a service account, or (empty) of the manager itself."""
        if not account:
            return self._server.local.token_for(User(_MANAGER, groups=(AUTHENTICATED,)))
        name = service_account_name(_NAMESPACE, account)
        groups = (*service_account_groups(_NAMESPACE), AUTHENTICATED)
        return self._server.local.token_for(User(name, groups=groups))


def add_positions(found: Activity, informers: Informers, registry: Registry) -> None:
    """Add the watches that were not handed the last change of their resource."""
    for resource, version in informers.positions():
        collection = registry.find(GroupResource(resource.group, resource.name))
        if collection is not None and _is_behind(version, collection.revision):
            why = f"is at {version or 'nothing'}, behind {collection.revision}"
            found.moving.append(Moving("watch", str(resource), why))


def _is_behind(version: str, revision: int) -> bool:
    """Return whether a watch has not delivered the last change of its resource."""
    return not version.isdecimal() or int(version) < revision
