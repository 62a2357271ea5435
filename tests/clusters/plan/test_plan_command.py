"""`kvstack plan` as users run it, of a cluster that can only be read."""

import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from typing_extensions import override

from kvstack.agents.standalone.in_memory.background import BackgroundCluster, Settings
from kvstack.clusters.commands.plan_command import main
from tests.clusters.plan.planning import SHOP, WEBHOOK
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow

KVSTACK = (sys.executable, "-m", "kvstack")
TIMEOUT_S = 180
DEPLOYMENT = SHOP.read_text().split("---\n")[3]


class ReadOnly(BaseHTTPRequestHandler):
    """Passes reads on to a cluster, and takes note of all else."""

    cluster: BackgroundCluster
    context: ssl.SSLContext
    others: list[str]
    reads: list[str]

    def read(self) -> None:
        self.reads.append(self.path)
        asked = {k: v for k, v in self.headers.items() if k.lower() in ("accept", "user-agent")}
        request = urllib.request.Request(self.cluster.url + self.path, headers=asked)
        try:
            with urllib.request.urlopen(request, context=self.context, timeout=60) as answer:
                self._answer(answer.status, answer.headers["Content-Type"], answer.read())
        except urllib.error.HTTPError as error:
            self._answer(error.code, error.headers["Content-Type"], error.read())

    def refuse(self) -> None:
        self.others.append(f"{self.command} {self.path}")
        self._answer(405, "text/plain", b"this cluster is read-only")

    def _answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


for verb in ("HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"):
    setattr(ReadOnly, f"do_{verb}", ReadOnly.refuse)
setattr(ReadOnly, "do_GET", ReadOnly.read)  # noqa: B010 - a name that the server asks for


class User:
    """Somebody with a kubeconfig."""

    def __init__(self, directory: Path, url: str) -> None:
        self.directory = directory
        runtime = directory / "run"
        runtime.mkdir(mode=0o700)
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "prod",
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "prod", "context": {"cluster": "c", "user": "u"}}],
        }
        (directory / "config").write_text(yaml.safe_dump(config))
        self.environment = {
            **os.environ,
            "XDG_RUNTIME_DIR": str(runtime),
            "KUBECONFIG": str(directory / "config"),
            "TMPDIR": str(directory / "tmp"),
        }
        (directory / "tmp").mkdir()

    def run(self, *arguments: str, code: int) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*KVSTACK, "plan", *arguments],
            env=self.environment,
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == code, (done.stdout, done.stderr)
        assert self.left() == []
        return done

    def left(self) -> list[Path]:
        """Return what is there of forks and plans, and temporary files."""
        forks = self.directory / "run" / "kvstack" / "forks"
        return [*(self.directory / "tmp").iterdir(), *(p for p in forks.iterdir() if p.is_dir())]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundCluster]:
    directory = tmp_path_factory.mktemp("source")
    settings = Settings(nodes=2, without=frozenset(("metrics",)), clock="virtual")
    with BackgroundCluster(directory / "cluster", settings) as running:
        for path, kind in (("/api/v1/namespaces", "Namespace"), (DEPLOYMENTS, "Deployment")):
            obj = (
                {"metadata": {"name": "shop"}}
                if kind == "Namespace"
                else yaml.safe_load(DEPLOYMENT)
            )
            create(running, path, obj)
            running.settle()
        yield running


NAMESPACE = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n"
DEPLOYMENTS = "/apis/apps/v1/namespaces/shop/deployments"


def context_of(cluster: BackgroundCluster) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=cluster.ca_file)
    pki = cluster.ca_file.parent
    context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
    return context


def create(cluster: BackgroundCluster, path: str, obj: Any) -> None:
    request = urllib.request.Request(
        cluster.url + path, json.dumps(obj).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, context=context_of(cluster), timeout=60):
        pass


@pytest.fixture
def user(tmp_path: Path, cluster: BackgroundCluster) -> Iterator[User]:
    reads: list[str] = []
    others: list[str] = []
    context = context_of(cluster)
    more = {"cluster": cluster, "context": context, "others": others, "reads": reads}
    handler = type("Handler", (ReadOnly,), more)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield User(tmp_path, f"http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert reads
    assert others == []


def test_nothing_but_reads_reaches_the_cluster(user: User) -> None:
    (user.directory / "web.yaml").write_text(DEPLOYMENT.replace("web:1.4", "web:1.5"))
    done = user.run("-f", "web.yaml", code=1)
    assert "~ deployment shop/web" in done.stdout
    assert "image 1.4 → 1.5" in done.stdout
    assert "+ 4 pods in shop" in done.stdout
    document = json.loads(user.run("-f", "web.yaml", "-o", "json", code=1).stdout)
    assert document["counts"]["by_you"] == 1
    assert document["deletes"] == 4
    as_yaml = yaml.safe_load(user.run("-f", "web.yaml", "-o", "yaml", code=1).stdout)
    assert {**as_yaml, "revision": document["revision"]} == document  # its server goes on
    (deployment,) = document["entries"]
    assert any(each["path"].endswith("image") for each in deployment["fields"])
    assert user.run("-f", "web.yaml", "-o", "markdown", code=1).stdout.startswith("**Plan:** 1 by")


def test_exit_codes(user: User) -> None:
    (user.directory / "same.yaml").write_text(NAMESPACE)
    (user.directory / "large.yaml").write_text(DEPLOYMENT.replace("cpu: 500m", 'cpu: "900"'))
    assert user.run("-f", "same.yaml", code=0).stdout.startswith("nothing would change\n")
    assert "--fail-on: stuck" in user.run("-f", "large.yaml", "--fail-on=stuck", code=3).stderr
    # Its pods never start, so that none of the former goes; nothing is unforeseen.
    user.run("-f", "large.yaml", "--fail-on=unforeseen", code=1)
    (user.directory / "web.yaml").write_text(DEPLOYMENT.replace("web:1.4", "web:1.5"))
    said = user.run("-f", "web.yaml", "--fail-on=stuck,delete", code=3).stderr
    assert "--fail-on: delete" in said
    (user.directory / "hook.yaml").write_text(
        WEBHOOK + "---\n" + DEPLOYMENT.replace(":1.4", ":1.5")
    )
    said = user.run("-f", "hook.yaml", "--fail-on=unforeseen", code=3).stderr
    assert "--fail-on: unforeseen" in said


def test_a_horizon_and_a_selector(user: User) -> None:
    """What comes after the horizon is not planned, what is not selected is not applied."""
    (user.directory / "web.yaml").write_text(DEPLOYMENT.replace("web:1.4", "web:1.5"))
    near = user.run("-f", "web.yaml", "--until=2s", code=1).stdout
    far = user.run("-f", "web.yaml", "--until=10m", code=1).stdout
    assert "+ 4 pods in shop" in far
    assert "+ 4 pods in shop" not in near
    both = NAMESPACE + "  labels: {app: other}\n---\n" + DEPLOYMENT.replace("web:1.4", "web:1.5")
    (user.directory / "both.yaml").write_text(both.replace("{name: shop}", "\n  name: shop"))
    selected = user.run("-f", "both.yaml", "-l", "app=other", code=1).stdout
    assert "~ namespace shop" in selected
    assert "deployment" not in selected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-f", "none.yaml"), "none.yaml"),
        ((), "a change is required: one of -f FILES, -k DIR and -- COMMAND"),
        (("-f", "same.yaml", "--", "true"), "a change is required"),
        (("--",), "a command is required"),
        (("-f", "same.yaml", "--prune"), "--prune requires one of --selector and --all"),
        (("-f", "same.yaml", "--prune", "--all", "-l", "a=b"), "one of --selector and --all"),
        (("-f", "same.yaml", "--all"), "need --prune"),
        (("-f", "same.yaml", "-l", "a in"), "--selector a in: "),
        (("-f", "same.yaml", "-l", "app=none"), "no object with the labels app=none"),
        (
            ("-f", "same.yaml", "--prune", "--all", "--prune-allowlist", "Pod"),
            "--prune-allowlist Pod: a built-in kind",
        ),
        (("--prune", "--all", "--", "true"), "pass them to the command"),
        (("-f", "same.yaml", "--fail-on=all"), "--fail-on all: one of stuck, unforeseen, delete"),
        (("-f", "same.yaml", "-o", "xml"), "--output xml: one of table, json, yaml, markdown"),
        (("-f", "same.yaml", "--until=0s"), "--until 0s: more than 0"),
        (("-f", "same.yaml", "--ready-after=-1s"), "--ready-after is negative"),
        (("--command-timeout=0s", "--", "true"), "--command-timeout: more than 0"),
        (("a", "b", "-f", "same.yaml"), "does not take 'b'"),
    ],
)
def test_what_cannot_be_planned(
    arguments: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "same.yaml").write_text(NAMESPACE)
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


def test_a_command_reaches_the_fork_alone(user: User) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl: a plan of one of its commands")
    done = user.run("--", "kubectl", "-n", "shop", "delete", "deployment", "web", code=1)
    assert "- deployment shop/web" in done.stdout
    assert "- 4 pods in shop" in done.stdout
    assert 'deployment.apps "web" deleted' in done.stderr
    failed = user.run("--", "kubectl", "-n", "shop", "get", "deployment", "none", code=2)
    assert "the command ended with exit code 1" in failed.stderr


def begin(user: User) -> "tuple[subprocess.Popen[str], str]":
    """Run a plan of a command that takes long; return it and the id of the command's process."""
    sign = user.directory / "begun"
    script = f"echo $$ > {sign}; exec sleep 600"
    process = subprocess.Popen(
        [*KVSTACK, "plan", "--", "sh", "-c", script],
        env=user.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: sign.exists() and sign.read_text().strip(), timeout_s=TIMEOUT_S)
    return process, sign.read_text().strip()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_plan_that_is_ended_leaves_nothing(user: User, number: signal.Signals) -> None:
    process, command = begin(user)
    process.send_signal(number)
    _, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130
    assert errors.endswith("interrupted\n")
    assert not Path(f"/proc/{command}").exists()
    assert user.left() == []


def test_what_a_plan_leaves_that_was_killed_is_removed_by_the_next_command(user: User) -> None:
    process, command = begin(user)
    process.kill()
    process.communicate(timeout=TIMEOUT_S)
    wait_for(lambda: not Path(f"/proc/{command}").exists())
    assert user.left() != []
    subprocess.run([*KVSTACK, "get", "forks"], env=user.environment, check=True)
    assert user.left() == []
