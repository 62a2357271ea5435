"""The way of one client to the API servers, as behind a load balancer: with delays and faults.

    request ─► delay ─► a server's whole pipeline ─► delay ─► answer
       └ lost       └ never arrives, or               └ done, but nobody hears of it

A client stays with one server until that fails it. What a watch sends arrives in order, late by the
lag of the link, until the connection breaks.
"""

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from kvstack.agents.client.transport import Response, UnreachableError
from kvstack.apimachinery.attributes import User
from kvstack.component.http.serving.local_transport import LocalResponse
from tests.sim.stack.pipe import Pipe
from tests.sim.stack.servers import ServerProcess
from tests.sim.trace import Trace

_REFUSED_S: Final = 0.01
_OK: Final = 200


@dataclass(slots=True)
class Weather:
    """The faults of all links of clients; worlds set them."""

    delay_s: tuple[float, float] = (0.0001, 0.001)
    piece_delay_s: tuple[float, float] = (0.0, 0.001)
    """On top, for each piece of a watch."""
    lost: float = 0.0
    """Share of requests that never arrive."""
    unanswered: float = 0.0
    """Share of requests whose answer is lost: what they asked for is done."""
    watch_ends: float = 0.0
    """Share of pieces of watches after which the connection breaks."""

    def clear(self) -> None:
        """End all faults."""
        self.lost = self.unanswered = self.watch_ends = 0.0
        calm = Weather()
        self.delay_s, self.piece_delay_s = calm.delay_s, calm.piece_delay_s


class Asked(NamedTuple):
    """One request, as a server takes it."""

    method: str
    target: str
    headers: Sequence[tuple[str, str]]
    body: bytes

    @property
    def is_watch(self) -> bool:
        """Whether it asks for a watch."""
        return "watch=true" in self.target


Bug: TypeAlias = Callable[[User, Asked], Asked]
"""Changes the requests of some user."""


@dataclass(frozen=True, slots=True)
class Network:
    """What all links of a world share."""

    servers: Sequence[ServerProcess]
    weather: Weather
    rng: random.Random
    trace: Trace
    on_answer: "list[Callable[[User, Asked, Whole], None]]" = field(default_factory=list)
    """Told of each answer that is no watch."""
    planted: "tuple[Bug, ...]" = ()
    """Bugs of clients, which change their requests."""


class SimTransport:
    """Carries requests of one user; a `kvstack.agents.client.transport.Transport`."""

    def __init__(self, network: Network, name: str, user: User, first: int | None = None) -> None:
        """Ask any server; first: the place of the one to begin with."""
        self._network = network
        self._name = name
        self._user = user
        self._position = network.rng.randrange(len(network.servers)) if first is None else first
        self._tokens: dict[tuple[str, int], str] = {}
        self.is_cut = False
        """Whether nothing gets through: faults of the client's own machine."""
        self._is_dead = False
        self._connections: dict[asyncio.Future[None], ServerProcess] = {}

    async def request(
        self,
        method: str,
        target: str,
        headers: Sequence[tuple[str, str]],
        body: bytes,
        timeout_s: float,
    ) -> Response:
        """Send a request."""
        network = self._network
        if self._is_dead:
            raise UnreachableError("the process has ended")
        if self.is_cut:
            await asyncio.sleep(timeout_s)
            raise UnreachableError(f"no answer within {timeout_s} s")
        process = network.servers[self._position]
        if process.server is None:
            await self._next(_REFUSED_S)
            raise UnreachableError("connection refused")
        asked = Asked(method, target, [*headers, self._authorization(process)], body)
        for bug in network.planted:
            asked = bug(self._user, asked)
        loop = asyncio.get_running_loop()
        broken: asyncio.Future[None] = loop.create_future()
        process.exchanges[broken] = self._connections[broken] = process
        asking = loop.create_task(self._ask(process, asked))
        broken.add_done_callback(lambda _: asking.cancel())
        response: LocalResponse | Whole | None = None
        try:
            async with asyncio.timeout(timeout_s):
                response = await asking
        except TimeoutError as error:
            raise UnreachableError(f"no answer within {timeout_s} s") from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not broken.done() or (task is not None and task.cancelling()):
                raise
            await self._next(_REFUSED_S)
            raise UnreachableError("the connection broke") from None
        except UnreachableError:
            await self._next(_REFUSED_S)
            raise
        finally:
            if not isinstance(response, LocalResponse):
                self._forget(broken)
        if isinstance(response, LocalResponse):
            return _Watching(response, broken, process, network, self._forget)
        network.trace.note(self._name, loop.time(), method, target, response.status)
        for told in network.on_answer:
            told(self._user, asked, response)
        return response

    def _forget(self, broken: "asyncio.Future[None]") -> None:
        process = self._connections.pop(broken, None)
        if process is not None:
            process.exchanges.pop(broken, None)

    def kill(self) -> None:
        """End with the client's process: nothing is sent any more, and all connections break."""
        self._is_dead = True
        for broken in list(self._connections):
            self._forget(broken)
            if not broken.done():
                broken.set_result(None)

    def _authorization(self, process: ServerProcess) -> tuple[str, str]:
        key = (process.name, process.life)
        token = self._tokens.get(key)
        if token is None:
            token = self._tokens[key] = process.token_of(self._user)
        return "authorization", f"Bearer {token}"

    async def _ask(self, process: ServerProcess, asked: "Asked") -> "Whole | LocalResponse":
        network = self._network
        weather, server = network.weather, process.server
        await self._delay(process)
        chance = network.rng.random()
        if chance < weather.lost or server is None:
            raise UnreachableError("the connection broke before the request arrived")
        try:
            response = await server.local.transport.request(*asked)
            if asked.is_watch and response.status == _OK:
                return response
            data = await response.read()
        except ConnectionError as error:
            raise UnreachableError(str(error)) from error
        await self._delay(process)
        if chance < weather.lost + weather.unanswered:
            raise UnreachableError("the connection broke before the answer arrived")
        return Whole(response, data)

    async def _delay(self, process: ServerProcess) -> None:
        network = self._network
        await asyncio.sleep(network.rng.uniform(*network.weather.delay_s))
        await process.thawed()

    async def _next(self, pause_s: float) -> None:
        """Go to another server, next time."""
        self._position = (self._position + 1) % len(self._network.servers)
        await asyncio.sleep(pause_s)

    async def close(self) -> None:
        """Nothing is held."""


class Whole:
    """An answer that has arrived."""

    __slots__ = ("_response", "data", "status")

    def __init__(self, response: LocalResponse, data: bytes) -> None:
        self._response = response
        self.data = data
        self.status = response.status

    def header(self, name: str) -> str:
        return self._response.header(name)

    async def read(self) -> bytes:
        return self.data

    async def pieces(self) -> AsyncIterator[bytes]:
        if self.data:
            yield self.data

    def close(self) -> None:
        """Nothing is held."""


class _Watching:
    """An answer whose pieces arrive late, and in order."""

    def __init__(
        self,
        response: LocalResponse,
        broken: "asyncio.Future[None]",
        process: ServerProcess,
        network: Network,
        forget: "Callable[[asyncio.Future[None]], None]",
    ) -> None:
        self._forget = forget
        self._response = response
        self._broken = broken
        self._process = process
        self._network = network
        self._loop = asyncio.get_running_loop()
        self._arrived: deque[bytes | None] = deque()  # None: the end
        self._is_whole = False
        self._pipe = Pipe()
        self._waiter: asyncio.Future[None] | None = None
        self.status = response.status
        self._relaying = self._loop.create_task(self._relay())
        broken.add_done_callback(self._break)

    def header(self, name: str) -> str:
        return self._response.header(name)

    async def _relay(self) -> None:
        network = self._network
        weather, rng = network.weather, network.rng
        try:
            while piece := await self._response.next():
                self._later(piece)
                if rng.random() < weather.watch_ends:
                    self._later(None)
                    return
        except ConnectionError:
            self._later(None)
            return
        self._is_whole = True
        self._later(None)

    def _later(self, piece: bytes | None) -> None:
        network = self._network
        delay_s = network.rng.uniform(*network.weather.delay_s)
        delay_s += network.rng.uniform(*network.weather.piece_delay_s)
        at_s = max(self._loop.time() + delay_s, self._process.held_until_s)
        self._pipe.send(at_s, lambda: self._arrive(piece))

    def _arrive(self, piece: bytes | None) -> None:
        self._arrived.append(piece)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _break(self, _: object) -> None:
        self._relaying.cancel()
        self._response.close()
        self._is_whole = False
        self._arrive(None)

    async def read(self) -> bytes:
        return b"".join([piece async for piece in self.pieces()])

    async def pieces(self) -> AsyncIterator[bytes]:
        while True:
            while not self._arrived:
                self._waiter = self._loop.create_future()
                await self._waiter
            piece = self._arrived.popleft()
            if piece is None:
                if self._is_whole:
                    return
                raise UnreachableError("the connection broke")
            yield piece

    def close(self) -> None:
        self._forget(self._broken)
        self._relaying.cancel()
        self._response.close()
