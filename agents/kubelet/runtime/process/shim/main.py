"""Stays with one container until it has ended.

    main([DIRECTORY, STATUS, LIFELINE, LOCK])

    DIRECTORY/launch.json   what is to run
    DIRECTORY/socket        for clients
    DIRECTORY/exit.json     how it ended: {"code": 0, "finished_ns": …}

STATUS is a descriptor that gets `ok PID`, or what went wrong. LIFELINE is one
without data: when its other side is closed, the container is killed; -1: it outlives its node. LOCK
is one whose lock is held until this program ends.
"""

import fcntl
import json
import os
import resource
import selectors
import signal
import socket
import struct
import sys
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from kvstack.agents.kubelet.runtime.process.shim import container, syscalls, user_namespaces
from kvstack.agents.kubelet.runtime.process.shim.clients import (
    CLOSE_INPUT,
    INPUT,
    SIZE,
    TERMINAL_SIZE,
    UNSENT_BYTES_MAX,
    Client,
    Request,
    frame,
)
from kvstack.agents.kubelet.runtime.process.shim.launch_spec import (
    LaunchSpec,
    decode_command,
    decode_launch,
)
from kvstack.agents.kubelet.runtime.process.shim.log_file import LogFile

SOCKET: Final = "socket"
EXIT: Final = "exit.json"
LAUNCH: Final = "launch.json"
_PIECE: Final = 64 << 10
_NOT_STARTED: Final = 128
_DESCRIPTORS_MAX: Final = 1024
_DRAIN_S: Final = 0.5
"""How long the last output of a container is waited for, once its first process has ended."""

_READ: Final = selectors.EVENT_READ
_WRITE: Final = selectors.EVENT_WRITE


def main(arguments: Sequence[str]) -> int:
    """Run a container; return 0 once it has ended and its exit status is written."""
    directory, (status, lifeline, lock) = arguments[0], map(int, arguments[1:4])
    for each in (status, lifeline, lock):
        if each >= 0:
            os.set_inheritable(each, False)  # not the container's
    os.chdir(directory)
    spec = decode_launch(Path(LAUNCH).read_text())
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (spec.descriptors, hard))
    for each, _ in spec.namespaces:
        os.set_inheritable(each, False)
    if spec.user_namespace >= 0:  # stays open: commands enter it, too
        os.set_inheritable(spec.user_namespace, False)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(SOCKET)
    listener.listen(64)
    listener.setblocking(False)
    try:
        shim = Shim(spec, listener, lifeline)
        pid = shim.start()
    except (container.StartError, OSError) as error:
        os.write(status, b"error " + str(error).encode()[:4000])
        return 1
    try:
        os.write(status, f"ok {pid}".encode())
    except BrokenPipeError:
        shim.kill()  # the node that requested it is gone
    os.close(status)
    shim.run()
    return 0


class Shim:
    """One container and its clients."""

    def __init__(self, spec: LaunchSpec, listener: socket.socket, lifeline: int) -> None:
        self._spec = spec
        self._listener = listener
        self._lifeline = lifeline
        self._log = LogFile(spec.log)
        self._selector = selectors.DefaultSelector()
        self._clients: list[Client] = []
        self._pid = 0
        self._first = -1  # a descriptor of the first process
        self._code: int | None = None
        self._deadline: float | None = None
        self._outputs: dict[int, int] = {}  # descriptor → stream
        self._input: int | None = None
        self._input_waiting = bytearray()
        self._terminal: int | None = None
        self._is_paused = False

    def start(self) -> int:
        """Start the container's first process; StartError."""
        spec = self._spec
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # they are not for it
        if spec.pid_of:
            descriptor = os.pidfd_open(spec.pid_of)
            syscalls.setns(descriptor, syscalls.CLONE_NEWPID)
            os.close(descriptor)
        elif not spec.host_pids:
            syscalls.unshare(syscalls.CLONE_NEWPID)
        way, far = socket.socketpair() if spec.tty else (None, None)
        theirs = self._make_streams() if far is None else (far.fileno(),) * 3
        work = _pause if spec.pauses else container.become
        self._pid = _fork(lambda: work(spec), theirs)
        if way is not None and far is not None:
            self._take_terminal(way)
            far.detach()  # closed with the others
        for each in {*theirs, *(each for each, _ in spec.namespaces)}:
            os.close(each)
        return self._pid

    def _make_streams(self) -> tuple[int, int, int]:
        """Make input and output of the container; return its sides."""
        if self._spec.stdin:
            stdin, self._input = os.pipe()
            os.set_blocking(self._input, False)
        else:
            stdin = os.open("/dev/null", os.O_RDONLY)
        stdout, stderr = os.pipe(), os.pipe()
        self._outputs = {stdout[0]: 1, stderr[0]: 2}
        return stdin, stdout[1], stderr[1]

    def _take_terminal(self, way: socket.socket) -> None:
        """Receive our end of the terminal that the container has opened."""
        _, (ours,), _, _ = socket.recv_fds(way, 1, 1)
        way.close()
        self._terminal = self._input = ours
        self._outputs[ours] = 1

    def run(self) -> None:
        """Carry what comes until the container has ended."""
        self._first = os.pidfd_open(self._pid)
        watch = self._selector.register
        watch(self._first, _READ, self._reap)
        watch(self._listener, _READ, self._accept)
        if self._lifeline >= 0:
            watch(self._lifeline, _READ, self._let_go)
        for each in self._outputs:
            os.set_blocking(each, False)
            watch(each, _READ, self._read_output)
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writer)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        watch(reader, _READ, self._reap_others)
        while self._code is None or (self._outputs and self._rest_s() > 0):
            for key, mask in self._selector.select(self._rest_s() if self._deadline else None):
                key.data(key.fd, mask)
        self._end()

    def _rest_s(self) -> float:
        return 1.0 if self._deadline is None else self._deadline - time.monotonic()

    def _end(self) -> None:
        _kill_all(self._spec.cgroup_files)
        _kill_children()
        self._log.close()
        waiting = Path(f"{EXIT}.new")
        waiting.write_text(json.dumps({"code": self._code, "finished_ns": time.time_ns()}))
        waiting.rename(EXIT)
        os.unlink(SOCKET)
        for each in self._clients:
            each.finish()

    # The container's processes.

    def _reap(self, descriptor: int, _mask: int) -> None:
        found, code = os.waitpid(self._pid, os.WNOHANG)
        if found:
            self._selector.unregister(descriptor)
            self._code = _exit_code(code)
            self._deadline = time.monotonic() + _DRAIN_S

    def _reap_others(self, descriptor: int, _mask: int) -> None:
        """Commands for clients end, some after their clients; and processes whose parents have.

        None is left: the first process of a namespace ends after all others have been waited for.
        """
        os.read(descriptor, _PIECE)
        clients = {each.child: each for each in self._clients if each.child}
        for pid in _children():
            if pid == self._pid:
                continue
            found, code = os.waitpid(pid, os.WNOHANG)
            client = clients.get(pid)
            if found and client is not None:
                client.child = 0
                self._drop(client, json.dumps({"code": _exit_code(code)}))

    def _let_go(self, descriptor: int, _mask: int) -> None:
        """The node has gone: so does the container."""
        self._selector.unregister(descriptor)
        self._signal(signal.SIGKILL)

    def kill(self) -> None:
        """Kill the container's processes; `run` ends then."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self._code is None:
            os.kill(self._pid, number)
        if number == signal.SIGKILL:
            _kill_all(self._spec.cgroup_files)

    # What it writes and reads.

    def _read_output(self, descriptor: int, _mask: int) -> None:
        try:
            data = os.read(descriptor, _PIECE)
        except BlockingIOError:
            return
        except OSError:  # EIO: no process has the terminal open
            data = b""
        stream = self._outputs[descriptor]
        if not data:
            self._selector.unregister(descriptor)
            del self._outputs[descriptor]
            return
        self._feed()
        self._log.add(stream, data)
        for client in [each for each in self._clients if each.is_attached]:
            self._send(client, frame(stream, data))
        self._pause_if_slow()

    def _pause_if_slow(self) -> None:
        """Stop reading while a client is far behind."""
        is_slow = any(each.unsent > UNSENT_BYTES_MAX for each in self._clients)
        if is_slow == self._is_paused:
            return
        self._is_paused = is_slow
        for each in self._outputs:
            if is_slow:
                self._selector.unregister(each)
            else:
                self._selector.register(each, _READ, self._read_output)

    def _on_frame(self, kind: int, data: bytes) -> None:
        if kind == INPUT and self._input is not None:
            self._input_waiting += data
            self._feed()
        elif kind == SIZE and self._terminal is not None:
            columns, rows = TERMINAL_SIZE.unpack(data)
            size = struct.pack("HHHH", rows, columns, 0, 0)
            fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, size)
        elif kind == CLOSE_INPUT and self._spec.stdin_once:
            self._close_input()

    def _feed(self) -> None:
        """Give the container the input that waits, as far as it takes it."""
        while self._input_waiting and self._input is not None:
            try:
                written = os.write(self._input, self._input_waiting[:_PIECE])
            except BlockingIOError:
                self._feed_later(self._input)
                return
            except OSError:  # it does not read
                self._input_waiting.clear()
                return
            del self._input_waiting[:written]

    def _feed_later(self, descriptor: int) -> None:
        if descriptor == self._terminal:
            return  # with the next output or input: a terminal that is full is being written to
        if descriptor not in self._selector.get_map():
            self._selector.register(descriptor, _WRITE, self._fed)

    def _fed(self, descriptor: int, _mask: int) -> None:
        self._selector.unregister(descriptor)
        self._feed()

    def _close_input(self) -> None:
        if self._input is not None and self._input != self._terminal:
            if self._input in self._selector.get_map():
                self._selector.unregister(self._input)
            os.close(self._input)
            self._input = None

    # Clients.

    def _accept(self, _descriptor: int, _mask: int) -> None:
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return
        connection.setblocking(False)
        client = Client(connection, self._on_request, self._on_frame)
        self._clients.append(client)
        self._selector.register(connection, _READ, self._serving(client))

    def _serving(self, client: Client) -> Callable[[int, int], None]:
        def serve(_descriptor: int, mask: int) -> None:
            goes_on = client.flush() if mask & _WRITE else True
            if goes_on and mask & _READ:
                goes_on = client.receive()
            if client in self._clients:
                if goes_on:
                    self._watch_sending(client)
                else:
                    self._drop(client)

        return serve

    def _watch_sending(self, client: Client) -> None:
        mask = _READ | (_WRITE if client.unsent else 0)
        key = self._selector.get_key(client.connection)
        if key.events != mask:
            self._selector.modify(client.connection, mask, key.data)
        self._pause_if_slow()

    def _send(self, client: Client, data: bytes) -> None:
        if client.send(data):
            self._watch_sending(client)
        else:
            self._drop(client)

    def _drop(self, client: Client, last_line: str = "") -> None:
        self._clients.remove(client)
        self._selector.unregister(client.connection)
        if client.is_attached and self._spec.stdin_once:
            self._close_input()
        if last_line:
            client.send(f"{last_line}\n".encode())
            client.finish()
        else:
            client.close()
        self._pause_if_slow()

    def _on_request(self, client: Client, request: Request) -> None:
        what = request["do"]
        if what == "attach":
            client.is_attached = True
        elif what == "signal":
            self._signal(request["number"])
        elif what == "reopen":
            self._log.reopen()
        elif what == "exec":
            self._exec(client, request)

    def _exec(self, client: Client, request: Request) -> None:
        """Run a command for a client, in the container."""
        try:
            spec = self._spec.for_command(decode_command(request["spec"]))
            stdin, stdout, stderr = client.descriptors
            client.child = _fork(lambda: container.join(spec, self._first), (stdin, stdout, stderr))
        except (container.StartError, OSError, ValueError) as error:
            client.send(f"{json.dumps({'error': str(error)})}\n".encode())
            return
        for each in client.descriptors:
            os.close(each)
        client.descriptors.clear()
        client.send(b"{}\n")


def _pause(spec: LaunchSpec) -> None:
    """Hold the namespaces of a pod, and reap what is left in them."""
    if spec.user_namespace >= 0:
        user_namespaces.enter(spec.user_namespace)
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda _number, _frame: os._exit(0))
    os.closerange(3, _DESCRIPTORS_MAX)  # so that it is seen that this has begun
    while True:
        signal.pause()


def _fork(work: Callable[[], None], streams: tuple[int, int, int]) -> int:
    """Run a function in a process that executes a program; return its id; StartError."""
    reader, writer = os.pipe()  # closed by a good exec
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            for target, each in enumerate(_above(streams)):
                os.dup2(each, target)
            work()
        except BaseException as error:  # noqa: BLE001 - the parent raises it
            os.write(writer, (str(error) or repr(error)).encode()[:4000])
        os._exit(_NOT_STARTED)
    os.close(writer)
    failure = b""
    while piece := os.read(reader, 4096):
        failure += piece
    os.close(reader)
    if failure:
        os.waitpid(pid, 0)
        raise container.StartError(failure.decode("utf-8", "replace"))
    return pid


def _above(streams: tuple[int, int, int]) -> list[int]:
    """Return descriptors that are not in the way of one another."""
    return [each if each > 2 else fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, 3) for each in streams]


def _exit_code(status: int) -> int:
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _children() -> list[int]:
    me = os.getpid()
    return [int(each) for each in Path(f"/proc/{me}/task/{me}/children").read_text().split()]


def _kill_children() -> None:
    """Kill what the container's processes have left to this one."""
    while left := _children():
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        for pid in left:
            os.waitpid(pid, 0)


def _kill_all(cgroups: Sequence[str]) -> None:
    """Kill what is left of a container that has no process namespace of its own."""
    for path in cgroups[:1]:
        try:
            left = Path(path).read_text().split()
        except OSError:
            return  # it was taken away with the last process
        for pid in left:
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                continue  # it ended meanwhile


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
