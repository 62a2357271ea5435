"""`kvstack proxy` as a program of its own, beside a cluster without one."""

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from kvstack.agents.proxy.iptables import program as iptables
from kvstack.agents.proxy.nftables import program
from tests.agents.standalone.test_services import Cluster, cluster, eventually, tables
from tests.agents.standalone.test_stack import READY_S, STOP_S
from tests.agents.support.namespaces import has_namespaces
from tests.support.documented import words

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(not has_namespaces(), reason="containers need root and namespaces"),
    pytest.mark.skipif(bool(program.problem()), reason=program.problem() or "-"),
    pytest.mark.skipif(bool(iptables.problem(4)), reason=iptables.problem(4) or "-"),
]

READ = """
import sys, urllib.request
print(urllib.request.urlopen(sys.argv[1], timeout=30).read().decode())
"""


def command(here: Cluster, *flags: str) -> list[str]:
    return [*here.inside(), sys.executable, "-m", "kvstack", "proxy", *flags]


@contextlib.contextmanager
def proxy(here: Cluster, log: Path, *flags: str) -> Iterator["subprocess.Popen[bytes]"]:
    with log.open("wb") as file:
        process = subprocess.Popen(command(here, *flags), stderr=file)

    def is_healthy() -> bool:
        assert process.poll() is None, "it has ended"
        return here.status("http://127.0.0.1:10256/healthz") == 200

    try:
        try:
            eventually(is_healthy)
        except AssertionError as error:
            error.add_note(log.read_text()[-5000:])
            raise
        yield process
    finally:
        process.kill()
        process.wait()


def read(here: Cluster, path: str) -> str:
    url = f"http://127.0.0.1:10249{path}"
    inside = [*here.inside(), sys.executable, "-c", READ, url]
    done = subprocess.run(inside, capture_output=True, text=True, check=True, timeout=READY_S)
    return done.stdout.strip()


def rules(here: Cluster) -> str:
    """Return the rules of iptables."""
    command = [*here.inside(), "iptables-save"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_proxy_of_its_own(tmp_path: Path) -> None:
    with cluster(tmp_path, "--without=proxy") as here:
        name = here.kubectl("get", "node", "-o", "jsonpath={.items[0].metadata.name}")
        kubeconfig = str(tmp_path / "data" / "kubernetes" / "admin.conf")
        file = tmp_path / "config.conf"
        file.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
                    "kind": "KubeProxyConfiguration",
                    "clientConnection": {"kubeconfig": kubeconfig, "qps": 10},
                    "hostnameOverride": name,
                    "detectLocalMode": "NodeCIDR",
                    "iptables": None,
                }
            )
        )
        log = tmp_path / "proxy.log"
        here.run("web", "python3", "-m", "http.server", "8000")
        here.kubectl("expose", "pod", "web", "--port=80", "--target-port=8000", "--type=NodePort")
        url = f"http://{here.of_service('.spec.clusterIP')}/"
        _, *documented = words(
            "kvstack proxy --config /var/lib/kube-proxy/config.conf",
            {"/var/lib/kube-proxy": str(tmp_path)},
        )
        with proxy(here, log, *documented) as process:
            assert "clientConnection.qps" in log.read_text()
            assert read(here, "/proxyMode") == "nftables"
            told = json.loads(read(here, "/configz"))["kubeproxy.config.k8s.io"]
            assert told["detectLocalMode"] == "NodeCIDR"
            metrics = read(here, "/metrics")
            assert (
                'kubeproxy_sync_full_proxy_rules_duration_seconds_count{ip_family="IPv4"}'
                in metrics
            )
            assert 'kubeproxy_proxy_healthz_total{code="200"}' in metrics
            assert here.status("http://127.0.0.1:10256/livez") == 200
            eventually(lambda: here.status(url) == 200)
            other = subprocess.run(
                command(here, f"--config={file}"), capture_output=True, text=True, check=False
            )
            assert other.returncode == 1
            assert "another proxy writes the rules of this machine" in other.stderr

            file.write_text(file.read_text() + "\n")
            assert process.wait(STOP_S) == 1
            assert "configuration file was updated" in log.read_text()
        assert here.status(url) == 200  # its rules stay
        events = here.kubectl("get", "events", "-A", "-o", "jsonpath={.items[*].reason}")
        assert "Starting" in events.split()
        assert subprocess.run(command(here, "--cleanup"), check=False).returncode == 0
        assert b"kube-proxy" not in tables(here.network)
        assert here.status(url) == 0

        flags = (f"--kubeconfig={kubeconfig}", f"--hostname-override={name}")
        _other_modes(here, log, flags, url)


def _other_modes(here: Cluster, log: Path, flags: tuple[str, ...], url: str) -> None:
    with proxy(here, log, *flags, "--proxy-mode=iptables"):
        assert read(here, "/proxyMode") == "iptables"
        eventually(lambda: here.status(url) == 200)
        node_port = here.of_service(".spec.ports[0].nodePort")
        assert here.status(f"http://127.0.0.1:{node_port}/") == 200
        metrics = read(here, "/metrics")
        counted = 'kubeproxy_sync_proxy_rules_iptables_total{ip_family="IPv4",table="nat"} '
        assert float(metrics.partition(counted)[2].split()[0]) > 10
        assert "kubeproxy_sync_proxy_rules_service_changes_total" in metrics
    assert here.status(url) == 200  # its rules stay
    with proxy(here, log, *flags):
        assert read(here, "/proxyMode") == "nftables"
        eventually(lambda: "KUBE-S" not in rules(here))  # those of the other mode do not
        assert "KUBE-FIREWALL" in rules(here)  # the kernel still routes loopback addresses
        assert here.status(url) == 200
    with proxy(here, log, *flags, "--proxy-mode=userspace") as process:
        assert b"kube-proxy" not in tables(here.network)
        assert read(here, "/proxyMode") == "userspace"
        port = here.of_service(".spec.ports[0].nodePort")
        eventually(lambda: here.status(f"http://127.0.0.1:{port}/") == 200)
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_S) == 0
    assert b"kube-proxy" not in tables(here.network)
