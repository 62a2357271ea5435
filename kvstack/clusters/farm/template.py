"""A template: a cluster that rests and listens nowhere, and from which clusters are forked.

    python -m kvstack.clusters.farm.template FD

    farm                                   template                     spare
     │ {"directory": …, "nodes": 3, …}  ──►   starts, until everything rests
     │                     ◄──  {"ready": {"revision": 512}}
     │                                        fork()                ──►   listens, and asks itself
     │ {"fork": "c1", …}, descriptor    ──►   hands it on           ──►   is the cluster (`cluster`)
     │                                        fork()                ──►   the next one

It has one thread and a loop of its own, which is between two rounds when it forks: what was under
way goes on in the child. Its time goes as the machine's. It ends when the farm is gone, and its
spare with it. A spare is there before anybody asks, since the first answer of a new process takes
longer than all that a cluster is given when it is asked for.
"""

import asyncio
import gc
import os
import signal
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from kvstack.agents.kubelet.hollow.nodes import named
from kvstack.agents.standalone.in_memory.cluster_time import ClusterTime
from kvstack.agents.standalone.in_memory.memory_cluster import (
    FirstRows,
    MemoryCluster,
    Virtual,
    memory_stack,
)
from kvstack.agents.standalone.in_memory.settling import NotSettledError, settle
from kvstack.agents.standalone.stack_settings import stack_options
from kvstack.apiserver.server.settings.flags import TABLE
from kvstack.clusters.farm import messages
from kvstack.clusters.farm.cluster import Forked, be_cluster, warm
from kvstack.clusters.farm.messages import Message
from kvstack.clusters.pack.packed_file import read_pack
from kvstack.component.errors import ComponentError
from kvstack.component.flags.command_line import CommandLine
from kvstack.component.line_log.line_logger import open_logger
from kvstack.component.process.program import settle as settle_memory
from kvstack.component.virtual_time.loop import VirtualLoop
from kvstack.component.virtual_time.timeline import AT_ONCE, REAL, Timeline

OBJECTS_MAX: Final = 200_000
_REST_S: Final = 60.0


class Spec(NamedTuple):
    """The settings of a template; a farm has one for each combination that is requested."""

    contents: str
    """A packed file; empty: no objects."""
    nodes: int
    without: tuple[str, ...]

    @property
    def message(self) -> Message:
        """The message that starts it."""
        return {"contents": self.contents, "nodes": self.nodes, "without": list(self.without)}


class _Template:
    """The process."""

    def __init__(self, farm: socket.socket, directory: Path, spec: Spec) -> None:
        self._farm: Final = farm
        self._log: Final = open_logger((str(directory / "template.log"),), "warn", "json")
        line = Timeline(AT_ONCE, real_s=time.monotonic())
        self._loop: Final = VirtualLoop(line)
        asyncio.set_event_loop(self._loop)
        own = memory_stack(directory, nodes=named(spec.nodes), without=frozenset(spec.without))
        options = stack_options(own, CommandLine(TABLE))
        options = replace(options, serving=replace(options.serving, listens=False))
        self._time: Final = ClusterTime(self._loop)
        # Clusters are seeded by numbers: none repeats the names and uids that this one gives.
        self._rng: Final = Random("template")  # noqa: S311 - of names and uids, of no secrets
        self._directory: Final = directory
        self._cluster: Final = MemoryCluster(
            own,
            options,
            self._log,
            first_rows=_first_rows(spec.contents),
            virtual=Virtual(self._time, self._rng),
        )

    def start(self) -> int:
        """Return the revision at which the cluster rests; raises ComponentError."""
        revision = self._loop.run_until_complete(self._started())
        settle_memory()
        gc.freeze()
        return revision

    async def _started(self) -> int:
        await self._cluster.__aenter__()
        try:
            revision = (await settle(self._cluster, timeout_s=_REST_S)).revision
        except NotSettledError as error:
            revision = error.state.revision  # who asks for a cluster may wait for it
        self._time.set_rate(REAL)
        return revision

    def serve(self) -> int:
        """Fork clusters until the farm is gone; return the exit code, of a fork its own."""
        self._loop.add_reader(self._farm.fileno(), self._loop.stop)
        asked: tuple[Message, int] | None = None
        while True:
            ours, theirs = messages.pair()
            with ours:
                if os.fork() == 0:
                    ours.close()
                    if asked is not None:
                        os.close(asked[1])
                    return self._be_spare(theirs)
                theirs.close()
                is_again = asked is not None
                if asked is None:
                    self._loop.run_forever()
                    asked = messages.receive(self._farm)
                    if asked is None:
                        return 0
                if self._hand_on(ours, *asked) or is_again:
                    os.close(asked[1])  # if it was not handed on, the farm learns by that
                    asked = None

    def _hand_on(self, spare: socket.socket, message: Message, descriptor: int) -> bool:
        """Let the spare be the cluster that is asked for; return whether it was there."""
        try:
            messages.send(spare, message, descriptor)
        except OSError as error:
            self._log.error("a spare ended", cluster=message["fork"], error=str(error))
            return False
        return True

    def _be_spare(self, template: socket.socket) -> int:
        """Be a cluster that nobody has asked for yet; return the exit code."""
        self._loop.remove_reader(self._farm.fileno())
        self._farm.close()
        self._loop.after_fork()
        forked = Forked(self._cluster, self._time, self._rng, self._directory)
        with template:
            try:
                self._loop.run_until_complete(warm(forked))
            except (ComponentError, OSError) as error:
                self._log.error("a spare cannot answer", error=repr(error))
                return 1
            self._loop.add_reader(template.fileno(), self._loop.stop)
            self._loop.run_forever()
            self._loop.remove_reader(template.fileno())
            found = messages.receive(template)
        if found is None:
            return 0
        message, descriptor = found
        return be_cluster(self._loop, forked, message, socket.socket(fileno=descriptor))


def _first_rows(packed: str) -> FirstRows | None:
    if not packed:
        return None
    contents = read_pack(Path(packed), OBJECTS_MAX)
    rows = [kv for kv in contents.rows if not kv.lease]
    return replace(contents, rows=rows).first_rows()


def main(descriptor: int) -> int:
    """Be a template; return the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the farm's terminal ends the farm
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the farm knows when a cluster has ended
    farm = socket.socket(fileno=descriptor)
    found = messages.receive(farm)
    if found is None:
        return 0
    message, _ = found
    spec = Spec(message["contents"], message["nodes"], tuple(message["without"]))
    gc.disable()
    try:
        template = _Template(farm, Path(message["directory"]), spec)
        messages.send(farm, {"ready": {"revision": template.start()}})
    except (ComponentError, OSError) as error:
        messages.send(farm, {"failed": str(error)})
        return 1
    finally:
        gc.enable()
    return template.serve()


if __name__ == "__main__":
    code = main(int(sys.argv[1]))
    sys.stdout.flush()
    os._exit(code)  # what runs on the loop is let go with the process
