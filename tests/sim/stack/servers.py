"""API servers of a world: the real ones, each a process that crashes, freezes and starts again.

    server = ServerProcess("a", world parts, …)
    await server.start()
    server.crash()          all it has in memory is gone, all connections break
    await server.start()    another one, with nothing but the store

A process that has crashed is ended in the background, cut off from the store and from its clients,
so that nothing it still does is seen by anybody.
"""

import asyncio
import random
from dataclasses import dataclass
from typing import Final

from kvstack.agents.client.transport import UnreachableError
from kvstack.apimachinery.attributes import AUTHENTICATED, User
from kvstack.apiserver.allocators.cluster_ips import address_range
from kvstack.apiserver.server.assembly import ApiServer
from kvstack.apiserver.server.settings.options import Options, ServingOptions, StoreOptions
from kvstack.component.logger import Logger
from kvstore.client.channel_store import ChannelStore
from kvstore.client.options import ClientOptions
from kvstore.client.store import Store
from kvstore.errors import KvstoreError
from tests.apiserver.support.virtual_time import LoopClock
from tests.sim.stack.channel import Link, SimChannel
from tests.sim.stack.members import StoreMembers
from tests.sim.trace import Trace

ADMIN: Final = User("admin", groups=("system:masters", AUTHENTICATED))
_KEEPALIVE_S: Final = (2.0, 12.0)
"""How long a connection to a member lasts through which nothing comes."""
_START_AGAIN_S: Final = 0.5
_LOOK_AGAIN_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Environment:
    """What all servers of a world share."""

    members: StoreMembers
    rng: random.Random
    trace: Trace
    logger: Logger
    compaction_s: float = 0.0


def options(environment: Environment) -> Options:
    """Return the settings of a server that is reached by links alone."""
    return Options(
        store=StoreOptions(compaction_s=environment.compaction_s, start_timeout_s=600.0),
        serving=ServingOptions(advertise_address="192.0.2.7", listens=False),
        authorization_modes=("RBAC",),
        service_ranges=(address_range("10.0.0.0/16"),),
        allow_privileged=True,
        keeps_endpoints=False,
    )


class ServerProcess:
    """One place where an API server runs, most of the time."""

    server_type = ApiServer

    def __init__(self, name: str, environment: Environment) -> None:
        """Run nothing yet."""
        self.name: Final = name
        self.clock: Final = LoopClock()
        self.link: Final = Link()
        self.life = 0
        """How often it has started."""
        self.held_until_s = 0.0
        """Clients hear nothing before."""
        self.exchanges: Final[dict[asyncio.Future[None], object]] = {}
        """Of requests under way: resolved when the connection breaks."""
        self._environment = environment
        self._server: ApiServer | None = None
        self._channel: SimChannel | None = None
        self._process: asyncio.Task[None] | None = None
        self._ending: dict[asyncio.Task[None], None] = {}

    @property
    def server(self) -> ApiServer | None:
        """The server that takes requests now."""
        return self._server

    @property
    def is_ready(self) -> bool:
        """Whether the objects of its start are there."""
        server = self._server
        return server is not None and all(job.done.is_set() for job in server.jobs if job.hooks)

    def token_of(self, user: User) -> str:
        """Return a token of a user; UnreachableError: there is nobody to give one."""
        if self._server is None:
            raise UnreachableError("connection refused")
        return self._server.local.token_for(user)

    def start(self) -> None:
        """Start; `server` is there once it takes requests."""
        self.life += 1
        self._environment.trace.note(self.name, "starts")
        self._process = asyncio.get_running_loop().create_task(self._run(), name=self.name)

    async def _run(self) -> None:
        parts = self._environment
        channel = self._channel = SimChannel(
            f"{self.name}{self.life}", parts.members, self.link, parts.rng, parts.trace
        )
        chance = random.Random(parts.rng.getrandbits(64))
        store_options = ClientOptions(seed=parts.rng.getrandbits(32))
        async with ChannelStore(channel, store_options) as store:
            server = self.server_type(
                self.store_seen(store),
                options(parts),
                parts.logger,
                clock=self.clock,
                random=chance,
            )
            try:
                await self._begin(server)
                self._server = server
                await asyncio.Event().wait()
            finally:
                channel.kill()
                await store.__aexit__(None, None, None)
                await server.stop(0.0)

    def store_seen(self, store: Store) -> Store:
        """Return the store as the server has it; canaries override this."""
        return store

    async def _begin(self, server: ApiServer) -> None:
        while True:
            try:
                await server.start()
            except KvstoreError as error:
                self._environment.logger.warning("no start", server=self.name, error=str(error))
                await asyncio.sleep(_START_AGAIN_S)
            else:
                return

    # Ends.

    def crash(self) -> None:
        """End the process: nothing it does from now on is seen, and its connections break."""
        process, self._process = self._process, None
        if process is None:
            return
        self._environment.trace.note(self.name, "ends")
        self._server = None
        if self._channel is not None:
            self._channel.kill()
        self.break_connections()
        process.cancel()
        self._ending[process] = None
        process.add_done_callback(self._ended)

    def _ended(self, process: asyncio.Task[None]) -> None:
        del self._ending[process]
        if not process.cancelled():
            process.result()

    async def stop(self) -> None:
        """End it, and wait for all that ends."""
        self.crash()
        while self._ending:
            await asyncio.wait(list(self._ending))

    def break_connections(self) -> None:
        """Break all connections of clients."""
        exchanges = list(self.exchanges)
        self.exchanges.clear()
        for each in exchanges:
            if not each.done():
                each.set_result(None)

    # Other faults.

    def pause(self, for_s: float) -> None:
        """Freeze it: nothing goes in or out."""
        until_s = asyncio.get_running_loop().time() + for_s
        self._environment.trace.note(self.name, "is frozen", for_s)
        self.held_until_s = max(self.held_until_s, until_s)
        self.link.held_until_s = max(self.link.held_until_s, until_s)

    async def thawed(self) -> None:
        """Wait until it is not frozen."""
        while (left_s := self.held_until_s - asyncio.get_running_loop().time()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(min(left_s, _LOOK_AGAIN_S))

    def cut_off(self, member: int) -> None:
        """Cut it off from a member of the store; whoever waits learns of it late."""
        self._environment.trace.note(self.name, "is cut off from", member)
        self.link.cut.add(member)
        loop = asyncio.get_running_loop()
        loop.call_later(self._environment.rng.uniform(*_KEEPALIVE_S), self._find_dead, member)

    def _find_dead(self, member: int) -> None:
        if member in self.link.cut and self._channel is not None:
            self._channel.break_off_from(member)

    def break_store_link(self) -> None:
        """Break its connection to the store."""
        if self._channel is not None:
            self._channel.break_off()

    def heal(self) -> None:
        """End all faults of its network; a connection that has lost something breaks."""
        for member in sorted(self.link.cut):
            self._find_dead(member)
        self.link.cut.clear()
        self.link.delay_s = Link().delay_s
        self.link.held_until_s = self.held_until_s = 0.0
