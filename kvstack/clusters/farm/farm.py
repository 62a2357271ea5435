"""A farm: templates and the clusters that are forked from them, their limits and their ends.

    async with Farm(directory, FarmSettings(), logger) as farm:
        cluster = await farm.create(Asked(nodes=3))
        await farm.ask(cluster.name, {"settled": 10.0, "within": 1.0})
        await farm.delete(cluster.name)

A cluster ends when it is deleted, after its time, when the process that it is for ends, and with
the farm. It is killed, since all its state is in memory and in its directory, which is removed once
the process is dead. When the farm itself is killed, clusters end when their connections close.
"""

import asyncio
import os
import shutil
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from kvstack.agents.standalone.in_memory.cluster_time import CLOCKS, MACHINE
from kvstack.agents.standalone.parts import PARTS
from kvstack.clusters.farm import messages
from kvstack.clusters.farm.messages import Message
from kvstack.clusters.farm.template import Spec
from kvstack.component.errors import ComponentError
from kvstack.component.logger import Logger

NODES_MAX: Final = 100
CLUSTERS_MAX: Final = 100
TEMPLATES_MAX: Final = 8
TTL_S: Final = 600.0
TTL_S_MAX: Final = 86_400.0
MEMORY_MAX_BYTES: Final = 1 << 30
SPARE_BYTES: Final = 256 << 20
"""The machine's memory that is left alone."""
START_S_MAX: Final = 60.0
FORK_S_MAX: Final = 20.0
END_S_MAX: Final = 20.0
ANSWER_S_MAX: Final = 600.0
EMPTY: Final = "empty"
PREPARED: Final = "prepared"
_SEED_MAX: Final = 1 << 32
_MEMORY: Final = Path("/proc/meminfo")


class FarmError(ComponentError):
    """A request cannot be done; the text says why."""


class UnknownClusterError(FarmError):
    """There is no such cluster."""


class FullError(FarmError):
    """A limit of the farm is reached."""


@dataclass(frozen=True, slots=True)
class FarmSettings:
    """Settings and limits of a farm."""

    prepared: str = ""
    """A packed file that clusters begin with; empty: there is none."""
    clusters_max: int = CLUSTERS_MAX
    ttl_s_max: float = TTL_S_MAX
    memory_max_bytes: int = MEMORY_MAX_BYTES
    """The memory that a cluster may use more than its template."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A cluster that is asked for; FarmError: it cannot be."""

    begins_with: str = ""
    """`empty` or `prepared`; empty: what there is."""
    nodes: int = 1
    without: Sequence[str] = ()
    ttl_s: float = TTL_S
    clock: str = MACHINE
    seed: int = 0
    owner: int = 0
    """The process that it ends with; 0: none."""

    def __post_init__(self) -> None:
        """Check it."""
        if self.begins_with not in ("", EMPTY, PREPARED):
            raise FarmError(f"from {self.begins_with!r}: {EMPTY} or {PREPARED}")
        if not 0 <= self.nodes <= NODES_MAX:
            raise FarmError(f"nodes {self.nodes}: 0 to {NODES_MAX}")
        if unknown := sorted(set(self.without).difference(PARTS)):
            raise FarmError(f"without {unknown[0]!r}: of {', '.join(PARTS)}")
        if not self.ttl_s > 0:
            raise FarmError(f"ttl {self.ttl_s:g} s: more than 0")
        if self.clock not in CLOCKS:
            raise FarmError(f"clock {self.clock!r}: one of {', '.join(CLOCKS)}")
        if not 0 <= self.seed < _SEED_MAX:
            raise FarmError(f"seed {self.seed}: 0 to {_SEED_MAX - 1}")


class Ready(NamedTuple):
    """A cluster that answers."""

    name: str
    url: str
    kubeconfig: str
    revision: int
    pid: int


@dataclass(slots=True)
class _Template:
    process: asyncio.subprocess.Process
    control: socket.socket
    uses: int = 0


@dataclass(slots=True)
class _Cluster:
    ready: Ready
    control: socket.socket
    process: int
    """A descriptor of it."""
    directory: Path
    has_own_clock: bool
    timer: asyncio.TimerHandle
    owner: int = -1
    """A descriptor of the process that it ends with."""
    waiting: dict[int, "asyncio.Future[Message]"] = field(default_factory=dict)


class Farm:
    """Makes clusters."""

    def __init__(self, directory: Path, settings: FarmSettings, logger: Logger) -> None:
        """directory: of the farm alone, which no other user may enter."""
        self._directory: Final = directory
        self._settings: Final = settings
        self._logger: Final = logger
        self._templates: Final[dict[Spec, _Template]] = {}
        self._clusters: Final[dict[str, _Cluster]] = {}
        self._starting: Final = asyncio.Lock()
        self._begun = 0
        """Clusters that are being made."""
        self._ending: Final[set[asyncio.Task[None]]] = set()
        self._numbers: Final = count(1)
        self._calls: Final = count(1)

    async def __aenter__(self) -> Self:
        """Start."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End all clusters and templates."""
        for name in list(self._clusters):
            self._end(name, "the farm ends")
        if self._ending:
            await asyncio.wait(self._ending)
        templates = list(self._templates.values())
        self._templates.clear()
        for each in templates:
            each.control.close()
        for each in templates:
            await each.process.wait()

    @property
    def clusters(self) -> list[Ready]:
        """The running clusters."""
        return [each.ready for each in self._clusters.values()]

    def get(self, name: str) -> Ready:
        """Return a cluster; UnknownClusterError."""
        return self._cluster(name).ready

    async def warm(self, asked: Asked) -> None:
        """Create a template, so that clusters like this one are ready at once."""
        await self._template(self._spec(asked))

    async def create(self, asked: Asked) -> Ready:
        """Return a cluster that answers; raises FarmError."""
        settings = self._settings
        if asked.ttl_s > settings.ttl_s_max:
            raise FarmError(f"ttl {asked.ttl_s:g} s: at most {settings.ttl_s_max:g} s")
        if len(self._clusters) + self._begun >= settings.clusters_max:
            raise FullError(f"there are {settings.clusters_max} clusters, which is the limit")
        if (free := _free_bytes()) < SPARE_BYTES:
            raise FullError(f"the machine has {free >> 20} MiB of memory left")
        owner = _opened(asked.owner) if asked.owner else -1
        self._begun += 1
        try:
            template = await self._template(self._spec(asked))
            return await self._forked(template, asked, owner)
        except BaseException:
            if owner >= 0:
                os.close(owner)
            raise
        finally:
            self._begun -= 1

    async def delete(self, name: str) -> None:
        """End a cluster, and return when it is gone; UnknownClusterError."""
        await asyncio.shield(self._ended(name))

    def _ended(self, name: str) -> "asyncio.Task[None]":
        """Forget a cluster; return what waits until it is gone. UnknownClusterError."""
        cluster = self._cluster(name)
        del self._clusters[name]
        loop = asyncio.get_running_loop()
        cluster.timer.cancel()
        loop.remove_reader(cluster.control.fileno())
        cluster.control.close()
        if cluster.owner >= 0:
            loop.remove_reader(cluster.owner)
            os.close(cluster.owner)
        for each in cluster.waiting.values():
            if not each.done():
                each.set_exception(UnknownClusterError(f"{name} has ended"))
        task = asyncio.ensure_future(self._remove(cluster.process, cluster.directory))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task

    async def _remove(self, process: int, directory: Path) -> None:
        """End a process, and then remove its directory, in which it writes no more."""
        if await _killed(process):
            shutil.rmtree(directory)
        else:
            self._logger.error("a cluster does not end", directory=str(directory))

    async def ask(self, name: str, message: Message) -> Message:
        """Send a request to a cluster, in the format of `cluster`; raises FarmError."""
        cluster = self._cluster(name)
        if not cluster.has_own_clock and message.keys() & {"advance", "rate"}:
            raise FarmError(f'{name} goes by the machine\'s clock: ask for "clock": "virtual"')
        number = next(self._calls)
        answered = cluster.waiting[number] = asyncio.get_running_loop().create_future()
        try:
            messages.send(cluster.control, {"id": number, **message})
            async with asyncio.timeout(ANSWER_S_MAX):
                answer: Message = await answered
        except (TimeoutError, OSError) as error:
            raise FarmError(f"{name} does not answer: {error}") from error
        finally:
            cluster.waiting.pop(number, None)
        if "error" in answer:
            raise FarmError(answer["error"])
        return answer

    def _cluster(self, name: str) -> _Cluster:
        found = self._clusters.get(name)
        if found is None:
            raise UnknownClusterError(f"cluster {name!r} does not exist")
        return found

    # Templates.

    def _spec(self, asked: Asked) -> Spec:
        prepared = self._settings.prepared
        if asked.begins_with == PREPARED and not prepared:
            raise FarmError(
                "no contents were prepared: start the farm with --prepare or --contents"
            )
        contents = "" if asked.begins_with == EMPTY else prepared
        return Spec(contents, asked.nodes, tuple(sorted(set(asked.without))))

    async def _template(self, spec: Spec) -> _Template:
        async with self._starting:
            found = self._templates.get(spec)
            if found is not None and found.process.returncode is None:
                return found
            if found is not None:
                self._logger.error("a template ended", code=found.process.returncode)
                del self._templates[spec]
                found.control.close()
            if len(self._templates) >= TEMPLATES_MAX:
                raise FullError(
                    f"clusters of {TEMPLATES_MAX} kinds (from, nodes, without) were made, which is "
                    "the limit"
                )
            made = self._templates[spec] = await self._started(spec)
            return made

    async def _started(self, spec: Spec) -> _Template:
        directory = self._directory / f"template-{next(self._numbers)}"
        directory.mkdir(mode=0o700)
        ours, theirs = messages.pair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "kvstack.clusters.farm.template", str(theirs.fileno())),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        try:
            messages.send(ours, {"directory": str(directory), **spec.message})
            await _ready(ours, START_S_MAX, "a template")
        except BaseException:
            ours.close()
            await process.wait()
            raise
        return _Template(process, ours)

    # Clusters.

    async def _forked(self, template: _Template, asked: Asked, owner: int) -> Ready:
        name = f"c{next(self._numbers)}"
        directory = self._directory / name
        directory.mkdir(mode=0o700)
        ours, theirs = messages.pair()
        process = -1
        try:
            with theirs:
                request = {
                    "fork": name,
                    "directory": str(directory),
                    "clock": asked.clock,
                    "seed": asked.seed,
                    "memory_max_bytes": self._settings.memory_max_bytes,
                }
                messages.send(template.control, request, theirs.fileno())
            process = await _begun(ours, FORK_S_MAX, name)
            told = await _ready(ours, FORK_S_MAX, name)
        except BaseException:
            ours.close()  # one that has not begun yet writes nothing without it
            if process >= 0:
                await self._remove(process, directory)
            else:
                shutil.rmtree(directory)
            raise
        ready = Ready(name, told["url"], told["kubeconfig"], told["revision"], told["pid"])
        loop = asyncio.get_running_loop()
        timer = loop.call_later(asked.ttl_s, self._end, name, "its time is over")
        cluster = _Cluster(ready, ours, process, directory, asked.clock != MACHINE, timer, owner)
        self._clusters[name] = cluster
        ours.setblocking(False)
        loop.add_reader(ours.fileno(), self._read, cluster)
        if owner >= 0:
            loop.add_reader(owner, self._end, name, "the process that it was for has ended")
        return ready

    def _read(self, cluster: _Cluster) -> None:
        try:
            found = messages.receive(cluster.control)
        except BlockingIOError:
            return
        except OSError:
            found = None
        if found is None:
            self._end(cluster.ready.name, "its process has ended")
            return
        answer, _ = found
        waiting = cluster.waiting.pop(answer.pop("id", 0), None)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def _end(self, name: str, why: str) -> None:
        self._logger.info("a cluster ends", cluster=name, why=why)
        with suppress(UnknownClusterError):
            self._ended(name)


async def _ready(control: socket.socket, limit_s: float, what: str) -> dict[str, Any]:
    """Return what a process tells when it is ready; FarmError: why it is not."""
    answer, _ = await _first(control, limit_s, what)
    if "ready" not in answer:
        raise FarmError(f"{what} cannot start: {answer.get('failed')}")
    ready: dict[str, Any] = answer["ready"]
    return ready


async def _begun(control: socket.socket, limit_s: float, what: str) -> int:
    """Return the descriptor of a process that has begun; FarmError: why it has not."""
    answer, descriptor = await _first(control, limit_s, what)
    if descriptor < 0:
        raise FarmError(f"{what} cannot start: {answer.get('failed')}")
    return descriptor


async def _first(control: socket.socket, limit_s: float, what: str) -> tuple[Message, int]:
    """Return what a process says next; FarmError."""
    loop = asyncio.get_running_loop()
    come: asyncio.Future[None] = loop.create_future()
    loop.add_reader(control.fileno(), _wake, come)
    try:
        await asyncio.wait_for(come, limit_s)
        found = messages.receive(control)
    except TimeoutError:
        raise FarmError(f"{what} was not ready within {limit_s:g} s") from None
    except OSError as error:
        raise FarmError(f"{what} ended: {error.strerror}") from error
    finally:
        loop.remove_reader(control.fileno())
    if found is None:
        raise FarmError(f"{what} ended before it was ready")
    return found


async def _killed(process: int) -> bool:
    """End a process, and return whether it is dead; its descriptor is closed."""
    loop = asyncio.get_running_loop()
    dead: asyncio.Future[None] = loop.create_future()
    loop.add_reader(process, _wake, dead)
    try:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, signal.SIGKILL)
        await asyncio.wait_for(dead, END_S_MAX)
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(process)
        os.close(process)
    return True


def _wake(future: "asyncio.Future[Any]") -> None:
    if not future.done():
        future.set_result(None)


def _opened(process: int) -> int:
    """Return a descriptor of a process; FarmError."""
    try:
        return os.pidfd_open(process)
    except (OSError, OverflowError) as error:
        raise FarmError(f"owner {process}: {error}") from error


def _free_bytes() -> int:
    """Return how much memory the machine has left."""
    for line in _MEMORY.read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) << 10
    return sys.maxsize  # an old kernel does not tell
