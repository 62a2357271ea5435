"""Attached processes: a command in a container, or its first process."""

import asyncio
import contextlib
import fcntl
import json
import os
import socket
import struct
import termios
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kvstack.agents.kubelet.runtime.process import shims
from kvstack.agents.kubelet.runtime.process.shim.clients import (
    CLOSE_INPUT,
    HEAD,
    INPUT,
    SIZE,
    TERMINAL_SIZE,
    frame,
)
from kvstack.agents.kubelet.runtime.process.shim.launch_spec import CommandSpec, encode_command
from kvstack.agents.kubelet.runtime.runtime import StartError

_PIECE: Final = 64 << 10
_READ_MAX: Final = 64
"""So many pieces are read ahead."""
_REST_S: Final = 0.5
"""How long output of other processes than the command is waited for."""


class CommandSession:
    """A command that runs for a client."""

    def __init__(
        self,
        shim: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        outputs: Mapping[int, int],
        stdin: int,
        *,
        is_terminal: bool,
    ) -> None:
        """outputs: our descriptors by stream; stdin: ours, which a terminal has in common."""
        self._reader, self._writer = shim
        self._stdin = stdin
        self._is_terminal = is_terminal
        self._pieces: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue(_READ_MAX)
        loop = asyncio.get_running_loop()
        self._outputs = outputs
        self._readers = [
            loop.create_task(self._read(stream, each)) for stream, each in outputs.items()
        ]
        self._end = loop.create_task(self._tell_end())
        self._code = loop.create_task(self._wait())

    async def write(self, data: bytes) -> None:
        """Write to its input; dropped once the process has closed it."""
        while data and self._stdin >= 0:
            try:
                data = data[os.write(self._stdin, data) :]
            except BlockingIOError:
                await _ready(self._stdin, is_write=True)
            except OSError:
                return

    def close_input(self) -> None:
        """Close standard input; a terminal has no such end."""
        if self._stdin >= 0 and not self._is_terminal:
            os.close(self._stdin)
            self._stdin = -1

    def resize(self, columns: int, rows: int) -> None:
        """Set the size of its terminal."""
        if self._is_terminal and self._stdin >= 0:
            size = struct.pack("HHHH", rows, columns, 0, 0)
            fcntl.ioctl(self._stdin, termios.TIOCSWINSZ, size)

    async def read(self) -> tuple[int, bytes]:
        """Return stream and what it wrote; (0, b"") at the end."""
        return await self._pieces.get()

    async def wait(self) -> int:
        """Return the exit code; 128 + the signal that ended it. StartError: it did not start."""
        return await asyncio.shield(self._code)

    def close(self) -> None:
        """End it."""
        self._writer.close()
        for task in (*self._readers, self._end, self._code):
            task.cancel()
        for each in {*self._outputs.values(), self._stdin}:
            if each >= 0:
                _forget(each)
                os.close(each)
        self._outputs, self._stdin = {}, -1

    async def _read(self, stream: int, descriptor: int) -> None:
        while True:
            try:
                data = os.read(descriptor, _PIECE)
            except BlockingIOError:
                await _ready(descriptor, is_write=False)
                continue
            except OSError:  # EIO: no process has the terminal open
                return
            if not data:
                return
            await self._pieces.put((stream, data))

    async def _tell_end(self) -> None:
        # What a command leaves behind may hold its output open for ever: its end is enough.
        readers = set(self._readers)
        while readers and not self._code.done():
            first = asyncio.FIRST_COMPLETED
            done, _ = await asyncio.wait({*readers, self._code}, return_when=first)
            readers -= done
        if readers:
            await asyncio.wait(readers, timeout=_REST_S)
        await self._pieces.put((0, b""))

    async def _wait(self) -> int:
        try:
            line = await self._reader.readline()
        except ConnectionResetError:
            line = b""  # the container's program was killed
        return int(json.loads(line)["code"]) if line else 137


def _close(descriptors: Iterable[int]) -> None:
    for each in descriptors:
        os.close(each)


async def _ready(descriptor: int, *, is_write: bool) -> None:
    """Wait until something can be read or written."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    if is_write:
        loop.add_writer(descriptor, wake)
    else:
        loop.add_reader(descriptor, wake)
    try:
        await ready
    finally:
        if is_write:
            loop.remove_writer(descriptor)
        else:
            loop.remove_reader(descriptor)


def _forget(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    loop.remove_reader(descriptor)
    loop.remove_writer(descriptor)


async def start_command(directory: Path, command: CommandSpec) -> CommandSession:
    """Run a command in the container of a directory; raises StartError."""
    if command.tty:
        return await _start_on_terminal(directory, command)
    pipes = [os.pipe() for _ in range(3)]
    stdin = pipes[0][1]
    theirs = [pipes[0][0], pipes[1][1], pipes[2][1]]
    outputs = {1: pipes[1][0], 2: pipes[2][0]}
    for each in (stdin, *outputs.values()):
        os.set_blocking(each, False)
    is_begun = False
    try:
        shim = await _begin(directory, command, theirs)
        is_begun = True
    except OSError as error:
        raise StartError("ExecFailed", str(error)) from error
    finally:
        _close(set(theirs))
        if not is_begun:
            _close({stdin, *outputs.values()})
    return CommandSession(shim, outputs, stdin, is_terminal=False)


async def _start_on_terminal(directory: Path, command: CommandSpec) -> CommandSession:
    """Run a command on a terminal that it opens itself; raises StartError."""
    way, far = socket.socketpair()
    with way, far:
        try:
            shim = await _begin(directory, command, [far.fileno()] * 3)
        except OSError as error:
            raise StartError("ExecFailed", str(error)) from error
        # It came before the command began.
        _, (terminal,), _, _ = socket.recv_fds(way, 1, 1)
    os.set_blocking(terminal, False)
    return CommandSession(shim, {1: terminal}, terminal, is_terminal=True)


async def _begin(
    directory: Path, command: CommandSpec, streams: Sequence[int]
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Start a command by the shim of a container; raises StartError and OSError."""
    request = {"do": "exec", "spec": encode_command(command)}
    reader, writer = await shims.ask(directory, request, streams)
    is_begun = False
    try:
        answer = await reader.readline()
        found = json.loads(answer) if answer else {"error": "the container has ended"}
        is_begun = "error" not in found
    finally:
        if not is_begun:
            writer.close()
    if not is_begun:
        raise StartError("ExecFailed", found["error"])
    return reader, writer


class AttachedSession:
    """A container's first process."""

    def __init__(
        self, shim: tuple[asyncio.StreamReader, asyncio.StreamWriter], directory: Path
    ) -> None:
        """The command goes on when this is closed."""
        self._reader, self._writer = shim
        self._directory = directory

    async def write(self, data: bytes) -> None:
        """Give it input."""
        with contextlib.suppress(OSError):  # it has ended, as `read` will report
            self._writer.write(frame(INPUT, data))
            await self._writer.drain()

    def close_input(self) -> None:
        """Its input ends, if its container says so (stdinOnce)."""
        self._writer.write(frame(CLOSE_INPUT, b""))

    def resize(self, columns: int, rows: int) -> None:
        """Set the size of its terminal."""
        self._writer.write(frame(SIZE, TERMINAL_SIZE.pack(columns, rows)))

    async def read(self) -> tuple[int, bytes]:
        """Return stream and what it wrote; (0, b"") once it has ended."""
        try:
            kind, length = HEAD.unpack(await self._reader.readexactly(HEAD.size))
            return kind, await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, OSError):
            return 0, b""

    async def wait(self) -> int:
        """Return 0: the exit code of the container is in its status."""
        return 0

    def close(self) -> None:
        """Stop listening to it."""
        self._writer.close()


async def attach(directory: Path) -> AttachedSession:
    """Talk to the container of a directory; raises StartError."""
    try:
        return AttachedSession(await shims.ask(directory, {"do": "attach"}), directory)
    except OSError as error:
        raise StartError("NotRunning", str(error)) from error


async def send_requests(directory: Path, requests: Sequence[Mapping[str, Any]]) -> None:
    """Send requests that have no answer; one that has ended gets none."""
    for each in requests:
        try:
            _, writer = await shims.ask(directory, dict(each))
        except OSError:
            return
        writer.close()
