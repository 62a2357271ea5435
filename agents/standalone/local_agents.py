"""The agents that run in the process of an API server.

    async with LocalAgents(server, options, logger): …

Each acts as its own user, through the whole of the server's pipeline, as it would from outside.
What they know of the cluster is held once: one set of informers serves all of them. It reads as the
controller manager's user, whom the bootstrap roles let list and watch every resource.
"""

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from random import SystemRandom
from socket import gethostname
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from kvstack.agents.client.api import Api, Options
from kvstack.agents.client.in_process import InProcess
from kvstack.agents.client.informers import Informers
from kvstack.agents.client.timing import Clock, SystemClock
from kvstack.agents.controllers.options import Options as ControllerOptions
from kvstack.agents.controllers.table import controllers
from kvstack.agents.kubelet.hollow.hollow_nodes import HollowNodes, HollowOptions
from kvstack.agents.reconcile.local_users import LocalUsers
from kvstack.agents.reconcile.manager import Manager
from kvstack.agents.reconcile.runner import Surroundings
from kvstack.agents.standalone.parts import CONTROLLERS, NODE, NODES, SCHEDULER
from kvstack.apiserver.policy.attributes import (
    AUTHENTICATED,
    PRIVILEGED,
    User,
    service_account_groups,
    service_account_name,
)
from kvstack.apiserver.server.assembly import ApiServer
from kvstore.errors import ConfigError
from kvstore.logger import Logger

if TYPE_CHECKING:
    from kvstack.agents.kubelet.real_node import RealNodeOptions

_NAMESPACE: Final = "kube-system"
_MANAGER: Final = "system:kube-controller-manager"
_SCHEDULER: Final = "system:kube-scheduler"
_NODES: Final = "system:nodes"
_KUBELETS: Final = "kvstack:hollow-nodes"


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """What runs."""

    without: frozenset[str] = frozenset()
    hollow_nodes: tuple[str, ...] = ()
    """The nodes that run pods without processes."""
    chosen: str = "*"
    """Which controllers, as `--controllers` says it."""
    node: "RealNodeOptions | None" = None
    """The node that runs pods as processes."""
    controllers: ControllerOptions = field(default_factory=ControllerOptions)


class LocalAgents:
    """Runs the agents beside an API server."""

    def __init__(
        self,
        server: ApiServer,
        options: AgentOptions,
        logger: Logger,
        *,
        clock: Clock | None = None,
        chance: Callable[[], float] | None = None,
    ) -> None:
        """Run nothing yet."""
        self._server = server
        self._options = options
        self._logger = logger
        self._clock = clock or SystemClock()
        self._chance = chance or SystemRandom().random
        self._running = AsyncExitStack()

    async def start(self) -> None:
        """Return once all of them work; whatever comes of it, `stop` ends them."""
        running = self._running
        api = self.api(User(_MANAGER), "kube-controller-manager/shared-informers")
        informers = Informers(api, self._clock, self._chance, self._logger)
        await running.enter_async_context(informers)
        if CONTROLLERS not in self._options.without:
            await self._start_controllers(running, informers)
        if SCHEDULER not in self._options.without:
            await self._start_scheduler(running, informers)
        if NODES not in self._options.without:
            await self._start_nodes(running, informers)
        if self._options.node is not None and NODE not in self._options.without:
            await self._start_node(running, self._options.node)

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
        surroundings = Surroundings(informers, self._clock, self._chance, self._logger)
        chosen = controllers(self._options.controllers, self._options.chosen)
        manager = Manager(chosen, users, surroundings)
        stack.push_async_callback(manager.stop)
        await manager.start()
        self._logger.info("controllers work", count=len(manager.runners))

    async def _start_scheduler(self, stack: AsyncExitStack, informers: Informers) -> None:
        from kvstack.agents.scheduler.live.scheduler import (
            Scheduler,  # brings numpy: only where wanted
        )

        api = self.api(User(_SCHEDULER), "kube-scheduler/scheduler")
        scheduler = Scheduler(
            api, informers, self._clock, self._chance, self._logger, host=gethostname()
        )
        stack.push_async_callback(scheduler.stop)
        await scheduler.start()
        self._logger.info("the scheduler works")

    async def _start_nodes(self, stack: AsyncExitStack, informers: Informers) -> None:
        api = self.api(User(_KUBELETS, groups=(PRIVILEGED,)), "kvstack-hollow-nodes")
        options = HollowOptions(self._options.hollow_nodes)
        nodes = HollowNodes(api, informers, self._clock, self._chance, self._logger, options)
        stack.push_async_callback(nodes.stop)
        await nodes.start()
        self._logger.info("hollow nodes are ready", count=len(self._options.hollow_nodes))

    async def _start_node(self, stack: AsyncExitStack, options: "RealNodeOptions") -> None:
        from kvstack.agents.kubelet.real_node import RealNode  # only where it is wanted

        user = User(f"system:node:{options.name}", groups=(_NODES,))
        node = RealNode(self.api(user, "kubelet"), self._clock, self._chance, self._logger, options)
        stack.push_async_callback(node.stop)
        try:
            await node.start()
        except ConfigError as error:
            # A cluster is of use without one, and this machine cannot have one.
            self._logger.warning("there is no node that runs pods", reason=str(error))
            return
        self._logger.info("the node is ready", name=options.name)

    def _account_token(self, account: str) -> str:
        """Return a token of a service account, or (empty) of the manager itself."""
        if not account:
            return self._server.local.token_for(User(_MANAGER, groups=(AUTHENTICATED,)))
        name = service_account_name(_NAMESPACE, account)
        groups = (*service_account_groups(_NAMESPACE), AUTHENTICATED)
        return self._server.local.token_for(User(name, groups=groups))
