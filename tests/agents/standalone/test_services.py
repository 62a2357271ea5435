"""Services of `kvstack up`, in a network namespace: pods, the machine and its neighbours ask."""

import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from dns.message import from_wire, make_query

from kvstack.agents.proxy.iptables import program as iptables
from kvstack.agents.proxy.nftables import program
from tests.agents.standalone.test_stack import READY_S, STOP_S, lines_of
from tests.agents.support.namespaces import has_namespaces
from tests.apiserver.stories.clients import ClientsMissingError, clients
from tests.support.network.routed import RefusedError, Routed, routed
from tests.support.programs import path_of
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(not has_namespaces(), reason="containers need root and namespaces"),
    pytest.mark.skipif(bool(program.problem()), reason=program.problem() or "-"),
]

NEIGHBOUR = "client"
IPTABLES = ("iptables", "iptables-restore", "iptables-save")
SCRIPT = """
import ssl, sys, urllib.request
place = "/var/run/secrets/kubernetes.io/serviceaccount/"
headers = {"Authorization": "Bearer " + open(place + "token").read()}
trusted = ssl.create_default_context(cafile=place + "ca.crt")
request = urllib.request.Request(sys.argv[1], headers=headers)
print(urllib.request.urlopen(request, context=trusted, timeout=30).status)
"""
GET = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=30).status)"
READ = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=30).read().decode())"
_SYNCS = "kubeproxy_sync_proxy_rules_last_timestamp_seconds"
CONNECT = """
import socket, sys
limit_s = float(sys.argv[3]) if len(sys.argv) > 3 else 30
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=limit_s)
    print("connected")
except OSError as error:
    print(type(error).__name__)
"""


class Cluster:
    """A cluster whose machine is a network namespace."""

    def __init__(self, network: Routed, file: Path, home: Path) -> None:
        self.network = network
        self.home = home
        self.kubeconfig = file
        self.tables_after = b""
        """Of the machine, once the cluster has stopped."""
        self._env = {**os.environ, "KUBECONFIG": str(file), "HOME": str(home)}

    def kubectl(self, *arguments: str) -> str:
        done = self._run(arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def output(self, *arguments: str) -> str:
        """Return what a command says, which may fail for now."""
        return self._run(arguments).stdout

    def _run(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.inside(), str(clients("1.37") / "kubectl"), *arguments],
            env=self._env,
            capture_output=True,
            text=True,
            timeout=READY_S,
            check=False,
        )

    def inside(self) -> list[str]:
        return _netns(self.network)

    def type(self, text: str) -> str:
        """Run a command of the documentation in a shell of the machine; return what it says."""
        done = subprocess.run(
            [*self.inside(), "bash", "-c", text],
            env={**self._env, "PATH": f"{clients('1.37')}:{self._env['PATH']}"},
            capture_output=True,
            text=True,
            timeout=READY_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def run(self, name: str, *command: str) -> None:
        self.kubectl("run", name, "--image=host", "--port=8000", "--command", "--", *command)
        self.kubectl("wait", f"pod/{name}", "--for=condition=Ready", "--timeout=60s")

    def python(self, pod: str, script: str, *arguments: str) -> str:
        return self.kubectl("exec", pod, "--", "python3", "-c", script, *arguments)

    def of_service(self, path: str) -> str:
        return self.kubectl("get", "service", "web", "-o", f"jsonpath={{{path}}}")

    def page(self, url: str) -> str:
        """Return a page that the machine itself reads; empty if there is none."""
        done = subprocess.run(
            [*self.inside(), sys.executable, "-c", READ, url],
            capture_output=True,
            text=True,
            check=False,
            timeout=READY_S,
        )
        return done.stdout.strip()

    def status(self, url: str) -> int:
        """Ask from the machine itself."""
        done = subprocess.run(
            [*self.inside(), sys.executable, "-c", GET, url],
            capture_output=True,
            text=True,
            check=False,
            timeout=READY_S,
        )
        return int(done.stdout or 0)


def _netns(network: Routed) -> list[str]:
    """Return what a command begins with that runs on the machine of a cluster."""
    return ["ip", "netns", "exec", network.namespace("")]


def _network_alone(network: Routed) -> list[str]:
    """Return the same for a command that sees the control groups, which `ip netns exec` hides."""
    return ["nsenter", f"--net=/run/netns/{network.namespace('')}"]


def eventually(is_so: Callable[[], bool]) -> None:
    wait_for(is_so, timeout_s=READY_S)


@contextlib.contextmanager
def cluster(
    tmp_path: Path, *flags: str, path: str = "", both: bool = False, has_groups: bool = False
) -> Iterator[Cluster]:
    """Run `kvstack up` on a machine of its own, which has a neighbour.

    path: of its programs; both: whether the machine has addresses of both families; has_groups:
    whether pods have control groups, which are those of the machine of the tests.
    """
    try:
        clients("1.37")
    except ClientsMissingError as error:
        pytest.skip(f"no kubectl: {error}")
    directory = tmp_path / "data"
    with routed((NEIGHBOUR,), both=both) as network, (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [
                *(_network_alone(network) if has_groups else _netns(network)),
                *(sys.executable, "-m", "kvstack", "up", f"--data-dir={directory}", *flags),
            ],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, **({"PATH": path} if path else {})},
        )
        try:
            lines_of(process)
            found = Cluster(network, directory / "kubernetes" / "admin.conf", tmp_path)
            found.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=60s")
            yield found
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=STOP_S)
            assert process.returncode == 0
            found.tables_after = tables(network)
            assert b"kube-proxy" not in found.tables_after
            assert b"kvstack-api" not in found.tables_after
            assert not has_kube_services(network)
            own = subprocess.run(
                ["ip", "-n", network.namespace(""), "address", "show", "lo"],
                check=True,
                capture_output=True,
            )
            assert b"198.18." not in own.stdout
            assert b"198.19." not in own.stdout
        finally:
            process.kill()
            process.wait()


def tables(network: Routed) -> bytes:
    command = ["ip", "netns", "exec", network.namespace(""), "nft", "list", "tables"]
    return subprocess.run(command, check=True, capture_output=True).stdout


@pytest.mark.parametrize("writes", ["nft", "iptables"])
def test_a_pod_reaches_services_and_the_api_server(tmp_path: Path, writes: str) -> None:
    path = path_of(tmp_path, "ip", "unshare", "mount", "umount", *IPTABLES)
    if writes == "iptables" and (problem := iptables.problem(4)):
        pytest.skip(problem)
    with cluster(tmp_path, path=path if writes == "iptables" else "") as here:
        assert has_kube_services(here.network) is (writes == "iptables")
        here.run("web", "python3", "-m", "http.server", "8000")
        here.run("client", "sleep", "1000")
        api = "https://10.96.0.1"
        assert here.python("client", SCRIPT, f"{api}/apis/apps/v1") == "200"
        _check_names(here)
        _check_dns(here)
        _check_pages(here, "nftables" if writes == "nft" else writes)

        here.kubectl("expose", "pod", "web", "--port=80", "--target-port=8000", "--type=NodePort")
        web = here.of_service(".spec.clusterIP")
        eventually(lambda: here.status(f"http://{web}/") == 200)
        assert here.python("client", GET, f"http://{web}/") == "200"
        assert here.python("web", GET, f"http://{web}/") == "200"  # by way of its own Service

        machine = here.kubectl(
            "get", "node", "-o", "jsonpath={.items[0].status.addresses[0].address}"
        )
        port = int(here.of_service(".spec.ports[0].nodePort"))
        assert b"200 OK" in _neighbours_request(here.network, machine, port)

        here.kubectl("patch", "service", "web", "-p", '{"spec": {"type": "LoadBalancer"}}')
        eventually(lambda: here.of_service(".status.loadBalancer.ingress[0].ip") == machine)
        eventually(lambda: here.status(f"http://{machine}/") == 200)
        assert b"200 OK" in _neighbours_request(here.network, machine, 80)

        here.kubectl("delete", "pod", "web", "--grace-period=1")
        eventually(lambda: here.python("client", CONNECT, web, "80") == "ConnectionRefusedError")


def has_kube_services(network: Routed) -> bool:
    command = ["ip", "netns", "exec", network.namespace(""), "iptables-save"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return "KUBE-SERVICES" in done.stdout


def test_a_deployment_is_reached_by_name(tmp_path: Path) -> None:
    with cluster(tmp_path) as here:
        here.type("kubectl create deployment web --image=host -- python3 -m http.server 8000")
        here.kubectl("wait", "deployment/web", "--for=condition=Available", "--timeout=60s")
        here.type("kubectl expose deployment web --port=80 --target-port=8000")
        here.run("client", "sleep", "1000")
        eventually(lambda: here.status(f"http://{here.of_service('.spec.clusterIP')}/") == 200)
        page = here.type("curl http://$(kubectl get service web -o jsonpath={.spec.clusterIP})/")
        assert "Directory listing" in page
        for name in ("web", "web.default", "web.default.svc.cluster.local"):
            assert here.python("client", GET, f"http://{name}/") == "200"
        api = "https://kubernetes.default.svc"
        assert here.python("client", SCRIPT, f"{api}/apis/apps/v1") == "200"
        # `ip netns exec` hides the control groups that tell what pods use.
        eventually(lambda: "%" in here.output("top", "nodes"))


def test_without_rules_connections_to_services_are_passed_on(tmp_path: Path) -> None:
    with cluster(tmp_path, path=path_of(tmp_path, "ip", "unshare", "mount", "umount")) as here:
        here.run("web", "python3", "-m", "http.server", "8000")
        here.run("client", "sleep", "1000")
        here.kubectl("expose", "pod", "web", "--port=80", "--target-port=8000")
        web = here.of_service(".spec.clusterIP")
        eventually(lambda: here.status(f"http://{web}/") == 200)
        assert here.python("client", GET, f"http://{web}/") == "200"
        assert here.python("client", GET, "http://web.default/") == "200"
        api = "https://kubernetes.default.svc"
        assert here.python("client", SCRIPT, f"{api}/apis/apps/v1") == "200"
        _check_names(here)
        # The neighbour has this machine as its way to everywhere.
        with pytest.raises(ConnectionResetError):
            _neighbours_request(here.network, "10.96.0.1", 443)
        here.kubectl("delete", "service", "web")
        eventually(lambda: here.python("client", CONNECT, web, "80") == "ConnectionRefusedError")


def test_only_pods_and_the_machine_reach_the_api_server(tmp_path: Path) -> None:
    with cluster(tmp_path) as here:
        here.run("client", "sleep", "1000")
        path = "jsonpath={.endpoints[0].addresses[0]}"
        where = here.kubectl("get", "endpointslice", "kubernetes", "-o", path)
        assert here.python("client", CONNECT, where, "6443") == "connected"
        assert here.python("client", CONNECT, where, "10250") == "ConnectionRefusedError"
        # The neighbour has this machine as its way to everywhere.
        assert here.network.is_silent(NEIGHBOUR, where, 6443)
        with pytest.raises(RefusedError):
            here.network.ask(NEIGHBOUR, here.network.gateway(NEIGHBOUR), 6443)


@pytest.mark.parametrize("part", ["proxy", "loadbalancer"])
def test_without_a_part_nothing_is_written(tmp_path: Path, part: str) -> None:
    with cluster(tmp_path, f"--without={part},dashboard") as here:
        has_proxy = part != "proxy"
        assert (b"kvstack-api" in tables(here.network)) is has_proxy
        assert (b"kube-proxy" in tables(here.network)) is has_proxy
        here.kubectl("create", "service", "loadbalancer", "web", "--tcp=80:80")
        state = json.loads(here.kubectl("get", "--raw", "/settled?timeout=60s"))
        assert state["settled"]  # a controller that gives addresses has had its turn
        assert here.of_service(".status.loadBalancer.ingress") == ""
        with pytest.raises(AssertionError, match="NotFound"):
            here.kubectl("get", "--raw", "/ui/")


def _check_dns(here: Cluster) -> None:
    """Check that the machine resolves names, whatever address the rules give its queries."""
    query = make_query("kubernetes.default.svc.cluster.local", "A")

    def answer() -> str:
        with here.network.socket("", socket.SOCK_DGRAM) as asking:
            asking.settimeout(2)
            asking.sendto(query.to_wire(), ("10.96.0.10", 53))
            try:
                answered = from_wire(asking.recv(999)).answer
            except TimeoutError:
                return ""
            return answered[0][0].to_text() if answered else ""

    eventually(lambda: answer() == "10.96.0.1")


def _check_names(here: Cluster) -> None:
    """Check that the certificate is for the names and the address that pods know."""
    found = json.loads(here.kubectl("get", "configmap", "kube-root-ca.crt", "-o", "json"))
    trusted = ssl.create_default_context(cadata=found["data"]["ca.crt"])
    names = ("10.96.0.1", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
    for name in names:
        with here.network.socket("") as plain:
            plain.connect(("10.96.0.1", 443))
            with trusted.wrap_socket(plain, server_hostname=name):
                pass


def _check_pages(here: Cluster, mode: str) -> None:
    """Check the pages of the proxy, on loopback, and the metrics of DNS, for its clients."""
    assert here.page("http://127.0.0.1:10249/proxyMode") == mode
    assert json.loads(here.page("http://127.0.0.1:10256/healthz"))["nodeEligible"]
    assert json.loads(here.page("http://127.0.0.1:10256/livez"))["healthy"]
    shown = json.loads(here.page("http://127.0.0.1:10249/configz"))["kubeproxy.config.k8s.io"]
    assert shown["mode"] == mode
    assert shown["clusterCIDR"].startswith("10.")
    eventually(
        lambda: f'{_SYNCS}{{ip_family="IPv4"}}' in here.page("http://127.0.0.1:10249/metrics")
    )
    name = here.kubectl("get", "node", "-o", "jsonpath={.items[0].metadata.name}")
    of_node = json.loads(here.kubectl("get", "--raw", f"/api/v1/nodes/{name}/proxy/configz"))
    shown = of_node["kubeletconfig"]
    assert (shown["clusterDNS"], shown["maxPods"]) == (["10.96.0.10"], 110)
    # As a Prometheus in a pod reads it: at the Service, and at its endpoint.
    path = "jsonpath={.items[*].endpoints[*].addresses[*]}"
    where = here.kubectl("get", "endpointslice", "-n=kube-system", "-o", path)
    eventually(lambda: here.status("http://10.96.0.10:9153/metrics") == 200)
    assert here.python("client", GET, "http://10.96.0.10:9153/metrics") == "200"
    assert here.python("client", GET, f"http://{where}:9153/metrics") == "200"
    assert "coredns_build_info" in here.page(f"http://{where}:9153/metrics")
    # The neighbour has this machine as its way to everywhere.
    assert b"403" in _neighbours_request(here.network, where, 9153)
    with pytest.raises(RefusedError):
        here.network.ask(NEIGHBOUR, here.network.gateway(NEIGHBOUR), 10249)


def _neighbours_request(network: Routed, address: str, port: int) -> bytes:
    with network.socket(NEIGHBOUR, socket.SOCK_STREAM) as plain:
        plain.settimeout(READY_S)
        plain.connect((address, port))
        plain.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return plain.recv(100)
