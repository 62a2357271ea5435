"""The faults of store members, API servers and links; each has a name, and a weight in its world.

Store: a member crashes, loses power, freezes, is cut off from the others; messages are lost and
doubled. API servers: crash, freeze, are cut off from a member or from all, lose their connection,
are slow towards the store; their wall clock jumps. Links of clients: requests are lost, or done and
not answered; watches lag and break off.
"""

from collections.abc import Callable, Mapping
from typing import Final

from tests.sim.stack.base import BaseWorld
from tests.sim.stack.servers import ServerProcess

DOWN_S: Final = (0.05, 0.5, 3.0, 12.0)
_PAUSES_S: Final = (0.3, 2.0, 8.0)
_JUMPS_MS: Final = (-3_600_000, -2_000, 0, 5_000, 600_000)


class Faults:
    """Injects drawn faults into a world."""

    def __init__(self, world: BaseWorld) -> None:
        """Draw how often each comes."""
        self._world = world
        self._rng = rng = world.rng
        self._all: dict[str, Callable[[], None]] = {
            "crash of a member": self._crash_member,
            "freeze of a member": self._freeze_member,
            "isolated member": self._isolate,
            "lossy members": self._lossy,
            "crash of a server": self._crash_server,
            "freeze of a server": self._freeze_server,
            "server cut off": self._cut_off,
            "broken store link": self._break_store_link,
            "slow store link": self._slow_store_link,
            "clock jump of a server": self._jump,
            "broken connections": self._break_connections,
            "weather": self._weather,
            "calm": self.calm,
        }
        self.weights = {name: rng.choice((0, 1, 2)) for name in self._all}
        self.weights["calm"] = 3

    def add(self, faults: Mapping[str, Callable[[], None]]) -> None:
        """Add faults of other parts."""
        self._all |= faults
        self.weights |= {name: self._rng.choice((0, 1, 2)) for name in faults}

    def inject(self, name: str = "") -> None:
        """Inject one fault, a drawn one if none is named."""
        names = list(self._all)
        name = name or self._rng.choices(names, [self.weights[each] for each in names])[0]
        self._world.note("fault", name)
        self._world.counts[name] += 1
        self._all[name]()

    def calm(self) -> None:
        """End all faults that last; what is down starts again by itself."""
        world = self._world
        world.members.heal()
        world.weather.clear()
        for server in world.servers:
            server.heal()

    # The store.

    def _member(self) -> int:
        """Return a member, often the leader."""
        leader = self._world.members.leader()
        if leader and self._rng.random() < 0.5:
            return leader
        return self._rng.randrange(self._world.members_count) + 1

    def _crash_member(self) -> None:
        down_s = self._rng.choice(DOWN_S)
        self._world.members.crash(self._member(), down_s, with_power=self._rng.random() < 0.5)

    def _freeze_member(self) -> None:
        self._world.members.pause(self._member(), self._rng.choice(_PAUSES_S))

    def _isolate(self) -> None:
        self._world.members.isolate(self._member())

    def _lossy(self) -> None:
        self._world.members.disturb(self._rng.choice((0.05, 0.2)), self._rng.choice((0, 0.1)))

    # API servers.

    def _server(self) -> int:
        return self._rng.randrange(len(self._world.servers))

    def _crash_server(self) -> None:
        server = self._world.servers[self._server()]
        server.crash()
        down_s = self._rng.choice(DOWN_S)
        self._world.spawn(self._start_again(server, down_s), f"start of {server.name}")

    async def _start_again(self, server: ServerProcess, down_s: float) -> None:
        life = server.life
        await self._world.sleep(down_s)
        if server.life == life:
            server.start()

    def _freeze_server(self) -> None:
        self._world.servers[self._server()].pause(self._rng.choice(_PAUSES_S))

    def _cut_off(self) -> None:
        server = self._world.servers[self._server()]
        numbers = range(1, self._world.members_count + 1)
        is_whole = self._rng.random() < 0.3
        for member in numbers if is_whole else (self._rng.choice(numbers),):
            server.cut_off(member)

    def _break_store_link(self) -> None:
        self._world.servers[self._server()].break_store_link()

    def _slow_store_link(self) -> None:
        self._world.servers[self._server()].link.delay_s = (0.01, self._rng.choice((0.05, 0.5)))

    def _jump(self) -> None:
        self._world.servers[self._server()].clock.jumped_ms = self._rng.choice(_JUMPS_MS)

    # Links of clients.

    def _break_connections(self) -> None:
        self._world.servers[self._server()].break_connections()

    def _weather(self) -> None:
        weather, rng = self._world.weather, self._rng
        weather.lost = rng.choice((0.0, 0.02, 0.1))
        weather.unanswered = rng.choice((0.0, 0.02, 0.1))
        weather.watch_ends = rng.choice((0.0, 0.02, 0.1))
        weather.delay_s = rng.choice(((0.0001, 0.001), (0.001, 0.05)))
        weather.piece_delay_s = rng.choice(((0.0, 0.001), (0.0, 0.2), (0.0, 2.0)))
