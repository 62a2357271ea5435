"""An operator made with kopf, as a process: it lives through restarts of the API server."""

import base64
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.apiserver.support.api_servers import ApiServer, cluster
from tests.apiserver.support.kube_files import make_namespace, write_kubeconfig
from tests.apiserver.support.requests import send
from tests.support.waiting import wait_for

pytest.importorskip("kopf")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.xdist_group("apiserver-libraries"),
]

OPERATOR = Path(__file__).with_name("operator_of_copies.py")
TIMEOUT_S = 60.0


@contextmanager
def operating(kubeconfig: Path, namespace: str, log: Path) -> Iterator[None]:
    """Run the operator; fail with its log if it has ended by itself."""
    command = [sys.executable, "-m", "kopf", "run", "--standalone", "-n", namespace, str(OPERATOR)]
    environment = {
        "PATH": os.environ["PATH"],
        "KUBECONFIG": str(kubeconfig),
        "HOME": str(log.parent),
    }
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    try:
        yield
        assert process.poll() is None, log.read_text()[-4000:]
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def secrets_of(server: ApiServer, namespace: str) -> dict[str, str]:
    """Names of Secrets and their value `v`."""
    found = send(server, "GET", f"/api/v1/namespaces/{namespace}/secrets")
    return {
        each["metadata"]["name"]: base64.b64decode(each["data"]["v"]).decode()
        for each in found["items"]
    }


def expect(server: ApiServer, namespace: str, expected: dict[str, str], log: Path) -> None:
    """Wait until the operator has made what it should."""

    def secrets() -> dict[str, str]:
        return secrets_of(server, namespace)

    wait_for(
        lambda: secrets() == expected,
        lambda: (secrets(), expected, log.read_text()[-4000:]),
        TIMEOUT_S,
    )


@pytest.mark.parametrize("restarts", [1, pytest.param(5, marks=pytest.mark.long)])
def test_an_operator_lives_through_restarts(tmp_path: Path, restarts: int) -> None:
    log = tmp_path / "operator.log"
    with cluster(tmp_path) as stack:
        server = stack.server
        namespace = make_namespace(server, "copies")
        kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", server)
        maps = f"/api/v1/namespaces/{namespace}/configmaps"
        wanted: dict[str, str] = {}
        with operating(kubeconfig, namespace, log):
            for number in range(restarts):
                name = f"m{number}"
                body = {"metadata": {"name": name, "labels": {"copy": "yes"}}, "data": {"v": "1"}}
                send(server, "POST", maps, body)
                wanted[name] = "1"
                expect(server, namespace, wanted, log)
                server.kill()
                server.start()
                patch = {"data": {"v": f"after {number}"}}
                send(
                    server,
                    "PATCH",
                    f"{maps}/{name}",
                    patch,
                    content_type="application/merge-patch+json",
                )
                wanted[name] = f"after {number}"
                expect(server, namespace, wanted, log)
            send(server, "DELETE", f"{maps}/m0")
            del wanted["m0"]
            expect(server, namespace, wanted, log)
