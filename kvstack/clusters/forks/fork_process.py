"""The process of a fork: it reads the source, serves, and ends by itself.

    code = start(request, registry, report)

    command ── fork() ──► reads ──► serves ──► leaves the terminal     told over a pipe: Report
        └─ shows what it is told, until it is ready or has failed

What reads the contents is what serves them, so that nothing is copied, and a file that ends its
reader (a truncated LMDB) ends no command. A fork that is not to be detached is the command itself.
It ends at SIGTERM, at the end of its time, and when its directory goes, as at the end of a session;
then its context and its directory are gone.

Whoever started it is told as soon as its API server answers: controllers, scheduler and nodes are
started after that. With a clock of its own they come first, so that nobody changes a clock that is
not set yet.
"""

import asyncio
import gc
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from random import SystemRandom
from typing import Any, Final, NamedTuple, Protocol

import orjson

from kvstack.agents.standalone.in_memory.background import make_authorities
from kvstack.agents.standalone.in_memory.cluster_time import MACHINE, PAUSED, ClusterTime
from kvstack.agents.standalone.in_memory.memory_cluster import Virtual
from kvstack.clusters.contents import Contents, LeftOut
from kvstack.clusters.forks.fork_cluster import ForkCluster, ForkSettings
from kvstack.clusters.forks.fork_page import add_fork_page
from kvstack.clusters.forks.kubeconfig_file import ForkContext, KubeconfigFile
from kvstack.clusters.forks.registry import ForkRecord, ForkRegistry, Reservation
from kvstack.clusters.sources.source import ReadOptions, Source
from kvstack.component.clock import SystemClock
from kvstack.component.errors import ComponentError, ConfigError
from kvstack.component.line_log.line_logger import LineLogger, open_logger
from kvstack.component.process.idle_memory import give_back
from kvstack.component.process.program import FAILED, settle, stop_event
from kvstack.component.virtual_time.loop import VirtualLoop, real_sleep
from kvstack.component.virtual_time.timeline import REAL, STANDING, Timeline
from kvstore.offline import DAMAGE_SIGNALS

SWITCH_S: Final = 0.0005
"""How long one thread keeps Python's lock while the other wants it."""
LOOK_S: Final = 5.0
"""How often a fork looks whether its directory is still there."""
_LINE_MAX: Final = 16 << 20
_SERVING: Final = (
    "kvstack.apiserver.server.assembly",
    "kvstore.embed",
    "kvstack.agents.standalone.local_agents",
)
"""What a fork answers with."""
_WORKING: Final = ("kvstack.agents.scheduler.live.scheduler",)
"""What is not needed for an answer, and takes long to load."""


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """What is started."""

    open_source: Callable[[], Source]
    """Called in the process of the fork; raises ConfigError."""
    source: str
    """What messages call it."""
    like: str
    """What the fork is named after, if it has no name."""
    name: str = ""
    options: ReadOptions = field(default_factory=ReadOptions)
    settings: ForkSettings = field(default_factory=ForkSettings)
    ttl_s: float = 0.0
    """0: it does not end by itself."""
    is_detached: bool = True
    context_file: Path | None = None
    """The kubeconfig that its context is added to; None: to none."""
    context_before: str = ""


class Ready(NamedTuple):
    """What is told when a fork serves."""

    name: str
    source: str
    revision: int
    objects: int
    seconds: float
    url: str
    kubeconfig: str
    left_out: list[LeftOut]


class Report(Protocol):
    """Is told how a fork begins."""

    def say(self, text: str) -> None:
        """Show what is done now."""
        ...

    def ready(self, found: Ready) -> None:
        """Show that it serves."""
        ...

    def failed(self, text: str) -> None:
        """Show why it does not."""
        ...


def start(request: ForkRequest, registry: ForkRegistry, report: Report) -> int:
    """Start a fork; return the exit code once it serves, or (not detached) once it has ended."""
    registry.forks()  # cleans up
    reservation = registry.reserve(request.name, request.like)
    if not request.is_detached:
        return _serve(request, reservation, report)
    sys.stdout.flush()
    sys.stderr.flush()
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        code = FAILED
        try:
            os.close(read_end)
            code = _serve(request, reservation, _PipeReport(write_end, reservation.log_file))
        finally:
            os._exit(code)
    os.close(write_end)
    reservation.leave()
    return _follow(child, read_end, registry, report)


# In the command.


def _follow(child: int, read_end: int, registry: ForkRegistry, report: Report) -> int:
    """Show what a child tells until it serves or has ended; return the exit code."""
    told: dict[str, Any] = {}
    with os.fdopen(read_end, "rb") as pipe:
        try:
            while line := pipe.readline(_LINE_MAX):
                told = orjson.loads(line)
                if "say" in told:
                    report.say(told["say"])
                else:
                    break
            if "ready" in told:
                _report_ready(told["ready"], report)
                return 0
        except KeyboardInterrupt:  # the fork has left the terminal if it is ready
            os.kill(child, signal.SIGTERM)
            told = {"failed": "interrupted"}
    _, status = os.waitpid(child, 0)
    registry.forks()  # of one that was killed, something may be left
    if "failed" in told:
        report.failed(told["failed"])
        return FAILED
    ended_by = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else ""
    doing = f" while it was {told['say']}" if "say" in told else ""
    if ended_by and signal.Signals[ended_by] in DAMAGE_SIGNALS:
        report.failed(f"a file is truncated or damaged: its reader was ended by {ended_by}{doing}")
    else:
        by = f" by {ended_by}" if ended_by else ""
        report.failed(f"the process of the fork ended{by}{doing}")
    return FAILED


def _report_ready(fields: dict[str, Any], report: Report) -> None:
    left_out = [LeftOut(*each) for each in fields["left_out"]]
    report.ready(Ready(**{**fields, "left_out": left_out}))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # what is left is to exit


# In the process of the fork.


class _PipeReport:
    """Tells the command, as long as that is there, and leaves the terminal when it serves."""

    def __init__(self, descriptor: int, log_file: Path) -> None:
        self._descriptor: Final = descriptor
        self._log_file: Final = log_file
        self._is_over = False

    def say(self, text: str) -> None:
        self._send({"say": text})

    def ready(self, found: Ready) -> None:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        log = os.open(self._log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(null, 0)
        os.dup2(null, 1)
        os.dup2(log, 2)
        os.close(null)
        os.close(log)
        left_out = [list(each) for each in found.left_out]
        self._send({"ready": {**found._asdict(), "left_out": left_out}})
        os.close(self._descriptor)
        self._is_over = True

    def failed(self, text: str) -> None:
        if not self._is_over:
            with suppress(BrokenPipeError):  # nobody is there to be told
                self._send({"failed": text})

    def _send(self, message: dict[str, Any]) -> None:
        rest = orjson.dumps(message) + b"\n"
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]


def _serve(request: ForkRequest, reservation: Reservation, report: Report) -> int:
    """Be the fork; return the exit code."""
    sys.setswitchinterval(SWITCH_S)
    log = open_logger((str(reservation.log_file),), "warn", "json")
    gc.disable()  # what is read stays: to look for dead cycles among it delays every start
    code = FAILED
    try:
        with _runner(request.settings.clock) as runner:
            runner.run(_Fork(request, reservation, report, log).run())
        code = 0
    except BrokenPipeError:
        log.warning("the command that started this fork is gone")
    except KeyboardInterrupt:
        report.failed("interrupted")
    except (ComponentError, OSError) as error:
        log.error("the fork ended", error=str(error))
        report.failed(str(error))
    except Exception as error:
        log.error("the fork failed", error=repr(error))
        report.failed(f"unexpected: {error!r}")
        raise
    finally:
        gc.enable()
        log.close()
        try:
            reservation.give_up()
        except ConfigError as error:
            sys.stderr.write(f"Error: {error}\n")
    return code


def _runner(clock: str) -> asyncio.Runner:
    if clock == MACHINE:
        return asyncio.Runner()
    # The source is read and the fork begun in real time.
    line = Timeline(REAL, real_s=time.monotonic())
    return asyncio.Runner(loop_factory=partial(VirtualLoop, line))


def _virtual() -> Virtual | None:
    """Return the time of a fork on the running loop; None: the machine's."""
    loop = asyncio.get_running_loop()
    return Virtual(ClusterTime(loop), SystemRandom()) if isinstance(loop, VirtualLoop) else None


class _Fork:
    """Reads and serves."""

    def __init__(
        self, request: ForkRequest, reservation: Reservation, report: Report, log: LineLogger
    ) -> None:
        self._request: Final = request
        self._reservation: Final = reservation
        self._report: Final = report
        self._log: Final = log
        self._clock: Final = SystemClock()

    async def run(self) -> None:
        """Read, serve until it is to end, and end; raises ComponentError."""
        stop = stop_event()
        began_ns, began_s = self._clock.monotonic_ns(), self._clock.unix_ms() / 1000
        request, reservation = self._request, self._reservation
        record = ForkRecord(
            reservation.name,
            request.source,
            os.getpid(),
            began_s,
            began_s + request.ttl_s if request.ttl_s else 0.0,
            is_read_only=request.settings.is_read_only,
        )
        reservation.write(record)
        reading = asyncio.ensure_future(self._read())
        loading = asyncio.ensure_future(
            asyncio.to_thread(_load, reservation.directory, reading.done)
        )
        stopped = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait((reading, stopped), return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                raise ComponentError("interrupted")
            contents = reading.result()
            self._report.say(f"starting: {len(contents.rows)} objects")
            objects, revision = len(contents.rows), contents.revision
            await loading
            virtual = _virtual()
            record = replace(record, revision=revision, objects=objects)

            async def serving(fork: ForkCluster) -> None:
                if virtual is None:
                    self._tell(fork, record, began_ns)
                for name in _WORKING:
                    await asyncio.to_thread(import_module, name)

            fork = ForkCluster(
                contents,
                request.settings,
                reservation.directory,
                self._log,
                virtual=virtual,
                on_serving=serving,
            )
            del contents, reading
            async with fork, _going(virtual, request.settings.clock):
                if virtual is not None:
                    self._tell(fork, record, began_ns)
                give_back()
                settle()
                await self._until_end(stopped)
        finally:
            stopped.cancel()

    def _tell(self, fork: ForkCluster, record: ForkRecord, began_ns: int) -> None:
        """Tell that it answers."""
        add_fork_page(fork.server, fork.cluster.time)
        record = replace(record, url=fork.url)
        self._add_context(record, fork)
        seconds = (self._clock.monotonic_ns() - began_ns) / 1e9
        self._report.ready(
            Ready(
                record.name,
                record.source,
                record.revision,
                record.objects,
                seconds,
                fork.url,
                str(fork.kubeconfig),
                fork.left_out,
            )
        )

    async def _read(self) -> Contents:
        source = self._request.open_source()
        return await source.read(self._request.options, self._report)

    def _add_context(self, record: ForkRecord, fork: ForkCluster) -> None:
        file = self._request.context_file
        if file is None:
            self._reservation.write(record)
            return
        # Before the context is there, so that whoever cleans up knows of it.
        self._reservation.write(
            replace(record, context_file=str(file), context_before=self._request.context_before)
        )
        pki = fork.kubeconfig.parent / "pki"
        context = ForkContext(
            record.name,
            fork.url,
            (pki / "ca.crt").read_bytes(),
            (pki / "super-admin.crt").read_bytes(),
            (pki / "super-admin.key").read_bytes(),
        )
        KubeconfigFile(file).add(context)

    async def _until_end(self, stopped: "asyncio.Future[Any]") -> None:
        """Wait until a signal comes, the time is over, or the directory is gone."""
        ttl_s = self._request.ttl_s
        deadline_ns = self._clock.monotonic_ns() + int(ttl_s * 1e9) if ttl_s else None
        while not stopped.done():
            wait_s = LOOK_S
            if deadline_ns is not None:
                wait_s = min(wait_s, (deadline_ns - self._clock.monotonic_ns()) / 1e9)
            if wait_s <= 0 or not self._reservation.is_there():
                return
            # Whatever the fork's own clock says.
            resting = asyncio.ensure_future(real_sleep(wait_s))
            await asyncio.wait((stopped, resting), return_when=asyncio.FIRST_COMPLETED)
            resting.cancel()


@asynccontextmanager
async def _going(virtual: Virtual | None, clock: str) -> AsyncIterator[None]:
    """Let the time of a fork go as it is to, and as the machine's once the fork ends."""
    if virtual is None:
        yield
        return
    virtual.time.set_rate(STANDING if clock == PAUSED else REAL)
    try:
        yield
    finally:
        virtual.time.set_rate(REAL)  # sockets need real time to end


def _load(directory: Path, is_read: Callable[[], bool]) -> None:
    """Load what a cluster is made of, and make its keys, while its contents are read."""
    make_authorities(directory)
    for name in _SERVING:
        import_module(name)
    for name in _WORKING:
        if not is_read():
            import_module(name)
