"""The metrics-server of Kubernetes reads our kubelet, and answers instead of kvstack.

    KVSTACK_TEST_METRICS_SERVER=…/metrics-server pytest tests/agents/metrics/test_metrics_server.py

It runs as its own manifest has it: with the permissions of a service account, whose token the
kubelet has reviewed.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.agents.metrics.test_top import kubectl
from tests.agents.standalone.test_stack import STOP_S, lines_of, up
from tests.agents.support.namespaces import has_namespaces
from tests.support.servers import free_ports
from tests.support.waiting import wait_for

PROGRAM: Final = os.environ.get("KVSTACK_TEST_METRICS_SERVER", "")
NAME: Final = "metrics-server"
LIMIT_S: Final = 180.0
SYSTEM: Final = "kube-system"
SERVICE: Final = "v1beta1.metrics.k8s.io"
RBAC: Final = "rbac.authorization.k8s.io"
LOADS: Final = "while :; do n=0; while [ $n -lt 20000 ]; do n=$((n+1)); done; sleep 0.2; done"

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(
        not PROGRAM, reason="no metrics-server: KVSTACK_TEST_METRICS_SERVER names none"
    ),
    pytest.mark.skipif(not has_namespaces(), reason="containers need root and namespaces"),
]


def binding(kind: str, name: str, role: dict[str, str], namespace: str = "") -> dict[str, Any]:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": kind,
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
        "roleRef": {"apiGroup": RBAC, **role},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": SYSTEM}],
    }


def objects(port: int) -> list[dict[str, Any]]:
    """Return its account, what that may do, and what leads to it."""
    role = f"system:{NAME}"
    rules = [
        {"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]},
    ]
    metadata = {"name": NAME, "namespace": SYSTEM}
    reader = {"kind": "Role", "name": "extension-apiserver-authentication-reader"}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": role},
            "rules": rules,
        },
        binding("ClusterRoleBinding", role, {"kind": "ClusterRole", "name": role}),
        binding(
            "ClusterRoleBinding",
            f"{NAME}:system:auth-delegator",
            {"kind": "ClusterRole", "name": "system:auth-delegator"},
        ),
        binding("RoleBinding", f"{NAME}-auth-reader", reader, SYSTEM),
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": SERVICE},
            "spec": {
                "group": "metrics.k8s.io",
                "version": "v1beta1",
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "insecureSkipTLSVerify": True,
                "service": {**metadata, "port": port},
            },
        },
    ]


def kubeconfig_of(file: Path, token: str) -> Path:
    """Write a kubeconfig with a token instead of the administrator's certificate."""
    config = yaml.safe_load(file.read_text())
    (user,) = config["users"]
    user["user"] = {"token": token}
    made = file.with_name(f"{NAME}.conf")
    made.touch(mode=0o600)
    made.write_text(yaml.safe_dump(config))
    return made


@contextmanager
def metrics_server(directory: Path, admin: Path, port: int) -> Iterator[None]:
    code, token = kubectl(admin, "create", "token", NAME, "-n", SYSTEM)
    assert code == 0, token
    file = kubeconfig_of(admin, token.strip())
    with (directory / f"{NAME}.log").open("w") as log:
        process = subprocess.Popen(
            [
                PROGRAM,
                *(f"--kubeconfig={file}", f"--authentication-kubeconfig={file}"),
                *(f"--authorization-kubeconfig={file}", f"--cert-dir={directory / 'certs'}"),
                *("--bind-address=127.0.0.1", f"--secure-port={port}"),
                *("--metric-resolution=15s", "--kubelet-use-node-status-port"),
                "--kubelet-preferred-address-types=InternalIP",
                "--kubelet-insecure-tls",  # the node signs its certificate itself
            ],
            stdout=log,
            stderr=log,
        )
        try:
            yield
        finally:
            process.terminate()
            process.wait(STOP_S)


def wait_until_shown(file: Path, pattern: str, *words: str) -> None:
    """Wait until kubectl prints what has a line like a pattern."""

    def is_shown() -> bool:
        last[:] = [kubectl(file, *words)[1]]
        return re.search(pattern, last[0], re.MULTILINE) is not None

    last = [""]
    try:
        wait_for(is_shown, pattern, LIMIT_S, every_s=0.5)
    except AssertionError as error:
        error.add_note(last[0])
        raise


def test_it_reads_our_kubelet(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    api, port = free_ports(2)
    file = directory / "kubernetes" / "admin.conf"
    with up(directory, f"--secure-port={api}", "--without=metrics") as process:
        lines_of(process)
        given = tmp_path / "objects.json"
        given.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects(port)}))
        code, text = kubectl(file, "apply", "-f", str(given))
        assert code == 0, text
        kubectl(file, "wait", "--for=create", "serviceaccount/default", "--timeout=60s")
        command = ("--image=host:latest", "--command", "--", "sh", "-c", LOADS)
        code, text = kubectl(file, "run", "busy", *command)
        assert code == 0, text
        with metrics_server(tmp_path, file, port):
            try:
                for pattern, *words in (
                    (rf"{SYSTEM}/{NAME} +True", "get", "apiservice", SERVICE),
                    (r"^busy +busy +[1-9]\d*m +\d+Mi", "top", "pods", "--containers"),
                    (r"^\S+ +[1-9]\d*m +\d+% +\d+Mi +\d+%", "top", "nodes"),
                ):
                    wait_until_shown(file, pattern, *words)
            except AssertionError as error:
                error.add_note((tmp_path / f"{NAME}.log").read_text()[-3000:])
                raise
            raw = ("get", "--raw", "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods/busy")
            code, text = kubectl(file, *raw)
            assert code == 0, text
            (container,) = json.loads(text)["containers"]
            assert container["name"] == "busy"
            assert container["usage"]["cpu"].endswith("n")
        kubectl(file, "delete", "pod", "busy", "--grace-period=1")
