"""One cluster of a farm, in the process that was forked from its template.

    {"fork": "c1", "directory": …, "clock": "paused"}   ──►
                                      ◄──  {"begun": true}, a descriptor of the process
                                                              writes its kubeconfig
                             ◄──  {"ready": {"url": …, "kubeconfig": …, "revision": 512, "pid": 47}}
    {"id": 1, "settled": 10.0, "within": 1.0}           ──►
                                     ◄──  {"id": 1, "revision": 530, "moving": [], "due": […]}
    {"id": 2, "advance": 86400.0}    {"id": 3, "rate": 100.0}

The farm kills it. It ends by itself when its end of the connection is closed: the farm is gone.
"""

import asyncio
import os
import resource
import socket
import ssl
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from kvstack.agents.standalone.in_memory.cluster_time import PAUSED, ClusterTime
from kvstack.agents.standalone.in_memory.memory_cluster import MemoryCluster
from kvstack.agents.standalone.in_memory.settling import NotSettledError, Settled, settle
from kvstack.agents.standalone.stack_settings import pki_dir
from kvstack.apimachinery.objects.times import format_time
from kvstack.clusters.farm import messages
from kvstack.clusters.farm.messages import Message
from kvstack.component.certs.cert_files import write_file
from kvstack.component.certs.certificates import Pair
from kvstack.component.certs.kubeconfig import kubeconfig
from kvstack.component.errors import ComponentError
from kvstack.component.virtual_time.loop import VirtualLoop
from kvstack.component.virtual_time.timeline import STANDING

KUBECONFIG: Final = "kubeconfig"
_LATEST_S: Final = 10.0
_WARM_S: Final = 15.0
_FIRST_REQUEST: Final = (
    b"GET /api/v1/namespaces?limit=1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
)
_SHOWN_MAX: Final = 50
_TEXT_MAX: Final = 300
_PAGE_BYTES: Final = resource.getpagesize()


class Forked(NamedTuple):
    """The forked cluster."""

    cluster: MemoryCluster
    time: ClusterTime
    rng: Random
    template: Path
    """The directory that has its keys."""


async def warm(forked: Forked) -> None:
    """Listen, and answer a request of its own: the first is the one that takes long. OSError."""
    server, pki = forked.cluster.server, pki_dir(forked.template)
    await server.listen(0)
    context = ssl.create_default_context(cafile=pki / "ca.crt")
    context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
    async with asyncio.timeout(_WARM_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
        writer.write(_FIRST_REQUEST)
        answer = await reader.read()
        writer.close()
    if not answer.startswith(b"HTTP/1.1 200"):
        raise ComponentError(f"a new cluster answers {answer[:_TEXT_MAX]!r}")


def be_cluster(loop: VirtualLoop, forked: Forked, request: Message, control: socket.socket) -> int:
    """Be a cluster until the farm lets go of it; return the exit code."""
    try:
        _tell_process(control)
        _limit_memory(request["memory_max_bytes"])
        loop.run_until_complete(_Cluster(forked, control).run(request))
    except (ComponentError, OSError) as error:
        with suppress(OSError):  # the farm is gone
            messages.send(control, {"failed": str(error)})
        return 1
    return 0


def _tell_process(control: socket.socket) -> None:
    """Let the farm have a descriptor of this process; OSError: it is gone."""
    own = os.pidfd_open(os.getpid())
    try:
        messages.send(control, {"begun": True}, own)
    finally:
        os.close(own)


def _limit_memory(more_bytes: int) -> None:
    """Limit the memory of this process to what it has and so much more."""
    with open("/proc/self/statm") as file:
        has_bytes = int(file.read().split()[0]) * _PAGE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (has_bytes + more_bytes, has_bytes + more_bytes))


class _Cluster:
    """The process."""

    def __init__(self, forked: Forked, control: socket.socket) -> None:
        self._forked: Final = forked
        self._control: Final = control
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        self._over: Final = asyncio.Event()

    async def run(self, request: Message) -> None:
        cluster, own_time = self._forked.cluster, self._forked.time
        self._seed(request["seed"], cluster.server.registry.watch_cache.revision)
        url = f"https://127.0.0.1:{cluster.server.port}"
        file = self._write_kubeconfig(request["fork"], Path(request["directory"]), url)
        if request["clock"] == PAUSED:
            own_time.set_rate(STANDING)
        revision = await cluster.server.registry.watch_cache.latest(_LATEST_S)
        self._control.setblocking(False)
        asyncio.get_running_loop().add_reader(self._control.fileno(), self._read)
        ready = {"url": url, "kubeconfig": str(file), "revision": revision, "pid": os.getpid()}
        messages.send(self._control, {"ready": ready})
        await self._over.wait()

    def _seed(self, seed: int, revision: int) -> None:
        """Seed names and uids, with others than a cluster of this seed gave at lower revisions."""
        self._forked.rng.seed(f"{seed} {revision}")
        self._forked.cluster.server.env.identifiers.forget()

    def _write_kubeconfig(self, name: str, directory: Path, url: str) -> Path:
        pki, file = pki_dir(self._forked.template), directory / KUBECONFIG
        pair = Pair((pki / "admin.crt").read_bytes(), (pki / "admin.key").read_bytes())
        write_file(file, kubeconfig(url, (pki / "ca.crt").read_bytes(), name, pair))
        return file

    def _read(self) -> None:
        try:
            found = messages.receive(self._control)
        except BlockingIOError:
            return
        if found is None:
            self._over.set()
            return
        task = asyncio.ensure_future(self._answer(found[0]))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, message: Message) -> None:
        try:
            answer = await self._done(message)
        except (ComponentError, OverflowError) as error:
            answer = {"error": str(error)[:_TEXT_MAX]}
        messages.send(self._control, {"id": message["id"], **answer})

    async def _done(self, message: Message) -> Message:
        cluster, own_time = self._forked.cluster, self._forked.time
        if "settled" in message:
            within_s, timeout_s = message["within"], message["settled"]
            try:
                return _settled_message(
                    await settle(cluster, within_s=within_s, timeout_s=timeout_s)
                )
            except NotSettledError as error:
                return _settled_message(error.state)
        if "advance" in message:
            await own_time.advance(message["advance"])
        if "rate" in message:
            own_time.set_rate(message["rate"])
        return {"now": format_time(own_time.now_s), "rate": own_time.rate}


def _settled_message(state: Settled) -> Message:
    moving = [
        {"who": each.who, "what": each.what[:_TEXT_MAX], "why": each.why[:_TEXT_MAX]}
        for each in state.moving[:_SHOWN_MAX]
    ]
    due = [
        {"who": each.who, "what": each.what[:_TEXT_MAX], "in_seconds": round(each.in_s, 3)}
        for each in state.due[:_SHOWN_MAX]
    ]
    return {"revision": state.revision, "moving": moving, "due": due}
