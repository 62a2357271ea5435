"""A cluster of two namespaces: `kvstack up` on one machine, `kvstack join` on the other."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml

from tests.agents.standalone.test_stack import READY_S, STOP_S, lines_of
from tests.agents.support.full_disks import EVICTION_HARD
from tests.apiserver.stories.clients import ClientsMissingError, clients
from tests.support.network.machines import Machines, machines
from tests.support.waiting import wait_for

FIRST, SECOND = "one", "two"
SERVE = """
import http.server, os, socket
has_ipv6 = os.path.exists("/proc/net/if_inet6") and open("/proc/net/if_inet6").read()
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6 if has_ipv6 else socket.AF_INET
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.client_address[0].removeprefix("::ffff:").encode())
        if self.path == "/long":
            self.wfile.write(b" " * 1_000_000)
    def log_message(self, *_):
        pass
Server(("", 8000), Handler).serve_forever()
"""
ASK = """
import sys, urllib.request
found = urllib.request.urlopen(sys.argv[1], timeout=5).read()
print(found.decode().strip(), len(found) >= 1_000_000)
"""
STATE = Path("/run/kvstack")


class Several:
    """The machines, and what runs on them."""

    def __init__(self, network: Machines, directory: Path, stack: ExitStack) -> None:
        self.network = network
        self.directory = directory
        self._stack = stack
        self._file = directory / "data" / "kubernetes" / "admin.conf"
        self.up: subprocess.Popen[str] | None = None
        self._failure = ""

    def start(self, *flags: str) -> "subprocess.Popen[str]":
        """Run `kvstack up` on the first machine, until it is ready."""
        own = (f"--data-dir={self.directory / 'data'}", "--log-level=info", *flags)
        found = self.up = self.kvstack(FIRST, "up", *own)
        lines_of(found)
        self.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=60s")
        return found

    def kvstack(self, machine: str, *arguments: str) -> "subprocess.Popen[str]":
        """Begin a command, which is killed in the end if it does not end before."""
        log = self._stack.enter_context((self.directory / f"{machine}.log").open("a"))
        command = self.network.command(machine, sys.executable, "-m", "kvstack", *arguments)
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        self._stack.callback(_end, process)
        return process

    def run(self, machine: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end."""
        return subprocess.run(
            self.network.command(machine, sys.executable, "-m", "kvstack", *arguments),
            env={**os.environ, "KUBECONFIG": str(self._file)},
            capture_output=True,
            text=True,
            timeout=READY_S,
            check=False,
        )

    def join_command(self) -> list[str]:
        """Return what the first machine says has to be typed on another, without `kvstack`."""
        found = self.run(FIRST, "token", "create", "--print-join-command")
        assert found.returncode == 0, found.stderr
        program, *rest = found.stdout.split()
        assert program == "kvstack"
        return rest

    def join(self, command: Sequence[str], *flags: str) -> "subprocess.Popen[str]":
        """Run a command that joins on the second machine, until it is a node."""
        root = self.directory / "node"
        self._stack.callback(_end_pods, root)
        process = self.kvstack(
            SECOND,
            *command,
            *(f"--node-name={SECOND}", f"--root-dir={root}", "--host-image=true", "--port=0"),
            *("--log-level=info", EVICTION_HARD, *flags),
        )
        assert process.stdout is not None
        assert process.stdout.readline() == f"this machine is the node {SECOND}\n"
        self.kubectl("wait", f"node/{SECOND}", "--for=condition=Ready", "--timeout=60s")
        return process

    def kubectl(self, *arguments: str) -> str:
        done = subprocess.run(
            self.network.command(FIRST, str(clients("1.37") / "kubectl"), *arguments),
            env={**os.environ, "KUBECONFIG": str(self._file), "HOME": str(self.directory)},
            capture_output=True,
            text=True,
            timeout=2 * READY_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def range_of_pods(self) -> str:
        """Return the ranges of the cluster's pods, as `kvstack join` learns them."""
        text = self.kubectl(
            *("get", "configmap", "kubeadm-config", "-n", "kube-system"),
            *("-o", "jsonpath={.data.ClusterConfiguration}"),
        )
        return str(yaml.safe_load(text)["networking"]["podSubnet"])

    def own_node(self) -> str:
        """Return the name of the first machine's node."""
        names = self.kubectl("get", "nodes", "-o", "name").split()
        return next(each for each in names if each != f"node/{SECOND}").removeprefix("node/")

    def serve(self, name: str, node: str) -> str:
        """Run a pod on a node that says who asks; return its address."""
        place = json.dumps({"spec": {"nodeName": node}})
        run = ("run", name, "--image=host", "--port=8000", f"--overrides={place}")
        self.kubectl(*run, "--command", "--", "python3", "-c", SERVE)
        self.kubectl("wait", f"pod/{name}", "--for=condition=Ready", "--timeout=60s")
        return self.address(name)

    def address(self, pod: str) -> str:
        return self.kubectl("get", "pod", pod, "-o", "jsonpath={.status.podIP}")

    def ask(self, pod: str, url: str) -> str:
        """Return whom a server sees that a pod asks; empty: nobody answers."""
        try:
            seen, is_long = self.kubectl("exec", pod, "--", "python3", "-c", ASK, url).split()
            assert (is_long == "True") == url.endswith("/long")
        except AssertionError as error:
            self._failure = str(error)
            return ""
        self._failure = f"it was seen as {seen}"
        return seen

    def reaches(self, pod: str, url: str, seen: str) -> None:
        """Wait until a server is reached from a pod, which it sees at an address."""
        try:
            wait_for(lambda: self.ask(pod, url) == seen, f"{pod} reaches {url} as {seen}", READY_S)
        except AssertionError as error:
            logs = [f"{name}:\n{self.logged(name)[-3000:]}" for name in (FIRST, SECOND)]
            pods = self.kubectl("get", "pods", "-o", "yaml")
            raise AssertionError("\n".join((str(error), self._failure, pods, *logs))) from None

    def addresses(self, pod: str) -> list[str]:
        """Return the addresses of a pod, one of each family that it has."""
        found = self.kubectl("get", "pod", pod, "-o", "jsonpath={.status.podIPs[*].ip}")
        return found.split()

    def routes(self, machine: str, family: int = 4) -> str:
        command = ("ip", f"-{family}", "route", "show", "proto", "75")
        return self.network.output(machine, *command).strip()

    def logged(self, machine: str) -> str:
        return (self.directory / f"{machine}.log").read_text()


@contextmanager
def several(
    directory: Path, *, is_routed: bool = False, families: Sequence[int] = (4,)
) -> Iterator[Several]:
    """Make two machines, which have addresses of some families; what runs on them ends."""
    try:
        clients("1.37")
    except ClientsMissingError as error:
        pytest.skip(f"no kubectl: {error}")
    with (
        machines((FIRST, SECOND), is_routed=is_routed, families=families) as network,
        ExitStack() as stack,
    ):
        yield Several(network, directory, stack)


def stop(process: "subprocess.Popen[str]") -> None:
    """Let a process end by itself."""
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=STOP_S)
    assert process.returncode == 0


def _end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _end_pods(root: Path) -> None:
    """End what outlived a node whose directory is this."""
    for shim in _shims(root):
        for pid in (*_descendants(shim), shim):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    for directory in (root / "pods").glob("*"):
        for pin in (STATE / "netns").glob(f"{directory.name}.*"):
            subprocess.run(["umount", "-l", str(pin)], check=False, capture_output=True)
            pin.unlink(missing_ok=True)


def _shims(root: Path) -> list[int]:
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = file.read_bytes().split(b"\0")
            if any(each.startswith(f"{root}/".encode()) for each in words):
                found.append(int(file.parent.name))
    return found


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    waiting = [pid]
    while waiting:
        with contextlib.suppress(OSError):
            one = waiting.pop()
            text = Path(f"/proc/{one}/task/{one}/children").read_text()
            waiting += map(int, text.split())
            found += map(int, text.split())
    return found
