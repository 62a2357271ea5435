"""Reads the metrics of all nodes periodically.

    collector = Collector(informers, clock, logger, CollectorOptions(), read)
    await collector.start();  …;  await collector.stop()

    read: node ─► Reading            of a kubelet, or of a node that runs in this process
    read_now: node ─► Reading, or None: of this node it cannot be told without waiting

All nodes are read side by side, within limits of number and time. One that cannot be read does
not delay others; after a while it has no metrics. The first two rounds follow one another closely,
since a rate takes two.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from kvstack.agents.client.built_in import NODES, PODS
from kvstack.agents.client.informers import Informers
from kvstack.agents.client.object_store import key_of
from kvstack.agents.metrics.history import History
from kvstack.agents.metrics.points import Points
from kvstack.agents.metrics.readings import Reading
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger

ReadNode: TypeAlias = Callable[[Object], Awaitable[Reading]]
"""Returns the reading of a node; raises UnreadableError."""
ReadNow: TypeAlias = Callable[[Object], Reading | None]
"""Returns the reading of a node for which nothing has to be waited; None: `ReadNode` is needed."""

_PODS_AT_ONCE: Final = 256
_NODES_AT_ONCE: Final = 32
_ROUNDS_LOST: Final = 4
"""So many rounds in which a node could not be read are waited for."""


class UnreadableError(Exception):
    """The usage of a node cannot be read; the text says why."""


@dataclass(frozen=True, slots=True)
class CollectorOptions:
    """Intervals and limits."""

    resolution_s: float = 15.0
    first_wait_s: float = 5.0
    """The time from the first round to the second."""
    at_once: int = 32
    """Nodes."""
    timeout_s: float = 10.0
    """The timeout of one node."""
    history_steps: int = 60
    history_series_max: int = 20_000


class Collector:
    """Keeps points and history up to date; all of it belongs to one loop."""

    def __init__(
        self,
        informers: Informers,
        clock: Clock,
        logger: Logger,
        options: CollectorOptions,
        read: ReadNode,
        read_now: ReadNow = lambda _: None,
    ) -> None:
        self._nodes = informers.of(NODES)
        self._pods = informers.of(PODS)
        self._clock = clock
        self._logger = logger
        self._options = options
        self._read = read
        self._read_now = read_now
        self.points: Final = Points(options.resolution_s)
        self.history: Final = History(options.history_steps, options.history_series_max)
        self.rounds = 0
        """The number of completed rounds."""
        self._lost: dict[str, int] = {}
        """Nodes that could not be read, and how many times in a row."""
        self._task: asyncio.Task[None] | None = None

    @property
    def is_ready(self) -> bool:
        """Whether there can be rates: two rounds are complete."""
        return self.rounds > 1

    async def start(self) -> None:
        """Start to read."""
        await self._nodes.synced()
        await self._pods.synced()
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._run(), name="readings of nodes")

    async def stop(self) -> None:
        """End."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))

    async def _run(self) -> None:
        options = self._options
        while True:
            began = self._clock.monotonic_s()
            try:
                await self.read_all()
            except Exception as error:  # noqa: BLE001 - one object must not end all readings
                self._logger.error("a round of readings failed", error=repr(error))
            is_first = self.rounds == 1
            period = min(options.first_wait_s, options.resolution_s)
            period = period if is_first else options.resolution_s
            await asyncio.sleep(max(period - (self._clock.monotonic_s() - began), 0))

    async def read_all(self) -> None:
        """Do one round."""
        nodes = {each["metadata"]["name"]: each for each in self._nodes.store}
        for name in self._lost.keys() - nodes.keys():
            del self._lost[name]
        self.points.keep(nodes.keys())
        others: list[tuple[str, Object]] = []
        for number, (name, node) in enumerate(nodes.items()):
            if number % _NODES_AT_ONCE == _NODES_AT_ONCE - 1:
                await asyncio.sleep(0)
            if not self._read_at_hand(name, node):
                others.append((name, node))
        if others:
            slots = asyncio.Semaphore(self._options.at_once)
            await asyncio.gather(*(self._read_one(*each, slots) for each in others))
        self.rounds += 1
        await self._note()

    def _read_at_hand(self, name: str, node: Object) -> bool:
        """Read a node without waiting; return whether that was possible."""
        try:
            reading = self._read_now(node)
        except Exception as error:  # noqa: BLE001 - one node must not end the others' readings
            self._logger.error("a reading failed", node=name, error=repr(error))
            self._missed(name, repr(error))
            return True
        if reading is not None:
            self._take(name, reading)
        return reading is not None

    async def _read_one(self, name: str, node: Object, slots: asyncio.Semaphore) -> None:
        async with slots:
            try:
                async with asyncio.timeout(self._options.timeout_s):
                    reading = await self._read(node)
            except (UnreadableError, TimeoutError) as error:
                why = str(error) or f"no answer within {self._options.timeout_s} s"
                self._missed(name, why)
                return
            except Exception as error:  # noqa: BLE001 - one node must not end the others' readings
                self._logger.error("a reading failed", node=name, error=repr(error))
                self._missed(name, repr(error))
                return
        self._take(name, reading)

    def _take(self, name: str, reading: Reading) -> None:
        if self._lost.pop(name, 0):
            self._logger.info("a node can be read again", node=name)
        self.points.take(name, reading)

    def _missed(self, name: str, why: str) -> None:
        lost = self._lost[name] = self._lost.get(name, 0) + 1
        if lost == 1:
            self._logger.warning("what a node uses cannot be read", node=name, error=why)
        if lost == _ROUNDS_LOST:
            self.points.forget(name)

    async def _note(self) -> None:
        """Write a step of the history, yielding to other tasks in between."""
        history = self.history
        nodes = {each["metadata"]["name"] for each in self._nodes.store}
        history.keep(nodes.union(self._pods.store.all_keys()))
        history.begin(self._clock.now_s())
        for node in self._nodes.store:
            name = node["metadata"]["name"]
            rate = None if name in self._lost else self.points.node(name)
            if rate is not None:
                history.note(name, rate.cpu_nano / 1e9, rate.memory_bytes)
        for number, pod in enumerate(list(self._pods.store)):
            if number % _PODS_AT_ONCE == _PODS_AT_ONCE - 1:
                await asyncio.sleep(0)
            meta, place = pod["metadata"], pod["spec"].get("nodeName", "")
            found = self.points.pod(place, meta["namespace"], meta["name"])
            if found is not None and place not in self._lost:
                history.note(key_of(pod), found.cpu_nano / 1e9, found.memory_bytes)
        if history.refused:
            self._logger.warning(
                "some pods have no history", count=history.refused, series_max=len(history)
            )
