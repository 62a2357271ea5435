"""`kvstack up` of an ordinary user: its node runs pods in a user namespace.

As root, the user is one that nobody else is; it is given subordinate ids in files that it alone
sees (mounts of its own). Otherwise the user is who runs the tests, with the ids that it has.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from kvstack.agents.proxy.nftables import program
from kvstack.agents.standalone.rootless import facts
from tests.agents.standalone.test_stack import READY_S, STOP_S, lines_of
from tests.apiserver.stories.clients import ClientsMissingError, clients
from tests.support.documented import words
from tests.support.network.ports import free_ports
from tests.support.programs import path_of
from tests.support.waiting import wait_for

PROBLEM = facts.problem()
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(bool(PROBLEM), reason=f"needs user namespaces: {PROBLEM}"),
    pytest.mark.skipif(program.problem() == "the program nft is not installed",
                       reason="the program nft is not installed"),
]  # fmt: skip

FIRST = 300_000
"""Of the subordinate ids that a test gives its user."""
HERE = Path(__file__).parents[4]
GET = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=30).status)"
MOUNTS = """
for name in passwd group subuid subgid; do mount --bind "$0/$name" "/etc/$name" || exit; done
exec "$@"
"""


class User:
    """Who runs a cluster, and where."""

    def __init__(self, home: Path, uid: int, prefix: Sequence[str]) -> None:
        """prefix: of its commands."""
        self.home = home
        self.uid = uid
        self._prefix = list(prefix)
        self.port = free_ports(1)[0]
        self.log = home / "log"
        self.data = home / "data"

    def start(self, path: str = "") -> "subprocess.Popen[str]":
        flags = [f"--data-dir={self.data}", f"--secure-port={self.port}", "--log-level=info"]
        environment = {**os.environ, "HOME": str(self.home), "PATH": path or os.environ["PATH"]}
        with self.log.open("w") as log:
            return subprocess.Popen(
                [*self._prefix, sys.executable, "-m", "kvstack", *words("kvstack up"), *flags],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=HERE,
                env=environment,
            )

    @contextlib.contextmanager
    def cluster(self, path: str = "") -> Iterator["subprocess.Popen[str]"]:
        process = self.start(path)
        try:
            lines_of(process)
            self.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=60s")
            yield process
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.communicate(timeout=STOP_S)
                assert process.returncode == 0
            # What is outside, and pods, end with it, however it ends.
            wait_for(lambda: not self.processes(), "nothing of the user runs")
        finally:
            process.kill()
            process.wait()
            assert process.stdout
            process.stdout.close()

    def kubectl(self, *arguments: str) -> str:
        """Run kubectl on the machine, outside of all of it."""
        done = self.try_kubectl(*arguments)
        assert done.returncode == 0, f"{done.stderr}\n{self.log.read_text()[-3000:]}"
        return done.stdout.strip()

    def type(self, text: str) -> str:
        """Run a command of the documentation in a shell of the machine; return what it says."""
        done = subprocess.run(
            ["bash", "-c", text],
            env={**self._environment(), "PATH": f"{clients('1.37')}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=READY_S,
            check=False,
        )
        assert done.returncode == 0, f"{done.stderr}\n{self.log.read_text()[-3000:]}"
        return done.stdout

    def _environment(self) -> dict[str, str]:
        file = self.data / "kubernetes" / "admin.conf"
        return {**os.environ, "KUBECONFIG": str(file), "HOME": str(self.home)}

    def try_kubectl(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [str(clients("1.37") / "kubectl"), *arguments],
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=READY_S,
            check=False,
        )

    def run(self, name: str, *command: str, **overrides: object) -> None:
        more = [f"--overrides={json.dumps(overrides)}"] if overrides else []
        self.kubectl("run", name, "--image=host", *more, "--command", "--", *command)
        self.kubectl("wait", f"pod/{name}", "--for=condition=Ready", "--timeout=60s")

    def inside(self, pod: str, *command: str) -> str:
        return self.kubectl("exec", pod, "--", *command)

    def consequences(self) -> list[str]:
        """Return what the log says that the node lacks without root."""
        lines = (json.loads(each) for each in self.log.read_text().splitlines())
        text = "limitations of a node without root"
        return [each["consequence"] for each in lines if each["msg"] == text]

    def processes(self) -> list[str]:
        """Return what runs of this user, or of its subordinate ids; only of one that root made."""
        found = []
        for number in filter(str.isdecimal, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                text = Path("/proc", number, "status").read_text()
                lines = dict(line.split(":", 1) for line in text.splitlines())
                ids = {int(each) for each in lines["Uid"].split()}
                is_ours = self.uid in ids or any(FIRST <= each < FIRST + 65_536 for each in ids)
                if self._prefix and is_ours and "Z" not in lines["State"]:
                    found.append(lines["Name"].strip())
        return found


@contextlib.contextmanager
def user(*, has_subordinates: bool) -> Iterator[User]:
    try:
        clients("1.37")
    except ClientsMissingError as error:
        pytest.skip(f"no kubectl: {error}")
    home = Path(tempfile.mkdtemp(prefix=f"kvstack-rootless-{os.getpid()}-"))
    try:
        if os.geteuid() != 0:
            if has_subordinates == bool(facts.own_subordinates().problem):
                pytest.skip("needs user namespaces: the user has other ids than this test is about")
            yield User(home, os.geteuid(), ())
            return
        uid = 40_000 + os.getpid() % 10_000
        os.chown(home, uid, uid)
        prefix = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
        if has_subordinates:
            if shutil.which("newuidmap") is None:
                pytest.skip("there is no newuidmap")
            prefix = [*_with_files(home, uid), *prefix]
        yield User(home, uid, prefix)
    finally:
        shutil.rmtree(home, ignore_errors=os.geteuid() != 0)


def _with_files(home: Path, uid: int) -> list[str]:
    """Return what begins a command that sees files of /etc of its own."""
    etc = home / "etc"
    etc.mkdir()
    for name, line in (
        ("passwd", f"kv{uid}:x:{uid}:{uid}::{home}:/bin/sh"),
        ("group", f"kv{uid}:x:{uid}:"),
    ):
        (etc / name).write_text(f"{Path('/etc', name).read_text()}{line}\n")
    for name in ("subuid", "subgid"):
        if not Path("/etc", name).exists():
            pytest.skip(f"there is no /etc/{name}")
        (etc / name).write_text(f"kv{uid}:{FIRST}:65536\n")
    return ["unshare", "-m", "--propagation=private", "sh", "-c", MOUNTS, str(etc)]


def eventually(is_so: Callable[[], bool]) -> None:
    wait_for(is_so, timeout_s=READY_S)


def status_of(url: str) -> int:
    """Ask from the machine."""
    command = [sys.executable, "-c", GET, url]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=READY_S)
    return int(done.stdout or 0)


def serve(own: User) -> None:
    """Run a server with a Service, and a client; each reaches what it is to reach."""
    own.type(
        "kubectl create deployment web --image=host --port=8000 -- python3 -m http.server 8000"
    )
    own.kubectl("wait", "deployment/web", "--for=condition=Available", "--timeout=60s")
    own.type("kubectl expose deployment web --port=80 --target-port=8000 --type=NodePort")
    own.run("client", "sleep", "1000")
    node_port = own.kubectl("get", "service", "web", "-o", "jsonpath={.spec.ports[0].nodePort}")
    eventually(lambda: status_of(f"http://127.0.0.1:{node_port}/") == 200)
    page = own.type(
        "curl http://127.0.0.1:$(kubectl get service web -o jsonpath={.spec.ports[0].nodePort})/"
    )
    assert "Directory listing" in page
    assert own.inside("client", "python3", "-c", GET, "http://web/") == "200"


def test_a_user_with_its_own_id_alone() -> None:
    """And on a machine without a program for its network."""
    with user(has_subordinates=False) as own:
        path = path_of(own.home, "nft", "ip", "setpriv", "unshare", "sh", "mount")
        (own.home / "secret").write_text("of the user")
        (own.home / "secret").chmod(0o600)
        with own.cluster(path) as process:
            users, uplink = own.consequences()
            assert users.startswith("pods have one user, this one: ")
            assert uplink.startswith("pods reach nothing outside: neither pasta nor slirp4netns")
            serve(own)
            assert own.inside("client", "id", "-u") == "0"
            capabilities = own.inside("client", "grep", "CapEff", "/proc/self/status").split()[1]
            assert int(capabilities, 16) == 0
            shown = own.try_kubectl("exec", "client", "--", "cat", str(own.home / "secret"))
            assert shown.returncode != 0
            assert "No such file" in shown.stderr
            file = Path(f"/tmp/kvstack-rootless-{os.getpid()}")
            script = f"echo own > {file}; cat {file}"
            assert own.inside("client", "sh", "-c", script) == "own"
            assert not file.exists()

            spec = {"securityContext": {"runAsUser": 12_345}}
            overrides = f"--overrides={json.dumps({'spec': spec})}"
            own.kubectl("run", "other", "--image=host", overrides, "--command", "--", "true")
            eventually(
                lambda: (
                    "runAsUser: 12345 (a node without root" in own.kubectl("describe", "pod/other")
                )
            )
            own.kubectl("run", "pids", "--image=host", '--overrides={"spec":{"hostPID":true}}')
            eventually(lambda: "spec.hostPID" in own.kubectl("get", "pod/pids", "-o", "yaml"))

            process.kill()
            process.wait()
        with own.cluster(path):
            assert "client" in own.kubectl("get", "pods")


def test_a_user_with_subordinate_ids() -> None:
    with user(has_subordinates=True) as own, own.cluster():
        uplink = facts.uplink()
        assert len(own.consequences()) == (0 if uplink else 1)
        serve(own)
        assert own.inside("client", "id", "-u") == "65534"
        context = {"runAsUser": 12_345, "runAsGroup": 12_345, "fsGroup": 12_346}
        spec = {
            "securityContext": context,
            "volumes": [{"name": "v", "emptyDir": {}}],
            "containers": [
                {
                    "name": "other",
                    "image": "host",
                    "command": ["sleep", "1000"],
                    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                }
            ],
        }
        own.run("other", "sleep", "1000", spec=spec)
        assert own.inside("other", "id", "-u") == "12345"
        own.inside("other", "touch", "/v/mine")
        assert own.inside("other", "stat", "-c", "%u %g", "/v/mine") == "12345 12346"
        if uplink:
            own.run("host", "sleep", "1000", spec={"hostNetwork": True})
            routes = own.inside("host", "cat", "/proc/net/route").splitlines()
            assert any(line.split()[1] == "00000000" for line in routes[1:])
