"""The launchers, started with the flags that controller-runtime's envtest 0.25 gives."""

import json
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kvstack.agents.standalone import envtest
from kvstack.component.certs.certificates import Pair, Profile, issue, new_authority, new_key
from tests.support.servers import free_ports
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow

READY_S = 60.0


@contextmanager
def started(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(20)


class Plane:
    """A control plane as envtest runs it."""

    def __init__(self, assets: Path, directory: Path) -> None:
        self.assets, self.directory = assets, directory
        self.etcd_port, self.port = free_ports(2)
        now_s = datetime.now(UTC).timestamp()
        self.authority = new_authority("envtest-environment", now_s)
        serving = Profile("127.0.0.1", hosts=("127.0.0.1", "localhost", "kubernetes"), serves=True)
        admin = Profile("admin", groups=("system:masters",))
        certs = directory / "certs"
        certs.mkdir()
        self._write(certs, "apiserver", issue(self.authority, serving, now_s))
        self._write(certs, "admin", issue(self.authority, admin, now_s))
        (certs / "client-cert-auth-ca.crt").write_bytes(self.authority.cert)
        (certs / "sa-signer.key").write_bytes(new_key()[0])
        (certs / "sa-signer.crt").write_bytes(new_key()[1])
        self.certs = certs
        self.context = ssl.create_default_context(cadata=self.authority.cert.decode())
        self.context.load_cert_chain(certs / "admin.crt", certs / "admin.key")

    @staticmethod
    def _write(directory: Path, name: str, pair: Pair) -> None:
        (directory / f"{name}.crt").write_bytes(pair.cert)
        (directory / f"{name}.key").write_bytes(pair.key)

    def etcd_command(self) -> list[str]:
        url = f"http://127.0.0.1:{self.etcd_port}"
        return [
            str(self.assets / "etcd"),
            f"--advertise-client-urls={url}",
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls={url}",
            "--listen-peer-urls=http://localhost:0",
            "--unsafe-no-fsync=true",
        ]

    def server_command(self) -> list[str]:
        signer = self.certs / "sa-signer.key"
        return [
            str(self.assets / "kube-apiserver"),
            "--allow-privileged=true",
            "--authorization-mode=RBAC",
            "--bind-address=127.0.0.1",
            f"--cert-dir={self.certs}",
            f"--client-ca-file={self.certs / 'client-cert-auth-ca.crt'}",
            "--disable-admission-plugins=ServiceAccount",
            f"--etcd-servers=http://127.0.0.1:{self.etcd_port}",
            f"--secure-port={self.port}",
            "--service-account-issuer=https://127.0.0.1/",
            f"--service-account-key-file={signer}",
            f"--service-account-signing-key-file={signer}",
            "--service-cluster-ip-range=10.0.0.0/24",
        ]

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"https://127.0.0.1:{self.port}{path}",
            content,
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, context=self.context, timeout=10) as answer:
            return json.loads(answer.read() or b"null")

    def until(self, path: str, is_so: Any) -> Any:
        """Ask until an answer is as wanted; envtest waits in the same way."""

        def read() -> Any:
            try:
                found = self.ask(path)
            except OSError:
                return None
            return found if is_so(found) else None

        log = self.directory / "api.log"
        return wait_for(read, lambda: log.read_text()[-4000:], READY_S)


@contextmanager
def plane(directory: Path, *agents: str) -> Iterator[Plane]:
    assets = directory / "assets"
    envtest.write_launchers(assets, agents)
    found = Plane(assets, directory)
    with ExitStack() as stack:
        stack.enter_context(started(found.etcd_command(), directory / "etcd.log"))
        stack.enter_context(started(found.server_command(), directory / "api.log"))
        # envtest begins when this namespace is there.
        found.until("/api/v1/namespaces/default", lambda answer: answer["kind"] == "Namespace")
        yield found


def test_a_control_plane_without_agents(tmp_path: Path) -> None:
    with plane(tmp_path) as found:
        served = (tmp_path / "certs" / "apiserver.crt").read_bytes()
        made = found.ask(
            "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "a"}, "data": {"b": "c"}}
        )
        assert made["data"] == {"b": "c"}
        nodes = found.ask("/api/v1/nodes")
        assert nodes["items"] == []
        assert (tmp_path / "certs" / "apiserver.crt").read_bytes() == served


def test_agents_beside_the_api_server(tmp_path: Path) -> None:
    labels = {"app": "web"}
    spec = {
        "replicas": 2,
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "x"}]},
        },
    }
    with plane(tmp_path, "controllers", "scheduler", "nodes") as found:
        path = "/apis/apps/v1/namespaces/default/deployments"
        found.ask(path, {"metadata": {"name": "web"}, "spec": spec})
        found.until(f"{path}/web", lambda one: one["status"].get("readyReplicas") == 2)


def test_launchers_answer_what_envtest_asks_first(tmp_path: Path) -> None:
    envtest.write_launchers(tmp_path, ["controllers"])
    done = subprocess.run(
        [tmp_path / "kube-apiserver", "--help"], capture_output=True, text=True, check=True
    )
    assert "--secure-port" in done.stdout
    assert "--insecure-port" not in done.stdout


def test_without_kubectl_its_launcher_says_how_to_get_one(tmp_path: Path) -> None:
    envtest.write_launchers(tmp_path)
    done = subprocess.run([tmp_path / "kubectl"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "--kubectl FILE" in done.stderr


def test_unknown_agents_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        envtest.main(["/nowhere", "--agents", "controllers,proxy"])
    assert caught.value.code == 2
    assert "proxy: one of controllers, scheduler, nodes" in capsys.readouterr().err
