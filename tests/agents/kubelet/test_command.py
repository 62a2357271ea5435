"""`kvstack kubelet` as a program."""

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kvstack.agents.kubelet.command import FlagError, split_flags
from kvstack.agents.standalone.in_memory.background import BackgroundCluster, Settings
from tests.agents.metrics.test_top import kubectl, printed
from tests.agents.support.namespaces import has_namespaces
from tests.support.network.ports import free_ports

END_S = 20.0
STOP_S = 60.0


def test_when_pods_end_is_one_of_three() -> None:
    with pytest.raises(FlagError, match="--end-pods soon: one of shutdown, always, never"):
        split_flags(["--kubeconfig=/k", "--end-pods=soon"])
    assert split_flags(["--kubeconfig=/k"])[0]["end-pods"] == "shutdown"


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.skipif(not has_namespaces(), reason="containers need root and namespaces")
def test_pods_end_in_order_with_the_command_if_a_flag_says_so(tmp_path: Path) -> None:
    config = tmp_path / "kubelet.yaml"
    kind = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
    config.write_text(yaml.safe_dump({**kind, "shutdownGracePeriod": "30s"}))
    (port,) = free_ports(1)
    with BackgroundCluster(tmp_path / "cluster", Settings(nodes=0)) as cluster:
        file = cluster.kubeconfig
        flags = (
            *(f"--kubeconfig={file}", f"--config={config}", f"--root-dir={tmp_path / 'node'}"),
            *(f"--cgroup-root=/{tmp_path.name}-end", f"--port={port}", "--healthz-port=0"),
            *("--hostname-override=node-a", "--pod-network=host", "--host-image"),
            "--end-pods=always",
        )
        with subprocess.Popen([sys.executable, "-m", "kvstack", "kubelet", *flags]) as process:
            try:
                script = "trap 'exit 3' TERM; while :; do sleep 0.05; done"
                made = ("--image=host:latest", "--restart=Never", "--command", "--")
                code, text = kubectl(file, "run", "web", *made, "sh", "-c", script)
                assert code == 0, text
                printed(lambda: kubectl(file, "get", "pod", "web"), r"^web +1/1 +Running")
                process.send_signal(signal.SIGTERM)
                assert process.wait(STOP_S) == 0
            finally:
                process.kill()
        code, text = kubectl(file, "get", "pod", "web", "-o", "json")
        assert code == 0, text
        status = json.loads(text)["status"]
        assert (status["phase"], status["reason"]) == ("Failed", "Terminated")
        assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
        code, text = kubectl(file, "get", "node", "node-a")
        assert "NotReady" in text


@pytest.mark.slow
def test_a_node_that_waits_for_its_certificate_ends_on_a_signal(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:  # which never says anything
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "a", "cluster": {"server": f"https://127.0.0.1:{server.getsockname()[1]}"}}
            ],
            "users": [{"name": "a", "user": {"token": "abcdef.0123456789abcdef"}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "current-context": "a",
        }
        file = tmp_path / "bootstrap.conf"
        file.write_text(yaml.safe_dump(config))
        flags = (
            f"--bootstrap-kubeconfig={file}",
            f"--kubeconfig={tmp_path / 'kubelet.conf'}",
            f"--root-dir={tmp_path / 'node'}",
            "--hostname-override=node-a",
        )
        with subprocess.Popen([sys.executable, "-m", "kvstack", "kubelet", *flags]) as process:
            try:
                server.settimeout(END_S)
                with server.accept()[0]:
                    process.send_signal(signal.SIGTERM)
                    assert process.wait(END_S) == 0
            finally:
                process.kill()
