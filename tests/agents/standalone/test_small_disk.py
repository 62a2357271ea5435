"""`kvstack up` on a small disk: a pod that fills it goes before the store is short of space."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.agents.support.namespaces import has_namespaces
from tests.apiserver.stories.clients import ClientsMissingError, clients
from tests.support.disks.small_disk import small_disk
from tests.support.network.ports import free_ports
from tests.support.network.service_rules import service_rules
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(not has_namespaces(), reason="containers need root and namespaces"),
]
DISK_MIB = 1200
WAIT_S = 90.0
FILL = "while :; do head -c 20000000 /dev/zero >> /data/file; sleep 0.2; done"


class Stack:
    """A running `kvstack up`."""

    def __init__(self, directory: Path, home: Path) -> None:
        self.directory = directory
        self._file = directory / "kubernetes" / "admin.conf"
        self._home = home
        self.log = home / "log"

    def kubectl(self, *arguments: str, check: bool = True) -> str:
        try:
            program = clients("1.37") / "kubectl"
        except ClientsMissingError as error:
            pytest.skip(f"no kubectl: {error}")
        environment = {**os.environ, "KUBECONFIG": str(self._file), "HOME": str(self._home)}
        done = subprocess.run(
            [program, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0 or not check, done
        return done.stdout

    def run_pod(self, name: str, script: str) -> None:
        manifest = f"""
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 1
  volumes: [{{name: data, emptyDir: {{}}}}]
  containers:
  - name: c
    image: host
    command: [sh, -c, "{script}"]
    volumeMounts: [{{name: data, mountPath: /data}}]
"""
        path = self._home / f"{name}.yaml"
        path.write_text(manifest)
        self.kubectl("apply", "-f", str(path))


@contextmanager
def up(directory: Path, home: Path, *flags: str) -> Iterator[Stack]:
    store, api = free_ports(2)
    stack = Stack(directory, home)
    with service_rules():
        yield from _run(stack, store, api, flags)


def _run(stack: Stack, store: int, api: int, flags: tuple[str, ...]) -> Iterator[Stack]:
    with stack.log.open("w") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "kvstack", "up", f"--data-dir={stack.directory}"),
                f"--listen-client-urls=http://127.0.0.1:{store}",
                f"--secure-port={api}",
                "--log-level=info",
                *flags,
            ],
            stdout=log,
            stderr=log,
        )
    try:
        wait_for(lambda: "ok" in stack.kubectl("get", "--raw=/readyz", check=False), "readiness")
        stack.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=60s")
        yield stack
        assert process.poll() is None, stack.log.read_text()[-4000:]
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(WAIT_S)
        finally:
            process.kill()
            process.wait()


@pytest.mark.parametrize("flags", [(), ("--local-storage-limit=200Mi",)], ids=["default", "limit"])
def test_a_pod_that_fills_the_disk_is_evicted(tmp_path: Path, flags: tuple[str, ...]) -> None:
    shown = "jsonpath={.status.phase}/{.status.reason}"
    with (
        small_disk(tmp_path / "disk", DISK_MIB) as disk,
        up(disk.path / "data", tmp_path, *flags) as stack,
    ):
        stack.run_pod("good", "head -c 5000000 /dev/zero > /data/file; sleep 1000")
        stack.run_pod("fill", FILL)
        stack.kubectl("wait", "--for=condition=Ready", "pod/good", "--timeout=60s")
        wait_for(
            lambda: stack.kubectl("get", "pod", "fill", "-o", shown) == "Failed/Evicted",
            "the eviction",
        )
        assert stack.kubectl("get", "pod", "good", "-o", shown) == "Running/"
        stack.kubectl("create", "configmap", "after", "--from-literal=a=b")
        assert "the disk is too full" not in stack.log.read_text()
