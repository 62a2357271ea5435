"""CoreDNS takes over the names of a cluster by scaling, and gives them back.

    KVSTACK_TEST_COREDNS=/path/to/coredns pytest tests/agents/standalone/test_coredns.py

It runs as its own manifest has it, by the account that `kvstack up` lets read what it needs.
"""

import json
import os
from pathlib import Path
from typing import Any, Final

import pytest

from tests.agents.dns.coredns_metrics import METRICS, metrics_of
from tests.agents.standalone.test_services import Cluster, cluster, eventually
from tests.agents.support.namespaces import has_namespaces

PROGRAM: Final = os.environ.get("KVSTACK_TEST_COREDNS", "")
SYSTEM: Final = "kube-system"
METRICS_PORT: Final = "9153"
RESOLVE: Final = "import socket, sys; print(socket.gethostbyname(sys.argv[1]))"
COUNT: Final = """
import sys, urllib.request
page = urllib.request.urlopen(sys.argv[1], timeout=30).read().decode()
asked = "coredns_dns_requests_total"
print(sum(float(line.split()[-1]) for line in page.splitlines() if line.startswith(asked)))
"""
PAGE: Final = """
import sys, urllib.request
print(urllib.request.urlopen(sys.argv[1], timeout=30).read().decode())
"""
COREFILE: Final = """
.:53 {
    errors
    health {
       lameduck 5s
    }
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }
    prometheus :9153
    forward . 127.0.0.1:5354
    cache 30
    loop
    reload
    loadbalance
}
"""

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(not PROGRAM, reason="no coredns: KVSTACK_TEST_COREDNS names none"),
    pytest.mark.skipif(not has_namespaces(), reason="containers need root and namespaces"),
]


def objects() -> list[dict[str, Any]]:
    """Return its account, its file, and a Deployment of none."""
    metadata = {"name": "coredns", "namespace": SYSTEM}
    labels = {"k8s-app": "kube-dns"}
    volume = {"name": "config", "configMap": {"name": "coredns"}}
    container = {
        "name": "coredns",
        "image": "host:latest",
        "command": [PROGRAM, "-conf", "/etc/coredns/Corefile"],
        "ports": [
            {"name": "dns", "containerPort": 53, "protocol": "UDP"},
            {"name": "dns-tcp", "containerPort": 53, "protocol": "TCP"},
            {"name": "metrics", "containerPort": int(METRICS_PORT)},
        ],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": True}],
    }
    template = {
        "metadata": {"labels": labels},
        "spec": {
            "serviceAccountName": "coredns",
            "dnsPolicy": "Default",
            "containers": [container],
            "volumes": [volume],
        },
    }
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": {"Corefile": COREFILE},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
        },
    ]


def slices(here: Cluster) -> list[str]:
    """Return who manages the EndpointSlices of kube-dns that have ready endpoints."""
    found = here.kubectl(
        "get", "endpointslices", "-n", SYSTEM, "-l", "kubernetes.io/service-name=kube-dns",
        "-o", "json",
    )  # fmt: skip
    return sorted(
        item["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"]
        for item in json.loads(found)["items"]
        if any(each["conditions"].get("ready") for each in item.get("endpoints") or ())
    )


def test_it_takes_over_and_gives_back(tmp_path: Path) -> None:
    manifest = tmp_path / "coredns.json"
    manifest.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects()}))
    with cluster(tmp_path) as here:
        here.run("client", "sleep", "1000")
        here.kubectl("create", "service", "clusterip", "web", "--tcp=80")
        web = here.of_service(".spec.clusterIP")

        def resolves() -> bool:
            return (
                here.output("exec", "client", "--", "python3", "-c", RESOLVE, "web").strip() == web
            )

        eventually(resolves)
        assert slices(here) == ["dns.kvstack.io"]
        here.kubectl("apply", "-f", str(manifest))
        scale = ("scale", "-n", SYSTEM, "deployment/coredns")
        here.kubectl(*scale, "--replicas=1")
        here.kubectl("rollout", "status", "-n", SYSTEM, "deployment/coredns", "--timeout=120s")
        eventually(lambda: slices(here) == ["endpointslice-controller.k8s.io"])
        pod = here.kubectl(
            "get", "pods", "-n", SYSTEM, "-l", "k8s-app=kube-dns", "-o",
            "jsonpath={.items[0].status.podIP}",
        )  # fmt: skip
        page = f"http://{pod}:{METRICS_PORT}/metrics"
        before = float(here.python("client", COUNT, page))
        eventually(lambda: resolves() and float(here.python("client", COUNT, page)) > before)
        served = metrics_of(here.python("client", PAGE, page))
        assert {name: METRICS.get(name) for name in served} == served
        assert len(served) >= 20
        here.kubectl(*scale, "--replicas=0")
        eventually(lambda: slices(here) == ["dns.kvstack.io"])
        eventually(resolves)
