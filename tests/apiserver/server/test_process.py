"""`kvstack apiserver` and `kvstack` as programs."""

import http.client
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvstack import cli
from tests.apiserver.support.api_servers import (
    ADMIN_TOKEN,
    ApiServer,
    SharedFiles,
    cluster,
    trusting,
)


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "kvstack", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ,
    )


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["apiserver", "--version"]) == 0
    assert capsys.readouterr().out == "Kubernetes v1.37.1\n"
    assert cli.main(["up", "--help"]) == 0
    assert "--data-dir DIR" in capsys.readouterr().out
    assert cli.main(["--help"]) == 0
    assert cli.main([]) == 2
    assert cli.main(["down"]) == 2
    assert "unknown command: down" in capsys.readouterr().err


def test_a_link_of_upstreams_name_is_upstreams_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/kube-apiserver", "--version"])
    assert cli.main() == 0
    assert capsys.readouterr().out == "Kubernetes v1.37.1\n"


def test_an_unknown_flag_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["apiserver", "--nonsense"]) == 1
    assert capsys.readouterr().err == "Error: unknown flag: --nonsense\n"
    assert cli.main(["up", "--nonsense"]) == 1


def test_settings_that_cannot_be_are_reported_by_the_log() -> None:
    done = run("apiserver", "--etcd-servers=http://127.0.0.1:1")
    assert done.returncode == 1
    assert "service-account-issuer is a required flag" in done.stderr


@pytest.mark.slow
def test_a_server_that_waits_for_its_store_ends_on_a_signal(tmp_path: Path) -> None:
    files = SharedFiles.make(tmp_path)
    flags = [
        "--etcd-servers=http://127.0.0.1:1",
        "--bind-address=127.0.0.1",
        f"--cert-dir={tmp_path}",
        "--service-account-issuer=https://a",
        *files.flags(),
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "kvstack", "apiserver", *flags], stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if "the store is not reachable yet" in line:
                break
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0


@pytest.mark.slow
def test_a_server_ends_in_order_and_begins_again(tmp_path: Path) -> None:
    with cluster(tmp_path) as stack:
        server = stack.server
        body = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "kept"}}
        path = "/api/v1/namespaces/default/configmaps"
        assert ask(server, "POST", path, body)[0] == 201
        assert server.stop() == 0
        assert "closed the API server" in server.log()
        server.start()
        assert ask(server, "GET", f"{path}/kept")[0] == 200
        server.kill()
        server.start()
        assert ask(server, "GET", f"{path}/kept")[0] == 200


def ask(
    server: ApiServer, method: str, path: str, body: dict[str, Any] | None = None
) -> tuple[int, bytes]:
    """Return the status and the body of an answer to the administrator."""
    connection = http.client.HTTPSConnection(
        "127.0.0.1", server.port, timeout=30, context=trusting()
    )
    try:
        headers = {"Authorization": f"Bearer {ADMIN_TOKEN}", "Content-Type": "application/json"}
        connection.request(method, path, json.dumps(body) if body else None, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
