"""`kvstack up` with IPv6, alone and beside IPv4: pods, Services, names, policies, the API."""

import json
from pathlib import Path
from typing import Any

import pytest

from kvstack.agents.proxy.nftables import program
from kvstack.component.net.hosts import has_ipv6
from tests.agents.standalone.test_services import SCRIPT, Cluster, cluster, eventually
from tests.agents.support.namespaces import has_namespaces
from tests.support.documented import words

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(not has_namespaces(), reason="containers need root and namespaces"),
    pytest.mark.skipif(bool(program.problem()), reason=program.problem() or "-"),
    pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6"),
]

SERVE = ("python3", "-m", "http.server", "8000", "--bind", "::")
ASK = """
import sys, urllib.request
for url in sys.argv[1:]:
    try:
        print(urllib.request.urlopen(url, timeout=2).status)
    except OSError as error:
        print(type(error).__name__)
"""
RESOLVE = """
import socket, sys
found = {each[4][0] for each in socket.getaddrinfo(sys.argv[1], 80)}
print(*sorted(found), *sorted({socket.getnameinfo((each, 80), 0)[0] for each in found}))
"""
FAMILIES = ("IPv4", "IPv6")


def get(here: Cluster, *what: str) -> Any:
    return json.loads(here.kubectl("get", *what, "-o", "json"))


def serve(here: Cluster, name: str, policy: str, families: tuple[str, ...] = ()) -> list[str]:
    """Make a Service of the pod web; return its addresses."""
    spec = {
        "ipFamilyPolicy": policy,
        **({"ipFamilies": list(families)} if families else {}),
        "selector": {"run": "web"},
        "ports": [{"port": 80, "targetPort": 8000}],
    }
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}
    file = here.home / "service.json"
    file.write_text(json.dumps(service))
    here.kubectl("apply", "-f", str(file))
    found: list[str] = get(here, "service", name)["spec"]["clusterIPs"]
    return found


def url(address: str) -> str:
    return f"http://[{address}]/" if ":" in address else f"http://{address}/"


def statuses(here: Cluster, *addresses: str) -> list[str]:
    return here.python("client", ASK, *map(url, addresses)).split()


def begin(here: Cluster) -> tuple[Any, Any]:
    """Run a server and a client; return the node and the server."""
    here.run("web", *SERVE)
    here.run("client", "sleep", "1000")
    return get(here, "nodes")["items"][0], get(here, "pod", "web")


def test_both_families(tmp_path: Path) -> None:
    _, *flags = words(
        "kvstack up --cluster-cidr=10.7.0.0/16,fd00:7::/48"
        " --service-cluster-ip-range=10.96.0.0/16,fd00:96::/112"
    )
    with cluster(tmp_path, *flags, both=True) as here:
        node, web = begin(here)
        assert node["spec"]["podCIDRs"] == ["10.7.0.0/24", "fd00:7::/64"]
        own = [e["address"] for e in node["status"]["addresses"] if e["type"] == "InternalIP"]
        assert own == ["10.202.0.1", "fd00:ca::1"]
        assert [each["ip"] for each in web["status"]["hostIPs"]] == own
        pod_ips = [each["ip"] for each in web["status"]["podIPs"]]
        assert [each.rpartition(".")[0] or each[:6] for each in pod_ips] == ["10.7.0", "fd00:7"]
        hosts = here.kubectl("exec", "web", "--", "cat", "/etc/hosts")
        assert all(f"{each}\tweb" in hosts for each in pod_ips)

        one = serve(here, "one", "SingleStack")
        six = serve(here, "six", "SingleStack", ("IPv6",))
        both = serve(here, "both", "RequireDualStack")
        assert [":" in each for each in (*one, *six, *both)] == [False, True, False, True]
        every = [*one, *six, *both]
        eventually(lambda: statuses(here, *every) == ["200"] * 4)
        assert all(here.status(url(each)) == 200 for each in every)  # from the machine, too
        log = here.kubectl("logs", "web")
        client = get(here, "pod", "client")["status"]["podIPs"]
        assert all(each["ip"] in log for each in client)  # no address was translated

        found = here.python("client", RESOLVE, "both").split()
        assert found == [*sorted(both), "both.default.svc.cluster.local"]
        assert here.python("client", SCRIPT, "https://kubernetes.default.svc/api/v1") == "200"

        deny = {"podSelector": {"matchLabels": {"run": "web"}}, "policyTypes": ["Ingress"]}
        rules: tuple[dict[str, Any], ...] = ({}, {"ingress": [{"from": [{"podSelector": {}}]}]})
        for allowed in rules:
            here.home.joinpath("policy.json").write_text(
                json.dumps(
                    {
                        "apiVersion": "networking.k8s.io/v1",
                        "kind": "NetworkPolicy",
                        "metadata": {"name": "web"},
                        "spec": {**deny, **allowed},
                    }
                )
            )
            here.kubectl("apply", "-f", str(here.home / "policy.json"))
            wanted = ["200"] * 2 if allowed else ["URLError"] * 2
            eventually(lambda: statuses(here, *both) == wanted)  # noqa: B023 - called at once


def test_ipv6_alone(tmp_path: Path) -> None:
    """The range of pods is one that nobody else has."""
    _, *flags = words("kvstack up --service-cluster-ip-range=fd00:96::/112")
    with cluster(tmp_path, *flags, both=True) as here:
        node, web = begin(here)
        (pods,) = node["spec"]["podCIDRs"]
        assert pods.startswith("fd")
        assert node["status"]["addresses"][0]["address"] == "fd00:ca::1"
        assert [":" in each["ip"] for each in web["status"]["podIPs"]] == [True]
        (ip,) = serve(here, "one", "PreferDualStack")
        eventually(lambda: statuses(here, ip) == ["200"])
        found = here.python("client", RESOLVE, "one").split()
        assert found == [ip, "one.default.svc.cluster.local"]
        environment = here.kubectl("exec", "client", "--", "env").split()
        assert "KUBERNETES_SERVICE_HOST=fd00:96::1" in environment
        for name in ("kubernetes.default.svc", "[fd00:96::1]"):
            assert here.python("client", SCRIPT, f"https://{name}/api/v1") == "200"
