"""NetworkPolicies in `kvstack up`, in a network namespace: pods ask pods, Services and the node."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvstack.agents.kubelet.disk import mount_table
from kvstack.agents.kubelet.runtime.cgroups import Cgroups
from kvstack.agents.kubelet.runtime.process import node_lock as node_lock
from kvstack.agents.kubelet.runtime.process.network.pod_network import STATE
from kvstack.agents.kubelet.runtime.process.shim import syscalls
from kvstack.component.net import nft
from tests.agents.standalone.test_services import (
    CONNECT,
    NEIGHBOUR,
    Cluster,
    cluster,
    eventually,
    tables,
)
from tests.agents.standalone.test_stack import STOP_S
from tests.agents.support.namespaces import has_namespaces
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(not has_namespaces(), reason="containers need root and namespaces"),
    pytest.mark.skipif(bool(nft.problem()), reason=nft.problem() or "-"),
]

TABLE = b"kvstack-network-policy-"
SILENT, CONNECTED = "TimeoutError", "connected"
SILENCE_S = "2"
"""How long nobody answers who never will: each silence that is expected takes so long."""
PEER = """
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.client_address[0].encode())
http.server.HTTPServer(("", 8000), Handler).serve_forever()
"""
WHO = """
import sys, urllib.request
for url in sys.argv[1:]:
    print(urllib.request.urlopen(url, timeout=5).read().decode())
"""
CONNECT_ALL = """
import socket, sys
from concurrent.futures import ThreadPoolExecutor
limit_s = float(sys.argv[1])
def connect(target):
    host, _, port = target.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=limit_s)
    except OSError as error:
        return type(error).__name__
    return "connected"
with ThreadPoolExecutor(8) as threads:
    print(*threads.map(connect, sys.argv[2:]))
"""
FIRST = CONNECT + "\nimport time\ntime.sleep(1000)"


def apply(here: Cluster, name: str, **spec: Any) -> None:
    obj = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name},
        "spec": {"podSelector": {}, **spec},
    }
    file = Path(here.home, f"{name}.json")
    file.write_text(json.dumps(obj))
    here.kubectl("apply", "-f", str(file))


def test_policies_of_pods(tmp_path: Path) -> None:
    with cluster(tmp_path) as here:
        here.run("web", "python3", "-c", PEER)
        here.run("client", "sleep", "1000")
        here.kubectl("expose", "pod", "web", "--port=80", "--target-port=8000")
        web = here.kubectl("get", "pod", "web", "-o", "jsonpath={.status.podIP}")
        client = here.kubectl("get", "pod", "client", "-o", "jsonpath={.status.podIP}")
        service = here.of_service(".spec.clusterIP")

        def are(answer: str, *targets: str, limit_s: str = "30") -> bool:
            """Whether a pod that connects with all of them at once gets this answer from each."""
            answers = here.python("client", CONNECT_ALL, limit_s, *targets).split()
            return answers == [answer] * len(targets)

        def are_silent(*targets: str) -> bool:
            return are(SILENT, *targets, limit_s=SILENCE_S)

        at_pod, at_service = f"{web}:8000", f"{service}:80"
        at_node = f"{here.network.gateway(NEIGHBOUR)}:10250"
        eventually(lambda: are(CONNECTED, at_service))
        # Pods of one node see each other's addresses, through a Service as well.
        seen = here.python("client", WHO, f"http://{at_pod}/", f"http://{service}/")
        assert seen.split() == [client, client]

        apply(here, "deny", policyTypes=["Ingress", "Egress"])
        eventually(lambda: are_silent(at_pod))
        # What starts from now on is isolated from its first packet.
        here.kubectl("run", "late", "--image=host", "--command", "--", "python3", "-uc", FIRST,
                     web, "8000", SILENCE_S)  # fmt: skip
        assert are_silent(at_service, at_node)
        assert here.status(f"http://{web}:8000/") == 200  # the node itself, as its probes
        assert here.status(f"http://{service}/") == 200
        eventually(lambda: here.output("logs", "late").strip() != "")
        assert here.output("logs", "late").strip() == SILENT

        to_web = {"podSelector": {"matchLabels": {"run": "web"}}}
        apply(
            here,
            "out",
            podSelector={"matchLabels": {"run": "client"}},
            policyTypes=["Egress"],
            egress=[{"to": [to_web]}, {"ports": [{"port": 53, "protocol": "UDP"}]}],
        )
        from_client = {"podSelector": {"matchLabels": {"role": "client"}}}
        apply(
            here,
            "in",
            podSelector={"matchLabels": {"run": "web"}},
            ingress=[{"from": [from_client], "ports": [{"port": 8000}]}],
        )
        assert are_silent(at_pod)
        here.kubectl("label", "pod", "client", "role=client")
        eventually(lambda: are(CONNECTED, at_pod))
        assert are(CONNECTED, at_service, "web:80")  # its name, too
        here.kubectl("label", "pod", "client", "role-")
        eventually(lambda: are_silent(at_pod))
        here.kubectl("delete", "networkpolicy", "--all")
        eventually(lambda: not are_silent(at_node))  # nobody listens there
        assert are(CONNECTED, at_pod)
        assert TABLE in tables(here.network)
    assert TABLE not in here.tables_after


@contextlib.contextmanager
def kubelet(here: Cluster) -> Iterator[None]:
    """Run a node whose pods outlive it; SIGTERM ends it."""
    process = subprocess.Popen(
        [
            # `ip netns exec` would hide from the next kubelet what this one mounts.
            *("nsenter", f"--net=/run/netns/{here.network.namespace('')}"),
            *(sys.executable, "-m", "kvstack", "kubelet", "--hostname-override=outlived"),
            f"--cgroup-root={here.network.namespace('')}",
            f"--kubeconfig={here.kubeconfig}",
            f"--client-ca-file={here.kubeconfig.parent / 'pki' / 'ca.crt'}",
            f"--root-dir={here.home / 'node'}",
            *("--pod-network=bridge", "--cluster-cidr=10.244.0.0/16", "--host-image=true"),
            *("--healthz-port=0", "--log-level=info"),
        ],
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S)
        finally:
            process.kill()
            process.wait()


def links(here: Cluster) -> bytes:
    command = ["ip", "-n", here.network.namespace(""), "link"]
    return subprocess.run(command, check=True, capture_output=True).stdout


def end_all(here: Cluster) -> None:
    """End and take away what is left of the node, also after a failure."""
    command = ["ip", "netns", "pids", here.network.namespace("")]
    for pid in subprocess.run(command, check=True, capture_output=True, text=True).stdout.split():
        arguments = Path(f"/proc/{pid}/cmdline")
        with contextlib.suppress(OSError):
            if b"kvstack\0up" not in arguments.read_bytes():
                os.kill(int(pid), signal.SIGKILL)
    root = here.home / "node"
    for uid in os.listdir(root / "pods") if (root / "pods").is_dir() else ():
        for pin in (STATE / "netns").glob(f"{uid}.*"):
            with contextlib.suppress(OSError):  # it is no mount
                syscalls.unmount(str(pin), syscalls.MNT_DETACH)
            pin.unlink()
    mount_table.take_away(root)
    shutil.rmtree(root, ignore_errors=True)
    # What is mounted elsewhere goes with the node's record, now that its directory is gone.
    wait_for(lambda: not node_lock.clean(STATE, Cgroups()))
    wait_for(lambda: Cgroups().remove(here.network.namespace("")))


def test_pods_that_outlive_their_node_stay_isolated(tmp_path: Path) -> None:
    with cluster(tmp_path, "--without=node", "--cluster-cidr=10.244.0.0/16") as here:
        as_node = ("--as=system:node:outlived", "--as-group=system:nodes", "-A")
        for resource in ("pods", "namespaces", "networkpolicies"):
            assert here.kubectl("auth", "can-i", "watch", resource, *as_node) == "yes"
        try:
            with kubelet(here):
                here.kubectl("wait", "--for=create", "node/outlived", "--timeout=60s")
                here.run("web", "python3", "-c", PEER)
                here.run("client", "sleep", "1000")
                web = here.kubectl("get", "pod", "web", "-o", "jsonpath={.status.podIP}")

                def ask(limit_s: str = "30") -> str:
                    return here.python("client", CONNECT, web, "8000", limit_s)

                assert ask() == CONNECTED
                apply(here, "deny")
                eventually(lambda: ask(SILENCE_S) == SILENT)
            assert TABLE in tables(here.network)
            with kubelet(here):
                eventually(lambda: here.output("exec", "client", "--", "echo", "hi") == "hi\n")
                assert ask(SILENCE_S) == SILENT
                here.kubectl("delete", "networkpolicy", "--all")
                eventually(lambda: ask() == CONNECTED)
                here.kubectl("delete", "pod", "--all", "--grace-period=1")
                eventually(lambda: b"kvpod" not in links(here))
            assert TABLE not in tables(here.network)
        finally:
            end_all(here)


def test_without_them_nothing_is_written(tmp_path: Path) -> None:
    with cluster(tmp_path, "--without=network-policy") as here:
        apply(here, "deny")
        here.run("web", "python3", "-c", PEER)
        here.run("client", "sleep", "1000")
        web = here.kubectl("get", "pod", "web", "-o", "jsonpath={.status.podIP}")
        assert here.python("client", CONNECT, web, "8000") == CONNECTED
        assert TABLE not in tables(here.network)
