"""API servers as processes: ours and, for comparison, a kube-apiserver; both take its flags.

    with cluster(tmp_path) as stack:       a store and one API server, ready, on loopback
        stack.server.url                   https://127.0.0.1:PORT
        stack.files.client_ca              what signs clients' certificates: (certificate, key)

Tokens are those of the recordings: admin-token, alice-token, bob-token. Every process listens on a
port of the test's own, keeps its files in the directory it is given, and is ended by its own id.
"""

import http.client
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support import pausing
from tests.support.certificates import Authority
from tests.support.servers import Server, free_ports, ours, running
from tests.support.waiting import wait_for

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
POLL_S = 0.02
OURS = (sys.executable, "-m", "kvstack", "apiserver")
ADMIN_TOKEN = "admin-token"
TOKENS = 'admin-token,admin,admin,"system:masters"\nalice-token,alice,alice,"devs,testers"\n' + (
    "bob-token,bob,bob\n"
)
FLAGS = (
    "--bind-address=127.0.0.1",
    "--advertise-address=192.0.2.2",
    "--authorization-mode=Node,RBAC",
    "--service-cluster-ip-range=10.0.0.0/16",
    "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
    "--allow-privileged",
)


@dataclass(frozen=True, slots=True)
class SharedFiles:
    """What all API servers of one cluster are given."""

    directory: Path
    client_ca: tuple[Path, Path]

    @classmethod
    def make(cls, directory: Path) -> "SharedFiles":
        """Write tokens, the clients' authority and the key of service accounts."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "tokens.csv").write_text(TOKENS)
        Authority(directory, "client-ca")
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        (directory / "sa.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            )
        )
        (directory / "sa.pub").write_bytes(
            key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        )
        return cls(directory, (directory / "client-ca.pem", directory / "client-ca.key"))

    def flags(self) -> list[str]:
        """Return the flags that name these files."""
        return [
            f"--token-auth-file={self.directory / 'tokens.csv'}",
            f"--client-ca-file={self.client_ca[0]}",
            f"--service-account-key-file={self.directory / 'sa.pub'}",
            f"--service-account-signing-key-file={self.directory / 'sa.key'}",
        ]


class ApiServer:
    """One API server process and how to reach it."""

    def __init__(
        self,
        directory: Path,
        files: SharedFiles,
        stores: Sequence[str],
        *,
        command: Sequence[str] = OURS,
        extra: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        self.files = files
        self.stores = list(stores)
        self.command = list(command)
        self.extra = list(extra)
        (self.port,) = free_ports(1)
        self.process: subprocess.Popen[bytes] | None = None
        self.log_path = directory / "apiserver.log"
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def arguments(self) -> list[str]:
        return [
            *self.command,
            f"--etcd-servers={','.join(self.stores)}",
            f"--secure-port={self.port}",
            f"--cert-dir={self.directory / 'certs'}",
            *FLAGS,
            *self.files.flags(),
            *self.extra,
        ]

    def start(self, *, wait: bool = True) -> "ApiServer":
        """Start the process; wait until it is ready."""
        named = ("KVSTORE_", "KVSTACK_CHECK_", "PYTHON")
        environment = {k: v for k, v in os.environ.items() if k.startswith(named)}
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                self.arguments(),
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env={"PATH": os.environ["PATH"], **environment},
            )
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Return once /readyz says ok; fail with the log if the process ends before."""

        def is_ready() -> bool:
            assert self.process is not None
            if self.process.poll() is not None:
                raise AssertionError(f"ended with {self.process.returncode}:\n{self.log()}")
            return self.is_ready()

        wait_for(is_ready, lambda: f"ready:\n{self.log()}", timeout_s, every_s=POLL_S)

    def is_ready(self) -> bool:
        """Ask once."""
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=5, context=trusting()
        )
        try:
            connection.request("GET", "/readyz", headers={"Authorization": f"Bearer {ADMIN_TOKEN}"})
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def log(self) -> str:
        """Return the end of what the server has logged."""
        return self.log_path.read_text(errors="replace")[-8000:]

    def kill(self) -> None:
        """End the process at once."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """End the process as an operator does; return its exit code."""
        return self._end(signal.SIGTERM)

    def pause(self) -> None:
        """Stop the process where it is, as a machine that hangs."""
        pausing.pause(self.pid)

    def go_on(self) -> None:
        """Let a paused process run."""
        pausing.resume(self.pid)

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
                raise AssertionError(f"it ignored {number.name}:\n{self.log()}") from None
        self.process = None
        return process.returncode


@dataclass(frozen=True, slots=True)
class Stack:
    """A store and the API servers on it."""

    store: Server
    servers: list[ApiServer]
    files: SharedFiles

    @property
    def server(self) -> ApiServer:
        return self.servers[0]


@contextmanager
def serving(server: ApiServer) -> Iterator[ApiServer]:
    """Start an API server (unless it runs) and end it in the end, whatever happens."""
    try:
        if server.process is None:
            server.start()
        yield server
    finally:
        if server.process is not None:
            server.kill()


@contextmanager
def cluster(
    directory: Path,
    *,
    count: int = 1,
    command: Sequence[str] = OURS,
    extra: Sequence[str] = (),
    store_flags: Sequence[str] = (),
) -> Iterator[Stack]:
    """Run a store and API servers on it; end all whatever happens."""
    files = SharedFiles.make(directory / "files")
    store = ours(directory / "store", extra=["--unsafe-no-fsync", "--log-level=warn", *store_flags])
    with ExitStack() as stack:
        stack.enter_context(running(store))
        servers = [
            ApiServer(
                directory / f"api{number}", files, [store.client_url], command=command, extra=extra
            )
            for number in range(count)
        ]
        for server in servers:
            stack.enter_context(serving(server))
        yield Stack(store, servers, files)


def trusting() -> ssl.SSLContext:
    """Return a context that takes any certificate of a server: it is ours, on loopback.

    It loads none of the system's authorities, which takes 20 ms.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
