"""API servers on a store, clients and faults: the world of one seed.

step      a fault, or none ─► time passes, in which clients work
the end   faults stop; whoever watches must be told of everything in bounded time, servers must
          be ready, and all that was seen must fit the history of the store
"""

from typing import Final

from typing_extensions import override

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import NAMESPACES as NAMESPACE_RESOURCE
from kvstack.agents.client.transport import UnreachableError
from kvstack.apimachinery.objects.status import ApiError
from kvstore.client.errors import StoreError
from tests.sim.api.checks import Checks
from tests.sim.api.clients import NAMESPACES, SCOPES, Client, Follower, Reader, Watcher, Writer
from tests.sim.api.oracle import Oracle
from tests.sim.stack.base import BaseWorld
from tests.sim.stack.faults import Faults
from tests.sim.stack.links import SimTransport
from tests.sim.stack.servers import ADMIN

STEPS: Final = 20
_SETTLED_S: Final = 90.0


class ApiWorld(BaseWorld):
    """The world of one seed."""

    def __init__(self, seed: int, *, steps: int = STEPS, keep_lines: bool = False) -> None:
        super().__init__(seed, keep_lines=keep_lines)
        self._steps = steps
        self.fault_rate = self.rng.choice((0.0, 0.2, 0.5, 0.8))
        self.often = ""
        """A fault that comes all the time."""
        self._step_s = self.rng.choice((0.3, 1.0))
        self.oracle = Oracle()
        self.checks = Checks(self.oracle)
        self._has_compaction = self.rng.random() < 0.6

    @override
    async def live(self) -> None:
        rng = self.rng
        self._faults = faults = Faults(self)
        async with self.observer() as store:
            self._store = store
            self.spawn(self.oracle.follow(store), "observer")
            await self._make_namespaces()
            clients = self._clients()
            for client in clients:
                self.spawn(client.run(), client.name)
            for _ in range(self._steps):
                if self.often:
                    faults.inject(self.often)
                if rng.random() < self.fault_rate:
                    faults.inject()
                if self._has_compaction and rng.random() < 0.1:
                    self.spawn(self._compact(), "compaction")
                await self.sleep(rng.uniform(0, 2 * self._step_s))
            faults.calm()
            await self._settle(clients)

    async def _make_namespaces(self) -> None:
        api = Api(SimTransport(self.network, "admin", ADMIN))
        for name in NAMESPACES:
            await api.create(NAMESPACE_RESOURCE, "", {"metadata": {"name": name}})

    def _clients(self) -> list[Client]:
        checks = self.checks
        clients: list[Client] = [Writer(self, checks, f"writer-{n}") for n in range(3)]
        clients += [Reader(self, checks, f"reader-{n}") for n in range(2)]
        clients += [Watcher(self, checks, f"watcher-{n}", s) for n, s in enumerate(SCOPES)]
        clients.append(Follower(self, checks, "follower"))
        return clients

    async def _compact(self) -> None:
        """Give up history that the observer has seen; a part of it, or all."""
        revision = self.oracle.revision - self.rng.choice((0, 0, 10))
        self.note("compacts", revision)
        try:
            await self._store.compact(revision)
            self.counts["compactions"] += 1
        except StoreError as error:
            self.note("no compaction", str(error))

    async def _settle(self, clients: list[Client]) -> None:
        """Let everybody come to rest, and check what can only be told then."""
        for client in clients:
            client.is_stopped = isinstance(client, Writer | Reader)
        await self.until(
            lambda: [each.name for each in self.servers if not each.is_ready],
            _SETTLED_S,
            "servers are not ready",
        )
        await self.until(lambda: self._writing(clients), _SETTLED_S, "writes do not end")
        await self.oracle.reach(await self._store.current_revision())
        followers = [each for each in clients if isinstance(each, Watcher | Follower)]

        def behind() -> list[str]:
            last = {each.scope: 0 for each in followers}
            for scope in last:
                last[scope] = max((c.revision for c in self.oracle.changes_of(scope, 0)), default=0)
            return [each.name for each in followers if each.lacks(last[each.scope])]

        await self.until(behind, _SETTLED_S, "watches do not tell everything")
        await self._probe()
        for client in clients:
            client.is_stopped = True
        await self.oracle.reach(self.members.revision())
        await self.until(lambda: self.oracle.waiting, _SETTLED_S, "checks are left over")
        self.checks.finish()
        self.counts.update(self.checks.counts)

    @staticmethod
    def _writing(clients: list[Client]) -> list[str]:
        return [
            each.name for each in clients if isinstance(each, Writer | Reader) and not each.is_over
        ]

    async def _probe(self) -> None:
        """Each server must answer, with the present."""
        for place, server in enumerate(self.servers):
            api = Api(SimTransport(self.network, "probe", ADMIN, first=place))
            floor = self.checks.revealed
            try:
                page = await api.list_page(NAMESPACE_RESOURCE)
            except (UnreachableError, ApiError) as error:
                raise AssertionError(f"{server.name} does not answer: {error}") from error
            assert int(page.resource_version) >= floor, "a stale list"


def make_world(seed: int, steps: int, keep_lines: bool) -> ApiWorld:  # noqa: FBT001 - of commands
    """Return the world of a seed."""
    return ApiWorld(seed, steps=steps, keep_lines=keep_lines)
