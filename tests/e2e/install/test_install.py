"""Wheel and source distribution, installed in a new environment and used outside the tree.

    pytest tests/e2e/install/test_install.py                the wheel
    pytest tests/e2e/install/test_install.py -m long        the source distribution; also with cargo

pip fetches the dependencies. Where it cannot, the tests are skipped.
"""

import base64
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from kvstack.component.version import VERSION
from tests.e2e.install.conftest import Distributions
from tests.support.network.ports import free_ports
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.xdist_group("install"),
]

INSTALL_S: Final = 1200
READY_S: Final = 60.0
CARGO: Final = shutil.which("cargo") or shutil.which(
    "cargo", path=Path("~/.cargo/bin").expanduser()
)
POD: Final = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {"containers": [{"name": "web", "image": "nginx"}]},
}
PLUGIN_TEST: Final = """
import json, ssl, urllib.request

def test_a_cluster(kvstack_cluster):
    context = ssl.create_default_context(cafile=kvstack_cluster.ca_file)
    with urllib.request.urlopen(kvstack_cluster.url + "/version", context=context) as answer:
        assert json.load(answer)["minor"] == "37"
"""


class Environment:
    """A virtual environment outside the tree, with a distribution installed."""

    def __init__(self, directory: Path, is_native: bool) -> None:  # noqa: FBT001
        self.directory = directory
        self.bin = directory / "venv" / "bin"
        self.is_native = is_native
        self.variables = {
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "HOME": os.environ["HOME"],
            "KVSTORE_NATIVE": "1" if is_native else "0",
            **{name: text for name, text in os.environ.items() if name.startswith("PIP_")},
        }

    def run(self, *words: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment to its end."""
        return subprocess.run(
            [str(self.bin / words[0]), *words[1:]],
            cwd=self.directory,
            env=self.variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=timeout_s,
        )

    def install(self, *words: str) -> None:
        """Install with pip; an error fails the test."""
        # Without compiling: of thousands of modules the tests import few.
        command = ("python", "-m", "pip", "install", "--quiet", "--no-compile", *words)
        done = self.run(*command, timeout_s=INSTALL_S)
        assert done.returncode == 0, done.stdout[-3000:]


@pytest.fixture(
    scope="module",
    params=[
        "wheel",
        pytest.param("sdist", marks=pytest.mark.long),
        pytest.param("sdist with cargo", marks=pytest.mark.long),
    ],
)
def environment(
    request: pytest.FixtureRequest, distributions: Distributions
) -> Iterator[Environment]:
    is_native = request.param == "sdist with cargo"
    if is_native and CARGO is None:
        pytest.skip("there is no cargo to build the native transport")
    with tempfile.TemporaryDirectory(prefix="kvstack-install-") as name:
        found = Environment(Path(name), is_native)
        subprocess.run([sys.executable, "-m", "venv", found.bin.parent], check=True)
        probe = found.run(
            "python", "-m", "pip", "download", "--quiet", "--retries=0", "--timeout=15",
            "--no-deps", "--dest=probe", "click",
        )  # fmt: skip
        if probe.returncode:
            pytest.skip(f"pip cannot fetch packages here: {probe.stdout.splitlines()[-1]}")
        kind = request.param.partition(" ")[0]
        found.install(str(getattr(distributions, kind)), "pytest")
        yield found


def test_the_package_is_whole(environment: Environment) -> None:
    done = environment.run("python", "-m", "pip", "check")
    assert done.returncode == 0, done.stdout
    done = environment.run(
        "python", "-c",
        "import kvstack.agents, kvstack.apiserver, kvstack.component\n"
        "from kvstack.component import crate\n"
        "print(kvstack.agents.__file__, kvstack.apiserver.__file__, kvstack.component.__file__)\n"
        "print(crate.is_available())",
    )  # fmt: skip
    files, is_native = done.stdout.splitlines()
    assert all(each.startswith(str(environment.directory)) for each in files.split())
    assert is_native == str(environment.is_native)
    package = Path(files.split()[2]).parent
    assert (package / "THIRD-PARTY-LICENSES.txt").exists() is environment.is_native


def test_commands_tell_their_version(environment: Environment) -> None:
    done = environment.run("kvstore", "--version")
    assert done.returncode == 0, done.stdout
    assert f"Kvstack Version: {VERSION}\n" in done.stdout
    done = environment.run("kvstack", "--version")
    assert done.stdout.startswith(f"kvstack Version: {VERSION}\n")
    assert "API version: 3.7" in environment.run("kvstore-util", "version").stdout


def test_a_cluster_runs_a_pod(environment: Environment) -> None:
    port, store = free_ports(2)
    log = (environment.directory / "up.log").open("wb")
    process = subprocess.Popen(
        [
            environment.bin / "kvstack", "up", f"--data-dir={environment.directory / 'data'}",
            f"--secure-port={port}", f"--listen-client-urls=http://127.0.0.1:{store}",
            "--bind-address=127.0.0.1", "--without=node,proxy", "--nodes=1",
        ],
        cwd=environment.directory,
        env=environment.variables,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
    )  # fmt: skip
    try:
        api = Api(environment.directory / "data" / "kubernetes" / "admin.conf")
        wait(lambda: api.is_ready(), process)
        api.call("POST", "/api/v1/namespaces/default/pods", POD)
        path = "/api/v1/namespaces/default/pods/web"
        wait(lambda: api.call("GET", path)["status"].get("phase") == "Running", process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, (environment.directory / "up.log").read_text()
    finally:
        process.kill()
        process.wait()
        log.close()


def test_the_plugin_of_pytest_is_found(environment: Environment) -> None:
    (environment.directory / "test_mine.py").write_text(PLUGIN_TEST)
    done = environment.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py")
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_a_flag_of_an_extra_that_is_not_installed_names_it(environment: Environment) -> None:
    words = ("kvstore", f"--data-dir={environment.directory / 'x'}", "--enable-distributed-tracing")
    assert "pip install 'kvstack[tracing]'" in environment.run(*words).stdout


class Api:
    """The API server, asked with the administrator's kubeconfig once that is there."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig
        self._context: ssl.SSLContext | None = None
        self._url = ""

    def is_ready(self) -> bool:
        """Tell whether /readyz answers ok."""
        try:
            if self._context is None:
                self._load()
            return self._get("GET", "/readyz", None) == b"ok"
        except OSError:
            return False

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Send a request; return the object of the answer."""
        return json.loads(self._get(method, path, body))

    def _get(self, method: str, path: str, body: object) -> bytes:
        request = urllib.request.Request(
            self._url + path,
            method=method,
            data=json.dumps(body).encode() if body else None,
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, context=self._context, timeout=10) as answer:
            content: bytes = answer.read()
            return content

    def _load(self) -> None:
        config = yaml.safe_load(self._kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._url = cluster["server"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        context = ssl.create_default_context(cadata=authority)
        with tempfile.NamedTemporaryFile() as pair:
            for field in ("client-certificate-data", "client-key-data"):
                pair.write(base64.b64decode(user[field]))
            pair.flush()
            context.load_cert_chain(pair.name)
        self._context = context


def wait(is_met: Any, process: subprocess.Popen[bytes]) -> None:
    """Wait for a condition while a process runs."""

    def is_so() -> Any:
        assert process.poll() is None, "the cluster has ended"
        return is_met()

    wait_for(is_so, timeout_s=READY_S, every_s=0.1)
