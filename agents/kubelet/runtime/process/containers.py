"""The containers of a node: those with a running shim, and those that have ended.

    containers = Containers(pod_files, cgroups, clock, on_change)
    await containers.adopt(directory)     one of a kubelet before: it runs, or it has ended
    await containers.follow(running, …)   one that was started: until its end, which is recorded

How a container is started is in `process_runtime`, what a pod's containers share in `sandboxes`.
"""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final

from kvstack.agents.kubelet.disk.removal import remove_tree
from kvstack.agents.kubelet.runtime.cgroups import Cgroups
from kvstack.agents.kubelet.runtime.process import files, sessions, shims
from kvstack.agents.kubelet.runtime.process.shim.launch_spec import LaunchSpec
from kvstack.agents.kubelet.runtime.process.specs import PAUSE
from kvstack.agents.kubelet.runtime.process.usage import usage_of
from kvstack.agents.kubelet.runtime.runtime import Container, StartError, Usage
from kvstack.agents.kubelet.runtime.termination_message import termination_message
from kvstack.component.clock import Clock

_KILLED: Final = 137


class RunningContainer:
    """A container whose shim runs."""

    def __init__(self, container: Container, spec: LaunchSpec, pid: int) -> None:
        self.container = container
        self.spec = spec
        self.pid = pid
        self.ended = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


class Containers:
    """All containers of a node; they belong to one loop."""

    def __init__(
        self,
        pod_files: files.PodFiles,
        cgroups: Cgroups,
        clock: Clock,
        on_change: Callable[[str], None],
    ) -> None:
        """on_change: called with the uid of a pod one of whose containers ended."""
        self._files = pod_files
        self._cgroups = cgroups
        self._clock = clock
        self._on_change = on_change
        self._all: dict[str, list[Container]] = {}
        self._running: dict[str, RunningContainer] = {}
        self._pauses: dict[str, Container] = {}

    def pod_uids(self) -> Collection[str]:
        """Return the pods that have containers."""
        return self._all.keys() | self._pauses.keys()

    def of_pod(self, uid: str) -> Sequence[Container]:
        """Return the containers of a pod, oldest first, without what holds its process ids."""
        return self._all.get(uid, ())

    def pause_of(self, uid: str) -> Container | None:
        """Return the container that holds the process ids of a pod, if they are shared."""
        return self._pauses.get(uid)

    def running(self, container_id: str) -> RunningContainer | None:
        """Return a container if it runs."""
        return self._running.get(container_id)

    def still_running(self, container_id: str) -> RunningContainer:
        """Return a container that runs; raises StartError if it does not."""
        running = self._running.get(container_id)
        if running is None:
            raise StartError("NotRunning", f"container {container_id} is not running")
        return running

    def pid_of_pause(self, uid: str) -> int:
        """Return the process that holds the process ids of a pod; 0: none does."""
        pause = self._pauses.get(uid)
        running = None if pause is None else self._running.get(pause.id)
        return 0 if running is None else running.pid

    def directory_of(self, container: Container) -> Path:
        """Return where the files of a container are."""
        return self._files.of_container(container.pod_uid, container.name, container.attempt)

    def sort(self) -> None:
        """Put the containers of each pod in the order in which they were started."""
        for each in self._all.values():
            each.sort(key=lambda container: container.started_s)

    async def adopt(self, directory: Path) -> None:
        """Adopt a container that was started before: it runs, or it has ended."""
        container, spec, pid = files.read_record(directory)
        await self.follow(RunningContainer(container, spec, pid), directory, None)

    async def follow(
        self,
        running: RunningContainer,
        directory: Path,
        process: asyncio.subprocess.Process | None,
    ) -> None:
        """Adopt a container; a task waits for its end. process: its shim, if this is its parent."""
        container = running.container
        self._add(container)
        try:
            reader, writer = await shims.ask(directory, {"do": "watch"})
        except OSError:  # it has ended already
            self._ended(running, directory)
            if process is not None:
                await process.wait()
            return
        self._running[container.id] = running

        async def until_end() -> None:
            with contextlib.suppress(ConnectionResetError):  # it ended before it took this
                await reader.read()
            if process is not None:
                await process.wait()
            await asyncio.to_thread(self._ended, running, directory)
            del self._running[container.id]
            running.ended.set()
            self._on_change(container.pod_uid)

        loop = asyncio.get_running_loop()
        running.task = loop.create_task(until_end(), name=f"container {container.id}")
        # Not in the task: one that is cancelled before it began ends nothing.
        running.task.add_done_callback(lambda _task: writer.close())

    def _add(self, container: Container) -> None:
        if container.name == PAUSE:
            self._pauses[container.pod_uid] = container
        else:
            self._all.setdefault(container.pod_uid, []).append(container)

    def _ended(self, running: RunningContainer, directory: Path) -> None:
        """Record the exit of a container, as its shim wrote it."""
        container, spec = running.container, running.spec
        ended = files.read_exit(directory)
        if ended is None:  # its shim was killed, and so was it
            ended = files.ExitRecord(_KILLED, self._clock.now_s())
        container.exit_code, container.finished_s = ended
        container.reason = "Completed" if container.exit_code == 0 else "Error"
        if spec.cgroup_files:
            if container.exit_code and self._cgroups.out_of_memory(spec.cgroup_path):
                container.reason = "OOMKilled"
            self._cgroups.remove(spec.cgroup_path)
        container.message = termination_message(
            directory / files.MESSAGE,
            Path(spec.log),
            falls_back=bool(spec.falls_back_to_logs and container.exit_code),
        )
        container.is_running = False
        files.write_record(directory, container, 0)

    async def stop(self, container_id: str, grace_s: float) -> None:
        """Send the stop signal to a container, and kill it after grace_s."""
        running = self._running.get(container_id)
        if running is None:
            return
        own = signal.Signals.__members__.get(running.spec.stop_signal, signal.SIGTERM)
        await self._signal(running, own)
        try:
            async with asyncio.timeout(grace_s):
                await running.ended.wait()
        except TimeoutError:
            await self._signal(running, signal.SIGKILL)
            await running.ended.wait()

    async def _signal(self, running: RunningContainer, number: signal.Signals) -> None:
        request = {"do": "signal", "number": int(number)}
        await sessions.send_requests(self.directory_of(running.container), [request])

    async def close(self, *, kills: bool) -> None:
        """Stop following containers; kills: after all of them were killed and have ended."""
        running = list(self._running.values())
        if kills:
            for each in running:
                await self._signal(each, signal.SIGKILL)
            for each in running:
                await each.ended.wait()
        tasks = [each.task for each in running if each.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def usage(self) -> Sequence[Usage]:
        """Return what the containers that run use; nothing without control groups."""
        running = [each for each in self._running.values() if each.container.name != PAUSE]
        return await asyncio.to_thread(self._usage, running)

    def _usage(self, running: Sequence[RunningContainer]) -> list[Usage]:
        each_of_them = (usage_of(each.container, each.spec, self._cgroups) for each in running)
        return [each for each in each_of_them if each is not None]

    async def reopen_log(self, container_id: str) -> None:
        """Reopen a container's log after rotation."""
        running = self._running.get(container_id)
        if running is not None:
            await sessions.send_requests(self.directory_of(running.container), [{"do": "reopen"}])

    async def remove(self, container_id: str) -> None:
        """Forget a container that has ended, and its files."""
        for uid, containers in self._all.items():
            for each in containers:
                if each.id == container_id:
                    await asyncio.to_thread(remove_tree, self.directory_of(each))
                    self._all[uid] = [one for one in containers if one is not each]
                    return

    def forget_pod(self, uid: str) -> None:
        """Forget the containers of a pod, of which none runs."""
        self._all.pop(uid, None)
        self._pauses.pop(uid, None)
