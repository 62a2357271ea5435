"""Whole clusters as processes: `kvstack up`, and the nodes that only pretend beside it.

    with started(directory, "--nodes=100") as stack:
        stack.ask("GET", "/api/v1/nodes")
        stack.memory()

    with started(directory, "--without=node,nodes") as stack, hollow_nodes(stack, directory, 100):
        stack.wait_ready()

Requests are the administrator's, on one connection that is kept. `peer_stacks` has the same of the
real programs.
"""

import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.procfs import Memory, cpu_seconds, memory
from tests.support.servers import free_ports

READY_S: Final = 300.0
_STOP_S: Final = 60.0
_REQUEST_S: Final = 120.0
_POLL_S: Final = 0.02
_COUNT_POLL_S: Final = 0.05
"""What is asked costs the server something, which is measured, too."""
_NODES_POLL_S: Final = 0.5
_NODES: Final = "/api/v1/nodes"


class RefusedError(Exception):
    """The API server answered with an error."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code


@dataclass(frozen=True, slots=True)
class Access:
    """How the administrator asks."""

    context: ssl.SSLContext
    headers: dict[str, str] = field(default_factory=dict)


class Stack:
    """The processes of a control plane."""

    def __init__(
        self,
        processes: "Sequence[subprocess.Popen[bytes]]",
        logs: Sequence[Path],
        kubeconfig: Path,
        port: int,
        access: Callable[[], Access],
    ) -> None:
        """Watch processes that were started.

        kubeconfig: of the administrator, once the cluster is ready. access: OSError until then.
        """
        self.pids: Final = tuple(each.pid for each in processes)
        self.kubeconfig: Final = kubeconfig
        self._processes = processes
        self._logs = logs
        self._port = port
        self._access = access
        self._known: Access | None = None
        self._connection: http.client.HTTPSConnection | None = None

    def cpu_s(self) -> float:
        """Return the CPU time that all processes have used."""
        return sum(cpu_seconds(pid) for pid in self.pids)

    def memory(self) -> Memory:
        """Return what all processes have in memory."""
        found = [memory(pid) for pid in self.pids]
        return Memory(*(sum(each) for each in zip(*found, strict=True)))

    def ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """Send one request; return the answer's document. RefusedError, OSError."""
        content = self._ask(method, path, body)
        found: dict[str, Any] = json.loads(content)
        return found

    def close(self) -> None:
        """Give up the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def wait_ready(self) -> None:
        """Wait until the API server says that it is ready, and has the namespace of the pods."""
        limit_s = time.monotonic() + READY_S
        for path in ("/readyz", "/api/v1/namespaces/default"):
            while True:
                try:
                    self._ask("GET", path)
                    break
                except (OSError, RefusedError) as error:  # no certificate, no listener yet
                    self._check(limit_s, str(error))
                time.sleep(_POLL_S)

    def wait_for(self, path: str, name: str, count: int, limit_s: float) -> None:
        """Wait until a number in an object's status is at least count; it is polled."""
        end_s = time.monotonic() + limit_s
        while True:
            found = (self.ask("GET", path).get("status") or {}).get(name) or 0
            if found >= count:
                return
            self._check(end_s, f"{path}: {name} is {found}, not {count}")
            time.sleep(_COUNT_POLL_S)

    def wait_nodes(self, count: int) -> None:
        """Wait until so many nodes take pods; they are polled."""
        end_s = time.monotonic() + READY_S
        while True:
            nodes = self.ask("GET", _NODES)["items"]
            ready = sum(not each["spec"].get("taints") for each in nodes)
            if ready >= count:
                return
            self._check(end_s, f"{ready} nodes take pods, not {count}")
            time.sleep(_NODES_POLL_S)

    def _ask(self, method: str, path: str, body: object = None) -> bytes:
        if self._known is None:
            self._known = self._access()
        if self._connection is None:
            self._connection = http.client.HTTPSConnection(
                "127.0.0.1", self._port, timeout=_REQUEST_S, context=self._known.context
            )
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **self._known.headers}
        try:
            self._connection.request(method, path, data, headers)
            answer = self._connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise ConnectionError(f"{method} {path}: {error!r}") from error
        if answer.status >= http.client.BAD_REQUEST:
            raise RefusedError(answer.status, content.decode(errors="replace"))
        return content

    def _check(self, limit_s: float, what: str) -> None:
        ended = any(each.poll() is not None for each in self._processes)
        if ended or time.monotonic() > limit_s:
            logs = "".join(f"\n{each.name}:\n{each.read_text()[-4000:]}" for each in self._logs)
            raise RuntimeError(f"a process ended, or it takes too long: {what}{logs}")


@contextmanager
def process(command: Sequence[str], log: Path) -> "Iterator[subprocess.Popen[bytes]]":
    """Run a process; end it whatever happens."""
    # As where it is installed: modules are not compiled anew by each process.
    env = {name: each for name, each in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with log.open("ab") as file:
        running = subprocess.Popen(command, stdout=file, stderr=file, env=env)
    try:
        yield running
    finally:
        running.send_signal(signal.SIGTERM)
        try:
            running.wait(_STOP_S)
        finally:
            running.kill()
            running.wait()


@contextmanager
def started(directory: Path, *flags: str) -> Iterator[Stack]:
    """Start `kvstack up`, on what is in the directory if there is something."""
    directory.mkdir(parents=True, exist_ok=True)
    (api,) = free_ports(1)
    command = [sys.executable, "-m", "kvstack", "up", f"--data-dir={directory / 'data'}"]
    command += [f"--secure-port={api}"]
    own = directory / "data" / "kubernetes"

    def access() -> Access:
        context = ssl.create_default_context(cafile=own / "pki" / "ca.crt")
        context.load_cert_chain(own / "pki" / "super-admin.crt", own / "pki" / "super-admin.key")
        return Access(context)

    log = directory / "log"
    with ExitStack() as stack:
        running = stack.enter_context(process([*command, *flags], log))
        found = Stack([running], [log], own / "super-admin.conf", api, access)
        stack.callback(found.close)
        yield found


@contextmanager
def hollow_nodes(stack: Stack, directory: Path, count: int) -> Iterator[None]:
    """Run hollow nodes in a process of their own, for a cluster that is ready."""
    command = [sys.executable, "-m", "kvstack", "hollow-nodes", f"--nodes={count}"]
    flags = (f"--kubeconfig={stack.kubeconfig}", "--secure-port=0")
    with process([*command, *flags], directory / "hollow-nodes.log"):
        yield
