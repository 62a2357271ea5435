"""The process that stays outside of the user namespace, and does there what is requested.

    outside = Outside.start()                     before the user namespace is entered
    outside.map_ids(pid, uids, gids)
    outside.connect(pid, "pasta")                 runs the uplink until the other side ends
    outside.listen("tcp", "127.0.0.1", 6443)      a socket of the machine's network

It is a copy of this process, with only the rights of its user. It ends when the other side of
its socket does, however that ends, and with it the uplink. Each request is answered before the
next; all raise OutsideError.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn, Self

from kvstack.agents.standalone.rootless.ids import Row
from kvstack.apimachinery.objects.json_object import Object

RESOLVERS: Final = {"pasta": "169.254.253.53", "slirp4netns": "10.0.2.3"}
"""The address at which each program forwards DNS queries to the machine's own resolver."""
_MESSAGE_BYTES_MAX: Final = 64 << 10
_PROGRAM_S: Final = 30.0
_KINDS: Final = {"tcp": socket.SOCK_STREAM, "udp": socket.SOCK_DGRAM}
_BACKLOG: Final = 128
_STARTS_S: Final = 0.3
"""A program that cannot do its work ends within this time."""


class OutsideError(Exception):
    """A request could not be done."""


class Outside:
    """The process, as the other side sees it; may be used from any thread."""

    def __init__(self, link: socket.socket, pid: int) -> None:
        """link: to a process that serves; pid: its number."""
        self.pid: Final = pid
        self._link = link
        self._lock = threading.Lock()

    @classmethod
    def start(cls) -> Self:
        """Start it, from a process with a single thread."""
        own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            own.close()
            _serve(other)
        other.close()
        return cls(own, pid)

    def map_ids(self, pid: int, uids: Sequence[Row], gids: Sequence[Row]) -> None:
        """Give a process in a new user namespace its ids."""
        self._ask({"do": "map", "pid": pid, "uids": uids, "gids": gids})

    def connect(self, pid: int, program: str) -> None:
        """Run a program that connects the network of a process with the machine's."""
        self._ask({"do": "connect", "pid": pid, "program": program})

    def listen(self, kind: str, host: str, port: int) -> socket.socket:
        """Return a socket that listens on the machine; kind: tcp or udp."""
        descriptors = self._ask({"do": "listen", "kind": kind, "host": host, "port": port})
        return socket.socket(fileno=descriptors[0])

    def close(self) -> None:
        """Stop it, and wait until it has ended."""
        with contextlib.suppress(OSError):  # it is gone
            self._link.shutdown(socket.SHUT_RDWR)  # also where a child has a copy of the socket
        self._link.close()
        with contextlib.suppress(ChildProcessError):  # it was waited for
            os.waitpid(self.pid, 0)

    def _ask(self, request: Object) -> list[int]:
        with self._lock:
            try:
                self._link.send(json.dumps(request).encode())
                data, descriptors, _, _ = socket.recv_fds(self._link, _MESSAGE_BYTES_MAX, 1)
            except OSError as error:
                raise OutsideError(f"the process outside has ended: {error}") from error
        if not data:
            raise OutsideError("the process outside has ended")
        if problem := json.loads(data)["problem"]:
            raise OutsideError(problem)
        return descriptors


def _serve(link: socket.socket) -> NoReturn:
    """Serve requests until the other side has ended."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the other side handles them
    running: list[subprocess.Popen[bytes]] = []
    try:
        while data := link.recv(_MESSAGE_BYTES_MAX):
            sockets: list[socket.socket] = []
            try:
                _do(json.loads(data), running, sockets)
                answer = {"problem": ""}
            except (OSError, OutsideError, subprocess.SubprocessError) as error:
                answer = {"problem": str(error)}
            socket.send_fds(
                link, [json.dumps(answer).encode()], [each.fileno() for each in sockets]
            )
            for each in sockets:
                each.close()
    except OSError:
        pass  # the other side is gone
    finally:
        for process in running:
            process.kill()  # it has inherited what is ignored here
        os._exit(0)


def _do(
    request: Object, running: list["subprocess.Popen[bytes]"], sockets: list[socket.socket]
) -> None:
    if request["do"] == "map":
        _map(request)
    elif request["do"] == "connect":
        running.append(_connect(request["pid"], request["program"]))
    else:
        sockets.append(_listening(request))


def _map(request: Object) -> None:
    """Write the maps of a process: by programs, if they have more than the own id."""
    for kind in ("uid", "gid"):
        rows: list[Row] = request[f"{kind}s"]
        if len(rows) == 1:
            directory = Path("/proc", str(request["pid"]))
            if kind == "gid":  # who may leave groups could evade what is refused to them
                (directory / "setgroups").write_text("deny")
            (directory / f"{kind}_map").write_text(" ".join(map(str, rows[0])))
            continue
        numbers = [str(each) for row in rows for each in row]
        _run([f"new{kind}map", str(request["pid"]), *numbers])


def _connect(pid: int, program: str) -> "subprocess.Popen[bytes]":
    none = [each for flag in ("-t", "-u", "-T", "-U") for each in (flag, "none")]
    resolver = RESOLVERS[program]
    commands = {
        # The machine's loopback is unreachable from inside.
        "pasta": [
            *("pasta", "--config-net", "-f", "-q", *none, "--no-map-gw"),
            *("--dns-forward", resolver, str(pid)),
        ],
        "slirp4netns": [
            *("slirp4netns", "--configure", "--mtu=65520", "--disable-host-loopback"),
            *(str(pid), "tap0"),
        ],
    }
    with tempfile.TemporaryFile() as errors:  # no pipe, which would be full some day
        process = subprocess.Popen(
            commands[program], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors
        )
        with contextlib.suppress(subprocess.TimeoutExpired):  # it works
            process.wait(_STARTS_S)
            errors.seek(0)
            text = errors.read().decode(errors="replace").strip()
            raise OutsideError(f"{program} ended: {text[-500:] or process.returncode}")
    return process


def _listening(request: Object) -> socket.socket:
    kind, host = _KINDS[request["kind"]], request["host"]
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, kind)
    try:
        if kind == socket.SOCK_STREAM:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, request["port"]))
        if kind == socket.SOCK_STREAM:
            listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _run(command: list[str]) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_PROGRAM_S)
    if done.returncode:
        raise OutsideError(f"{command[0]}: {done.stderr.strip() or done.returncode}")
