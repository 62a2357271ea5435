"""The directory of plugins' registration sockets, checked every second.

    sockets = PluginSockets(root / "plugins_registry", handle, logger)
    await sockets.run()

    a socket appears ─► handle.register(path) ─► tried again while it fails
    it is replaced   ─► handle.register(path) once more
    it goes          ─► handle.unregister(path)

Each socket has a task of its own, so that a plugin that hangs holds up no other. Directories below
are looked at, too, as upstream does; names that begin with a dot are left out. Whoever may make a
socket there is root of the machine.
"""

import asyncio
import os
import stat
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from kvstack.agents.client.back_off import FailureBackOff
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger

_EVERY_S: Final = 1.0
_RETRY_S: Final = 0.5
_RETRY_MAX_S: Final = 122.0
_SOCKETS_MAX: Final = 100
_ENTRIES_MAX: Final = 10_000
_DEPTH_MAX: Final = 5


class RegistrationError(Exception):
    """A plugin was not registered."""


class Handle(Protocol):
    """Handles plugins."""

    async def register(self, path: str) -> None:
        """Register the plugin of a socket; RegistrationError."""
        ...

    async def unregister(self, path: str) -> None:
        """The socket is gone; RegistrationError."""
        ...


class Identity(NamedTuple):
    """Identifies a socket, to detect when another one replaces it."""

    device: int
    inode: int
    changed_ns: int


class PluginSockets:
    """The sockets in one directory."""

    def __init__(self, directory: Path, handle: Handle, clock: Clock, logger: Logger) -> None:
        self._directory = directory
        self._handle = handle
        self._logger = logger
        self._back_off = FailureBackOff(clock, _RETRY_S, _RETRY_MAX_S)
        self._tasks: dict[str, tuple[Identity, asyncio.Task[None]]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._problem = ""

    async def run(self) -> None:
        """Follow the directory until cancelled; plugins are not unregistered then."""
        try:
            while True:
                try:
                    await self.look()
                except OSError as error:
                    self._notify(f"{self._directory}: {error}")
                await asyncio.sleep(_EVERY_S)
        finally:
            tasks = [*(task for _, task in self._tasks.values()), *self._ending]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def look(self) -> None:
        """Handle changes since the last look; OSError."""
        for path in list(self._tasks):
            if _identity(path) is None:
                self._begin(path, None)
        sockets = sockets_below(self._directory)
        known = {*self._tasks, *sorted(sockets)[: max(_SOCKETS_MAX - len(self._tasks), 0)]}
        too_many = len(sockets) > len(known)
        self._notify(f"there are more than {_SOCKETS_MAX} sockets" if too_many else "")
        for path in sorted(known & sockets.keys()):
            if path not in self._tasks or self._tasks[path][0] != sockets[path]:
                self._begin(path, sockets[path])

    def _notify(self, problem: str) -> None:
        if problem and problem != self._problem:
            text = "not all plugins can register"
            self._logger.warning(text, directory=str(self._directory), reason=problem)
        self._problem = problem

    def _begin(self, path: str, identity: Identity | None) -> None:
        """Register a socket from now on; None: it is gone."""
        _, before = self._tasks.pop(path, (None, None))
        if before is not None:
            before.cancel()
        work = self._follow(path, before, is_there=identity is not None)
        task = asyncio.get_running_loop().create_task(work, name=f"plugin {path}")
        if identity is not None:
            self._tasks[path] = identity, task
        else:
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def _follow(
        self, path: str, before: asyncio.Task[None] | None, *, is_there: bool
    ) -> None:
        if before is not None:
            await asyncio.gather(before, return_exceptions=True)
        self._back_off.forget(path)
        while True:
            try:
                await (self._handle.register(path) if is_there else self._handle.unregister(path))
            except RegistrationError as error:
                wait_s = self._back_off.next_s(path)
                text = "a plugin was not registered" if is_there else "a plugin stays registered"
                self._logger.warning(text, socket=path, reason=str(error), again_in_s=wait_s)
                await asyncio.sleep(wait_s)
            else:
                return


def sockets_below(directory: Path) -> dict[str, Identity]:
    """Return the sockets in a directory and below it; OSError."""
    sockets: dict[str, Identity] = {}
    left = [(str(directory), 0)]
    entries = 0
    while left and entries < _ENTRIES_MAX:
        path, depth = left.pop()
        with os.scandir(path) as listing:
            for entry in listing:
                entries += 1
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False) and depth < _DEPTH_MAX:
                    left.append((entry.path, depth + 1))
                elif (identity := _identity(entry.path)) is not None:
                    sockets[entry.path] = identity
    return sockets


def _identity(path: str) -> Identity | None:
    """Return the identity of a socket; None: it is none, or gone."""
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISSOCK(status.st_mode):
        return None
    return Identity(status.st_dev, status.st_ino, status.st_ctime_ns)
