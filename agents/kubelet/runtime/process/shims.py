"""The programs that stay with containers: how they are started and controlled (see `shim`).

process, pid = await launch(directory, spec, lifeline)
connection = await ask(directory, {"do": "watch"})
"""

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import kvstack
from kvstack.agents.kubelet.runtime.process.shim.launch_spec import LaunchSpec, encode_launch
from kvstack.agents.kubelet.runtime.process.shim.main import LAUNCH, SOCKET
from kvstack.agents.kubelet.runtime.runtime import StartError
from kvstack.component.errors import ConfigError

_PROGRAM: Final = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from kvstack.agents.kubelet.runtime.process.shim.main import main; "
    "sys.exit(main(sys.argv[1:]))"
)
_PACKAGES: Final = str(Path(kvstack.__path__[0]).parent)
_END_S: Final = 30.0
_LOOK_S: Final = 0.02


async def launch(
    directory: Path,
    spec: LaunchSpec,
    lifeline: int,
    descriptors: Sequence[int] = (),
    interpreter: str = sys.executable,
) -> tuple[asyncio.subprocess.Process, int]:
    """Start a container; return its shim and the container's process id; raises StartError.

    descriptors: which the specification names, too; interpreter: by which path it is executed.

    The shim has a lock on its specification as long as it lives: see `end_unrecorded`.
    """
    file = directory / LAUNCH
    file.write_text(encode_launch(spec))
    reader, writer = os.pipe()
    try:
        with _locked(file) as lock:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", "-B", "-c", _PROGRAM, _PACKAGES),
                *(str(directory), str(writer), str(lifeline), str(lock)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                executable=interpreter,  # it finds its library by the first argument
                pass_fds=[writer, lock, *descriptors, *([] if lifeline < 0 else [lifeline])],
                start_new_session=True,
            )
    except OSError as error:
        os.close(reader)
        raise StartError("RunContainerError", str(error)) from error
    finally:
        os.close(writer)
    status_line = await asyncio.to_thread(_read_all, reader)
    kind, _, text = status_line.decode("utf-8", "replace").partition(" ")
    if kind == "ok":
        return process, int(text)
    _, errors = await process.communicate()
    message = text or errors.decode("utf-8", "replace").strip()
    raise StartError("RunContainerError", f"failed to start the container: {message}")


def _read_all(descriptor: int) -> bytes:
    with open(descriptor, "rb") as file:
        return file.read()


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Give a descriptor of a file that is locked until it, and those who inherit it, close it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield descriptor
    finally:
        os.close(descriptor)


async def end_unrecorded(directory: Path) -> None:
    """End a container of which nothing was recorded: its node was killed while it started it.

    It is started again, and would run twice. ConfigError if it does not end.
    """
    loop = asyncio.get_running_loop()
    end_s = loop.time() + _END_S
    connection: asyncio.StreamWriter | None = None
    try:
        while _is_locked(directory / LAUNCH):
            if loop.time() > end_s:
                process = "its process" if connection is None else f"process {_peer(connection)}"
                raise ConfigError(
                    f"{directory}: a container that an earlier kubelet began to start has not "
                    f"ended within {_END_S:.0f} s; end {process}"
                )
            if connection is None:
                # A shim that does not listen yet ends on its own when its status is not read.
                with contextlib.suppress(OSError):
                    request = {"do": "signal", "number": signal.SIGKILL}
                    _, connection = await ask(directory, request)
            await asyncio.sleep(_LOOK_S)
    finally:
        if connection is not None:
            connection.close()


def _is_locked(path: Path) -> bool:
    try:
        with _locked(path):
            return False
    except BlockingIOError:
        return True


def _peer(writer: asyncio.StreamWriter) -> int:
    """Return the process at the other side of a connection."""
    taken = writer.get_extra_info("socket")
    pid, _, _ = struct.unpack("3i", taken.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(pid)


async def ask(directory: Path, request: dict[str, Any], descriptors: Sequence[int] = ()) -> Any:  # noqa: ANN401
    """Send a request to a container's program; return reader and writer; raises OSError."""
    folder = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    connection = socket.socket(socket.AF_UNIX)
    try:
        # A socket's address is short; the descriptor stands for the long path.
        connection.connect(f"/proc/self/fd/{folder}/{SOCKET}")
        line = json.dumps(request).encode() + b"\n"
        sent = socket.send_fds(connection, [line], list(descriptors))
        if sent < len(line):
            connection.sendall(line[sent:])
        connection.setblocking(False)
        return await asyncio.open_unix_connection(sock=connection)
    except BaseException:
        connection.close()
        raise
    finally:
        os.close(folder)


def probe() -> None:
    """Find out whether this process may make containers; raises ConfigError."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); "
        "from kvstack.agents.kubelet.runtime.process.shim import syscalls as s; "
        "s.unshare(s.CLONE_NEWNS | s.CLONE_NEWUTS | s.CLONE_NEWIPC | s.CLONE_NEWPID); "
        "s.mount('none', '/', '', s.MS_REC | s.MS_PRIVATE)"
    )
    command = [sys.executable, "-I", "-S", "-B", "-c", program, _PACKAGES]
    found = subprocess.run(command, check=False, capture_output=True, text=True)
    if found.returncode != 0:
        why = found.stderr.strip().rpartition("\n")[2]
        raise ConfigError(f"containers need namespaces of their own: {why}")
