"""Controller managers, schedulers and nodes: each a process that crashes and starts again.

    manager     leader election ─► informers ─► all controllers, each as its own user
    scheduler   leader election ─► informers ─► scheduler
    node        one hollow node with its informers

A process that has crashed sends nothing more; what it held, such as a lease, is not given back.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Final

from typing_extensions import override

from kvstack.agents.client.api import Api, Options
from kvstack.agents.client.informers import Informers
from kvstack.agents.client.leader_election import LeaderElection, LeaseName, Terms
from kvstack.agents.controllers.light_objects import LIGHT
from kvstack.agents.controllers.options import NodeLifecycleOptions
from kvstack.agents.controllers.options import Options as ControllerOptions
from kvstack.agents.controllers.table import controllers
from kvstack.agents.kubelet.hollow.hollow_nodes import HollowNodes, HollowOptions
from kvstack.agents.reconcile.manager import Manager
from kvstack.agents.reconcile.plan import Controller
from kvstack.agents.reconcile.runner import Environment
from kvstack.agents.scheduler.live.scheduler import Scheduler
from kvstack.apimachinery.attributes import (
    AUTHENTICATED,
    PRIVILEGED,
    User,
    service_account_groups,
    service_account_name,
)
from tests.sim.stack.base import BaseWorld
from tests.sim.stack.links import SimTransport
from tests.sim.stack.timing import SimClock

_NAMESPACE: Final = "kube-system"
_MANAGER: Final = User("system:kube-controller-manager", groups=(AUTHENTICATED,))
_SCHEDULER: Final = User("system:kube-scheduler", groups=(AUTHENTICATED,))
_NODES: Final = User("nodes", groups=(PRIVILEGED, AUTHENTICATED))
_TERMS: Final = Terms(duration_s=24, renew_deadline_s=16.0, retry_s=5.0)
OPTIONS: Final = ControllerOptions(nodes=NodeLifecycleOptions(eviction_rate=1.0))

ControllersOf = Callable[[], Sequence[Controller]]


class AgentProcess:
    """One process, most of the time."""

    def __init__(self, world: BaseWorld, name: str) -> None:
        """Run nothing yet."""
        self.name: Final = name
        self.clock: Final = SimClock()
        self.life = 0
        self._world = world
        self._random = world.rng.random
        self._transports: list[SimTransport] = []
        self._process: asyncio.Task[None] | None = None

    @property
    def is_down(self) -> bool:
        """Whether it does not run."""
        return self._process is None

    def start(self) -> None:
        """Run until it crashes."""
        self.life += 1
        self._world.note(self.name, "starts")
        self._transports = []
        self._process = self._world.spawn(self._run(), self.name)

    def crash(self) -> None:
        """End the process: nothing more gets out of it."""
        process, self._process = self._process, None
        if process is not None:
            self._world.note(self.name, "ends")
            for each in self._transports:
                each.kill()
            process.cancel()

    def cut(self, *, is_cut: bool) -> None:
        """Cut it off from the API servers, or no more."""
        self._world.note(self.name, "is cut off" if is_cut else "is reached")
        for each in self._transports:
            each.is_cut = is_cut

    def api(self, user: User) -> Api:
        """Return the API as a user."""
        transport = SimTransport(self._world.network, f"{self.name}{self.life}", user)
        self._transports.append(transport)
        return Api(transport, Options(user_agent=self.name))

    async def api_of(self, service_account: str) -> Api:
        """Return the API as a service account of kube-system, or (empty) as the manager itself."""
        if not service_account:
            return self.api(_MANAGER)
        name = service_account_name(_NAMESPACE, service_account)
        return self.api(User(name, groups=(*service_account_groups(_NAMESPACE), AUTHENTICATED)))

    async def _run(self) -> None:
        raise NotImplementedError

    async def _elected(self, api: Api, lease: str, lead: "Callable[[], Awaitable[None]]") -> None:
        """Lead whenever the lease is held; a process whose lease is lost starts again."""
        identity = f"{self.name}_{self.life}"
        log = self._world.log
        while True:
            election = LeaderElection(
                api, LeaseName(_NAMESPACE, lease), identity, self.clock, self._random, log, _TERMS
            )
            await election.run(lead)
            self._world.counts["leases lost"] += 1


class ManagerProcess(AgentProcess):
    """A controller manager."""

    def __init__(self, world: BaseWorld, name: str, make: ControllersOf | None = None) -> None:
        """make: returns its controllers; those of the table if it is not given."""
        super().__init__(world, name)
        self._make = make or (lambda: controllers(OPTIONS))

    @override
    async def _run(self) -> None:
        await self._elected(self.api(_MANAGER), "kube-controller-manager", self._lead)

    async def _lead(self) -> None:
        world = self._world
        world.counts["managers lead"] += 1
        async with AsyncExitStack() as stack:
            informers = Informers(
                self.api(_MANAGER), self.clock, self._random, world.log, lighten=LIGHT
            )
            await stack.enter_async_context(informers)
            environment = Environment(informers, self.clock, self._random, world.log)
            manager = Manager(self._make(), self, environment)
            stack.push_async_callback(manager.stop)
            await manager.start()
            await asyncio.Event().wait()


class SchedulerProcess(AgentProcess):
    """A scheduler."""

    @override
    async def _run(self) -> None:
        await self._elected(self.api(_SCHEDULER), "kube-scheduler", self._lead)

    async def _lead(self) -> None:
        world = self._world
        world.counts["schedulers lead"] += 1
        api = self.api(_SCHEDULER)
        async with Informers(api, self.clock, self._random, world.log) as informers:
            scheduler = Scheduler(
                api, informers, self.clock, self._random, world.log, host=self.name
            )
            try:
                await scheduler.start()
                await asyncio.Event().wait()
            finally:
                await scheduler.stop()


class NodeProcess(AgentProcess):
    """A node."""

    @override
    async def _run(self) -> None:
        world = self._world
        api = self.api(_NODES)
        async with Informers(api, self.clock, self._random, world.log) as informers:
            options = HollowOptions((self.name,), adopts=False)
            nodes = HollowNodes(api, informers, self.clock, self._random, world.log, options)
            try:
                await nodes.start()
                await asyncio.Event().wait()
            finally:
                await nodes.stop()
