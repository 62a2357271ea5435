"""`kvstack metrics`: behind the API server, and autoscalers on what pods and pages tell."""

import json
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typing_extensions import override

from kvstack.agents.standalone.in_memory.background import BackgroundCluster, Settings
from kvstack.agents.standalone.parts import METRICS
from tests.agents.metrics.test_top import kubectl, printed
from tests.support.certificates import Authority
from tests.support.documented import words
from tests.support.servers import free_ports

pytestmark = [pytest.mark.slow, pytest.mark.e2e]

STOP_S = 30.0
RULES = """\
allowLoopback: true
metrics:
- {name: queue_depth, sample: queue_depth, labels: {kind: work}}
- {name: requests, sample: requests, of: services, page: all}
external:
- {name: messages, sample: messages, page: all}
pages:
  all: http://127.0.0.1:PORT/metrics
"""
SERVED = (
    ("metrics.k8s.io", "v1beta1"),
    ("custom.metrics.k8s.io", "v1beta2"),
    ("external.metrics.k8s.io", "v1beta1"),
)
CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods"


class Queue(BaseHTTPRequestHandler):
    """What the pods tell; all of them are at the same address."""

    def do_GET(self) -> None:
        body = (
            b'queue_depth{kind="work"} 30\nqueue_depth{kind="other"} 1000\n'
            b'requests{namespace="default",service="web"} 90\n'
            b'messages{queue="mail"} 15\nmessages{queue="mail",kind="late"} 5\n'
            b'messages{queue="sms"} 1000\n'
        )
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def queue() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Queue)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def served(directory: Path, kubeconfig: Path, page_port: int) -> Iterator[int]:
    """Run the program."""
    (port,) = free_ports(1)
    rules = directory / "rules.yaml"
    rules.write_text(RULES.replace("PORT", str(page_port)))
    pair = directory / "pair.pem"  # of the certificate and its key
    own = Authority(directory, "authority").issue("metrics")
    pair.write_text("".join(Path(each).read_text() for each in own))
    with (directory / "metrics.log").open("w") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "kvstack"),
                *words(
                    "kvstack metrics --kubeconfig FILE --tls-cert-file … --tls-private-key-file …",
                    {"FILE": str(kubeconfig), "…": str(pair)},
                ),
                *(f"--secure-port={port}", "--bind-address=127.0.0.1", f"--custom={rules}"),
                "--metric-resolution=1s",
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            yield port
        finally:
            process.terminate()
            assert process.wait(STOP_S) == 0, (directory / "metrics.log").read_text()


def objects(port: int, pods_port: int) -> str:
    spec = {"groupPriorityMinimum": 100, "versionPriority": 100, "insecureSkipTLSVerify": True}
    service = {"namespace": "kube-system", "name": "metrics-server", "port": port}
    found: list[object] = [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "metrics-server", "namespace": "kube-system"},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        }
    ]
    for group, version in SERVED:
        found.append(
            {
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": {"name": f"{version}.{group}"},
                "spec": {**spec, "group": group, "version": version, "service": service},
            }
        )
    annotations = {"prometheus.io/scrape": "true", "prometheus.io/port": str(pods_port)}
    found += [deployment(each, annotations) for each in ("worker", "of-service", "outside")]
    found.append(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"ports": [{"port": 80}]},
        }
    )
    pods = {
        "metric": {"name": "queue_depth"},
        "target": {"type": "AverageValue", "averageValue": "10"},
    }
    of_service = {
        "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "web"},
        "metric": {"name": "requests"},
        "target": {"type": "AverageValue", "averageValue": "45"},
    }
    outside = {
        "metric": {"name": "messages", "selector": {"matchLabels": {"queue": "mail"}}},
        "target": {"type": "Value", "value": "10"},
    }
    found.append(autoscaler("worker", {"type": "Pods", "pods": pods}, 3))
    found.append(autoscaler("of-service", {"type": "Object", "object": of_service}, 5))
    found.append(autoscaler("outside", {"type": "External", "external": outside}, 2))
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": found})


def deployment(name: str, annotations: dict[str, str]) -> object:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}, "annotations": annotations},
                "spec": {"hostNetwork": True, "containers": [{"name": "c", "image": "i"}]},
            },
        },
    }


def autoscaler(name: str, metric: object, most: int) -> object:
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "maxReplicas": most,
            "metrics": [metric],
        },
    }


def code_of(port: int, path: str, **headers: str) -> int:
    """Ask the program itself."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(f"https://127.0.0.1:{port}{path}", headers=named)
    try:
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:
            code: int = answer.status
    except urllib.error.HTTPError as error:
        return error.code
    return code


def test_behind_the_api_server(tmp_path: Path) -> None:
    settings = Settings(nodes=1, without=frozenset((METRICS,)))
    with (
        queue() as pods_port,
        BackgroundCluster(tmp_path / "cluster", settings) as cluster,
        served(tmp_path, cluster.kubeconfig, pods_port) as port,
    ):
        file = cluster.kubeconfig
        given = tmp_path / "objects.json"
        given.write_text(objects(port, pods_port))
        code, text = kubectl(file, "apply", "-f", str(given))
        assert code == 0, text
        for group, version in SERVED:
            name = f"{version}.{group}"
            done = ("--for=condition=Available", "--timeout=60s")
            code, text = kubectl(file, "wait", f"apiservice/{name}", *done)
            assert code == 0, text
        code, text = kubectl(file, "get", "--raw", "/apis/metrics.k8s.io/v1beta1/nodes")
        assert (code, json.loads(text)["kind"]) == (0, "NodeMetricsList")
        code, text = kubectl(file, "get", "--raw", f"{CUSTOM}/none/queue_depth")
        assert code == 1
        assert 'pods "none" not found' in text
        found = printed(
            lambda: kubectl(file, "get", "--raw", f"{CUSTOM}/*/queue_depth"), r'"value":"30"'
        )
        [item] = json.loads(found)["items"][:1]
        assert item["metric"]["name"] == "queue_depth"
        printed(lambda: kubectl(file, "get", "deployment", "worker"), r"^worker +3/3")
        printed(lambda: kubectl(file, "get", "hpa", "worker"), r"30/10 +1 +3 +3")
        _check_pages(file)

        nodes = "/apis/metrics.k8s.io/v1beta1/nodes"
        assert code_of(port, "/healthz") == 200
        assert code_of(port, nodes) == 403
        told = {"X_Remote_User": "kubernetes-admin", "X_Remote_Group": "system:masters"}
        assert code_of(port, nodes, **told) == 403, "anybody can send headers"
        assert code_of(port, nodes, Authorization="Bearer wrong") == 401
        code, text = kubectl(file, "create", "token", "default")
        assert code == 0, text
        assert code_of(port, nodes, Authorization=f"Bearer {text.strip()}") == 403
        binding = ("--clusterrole=cluster-admin", "--serviceaccount=default:default")
        code, shown_text = kubectl(file, "create", "clusterrolebinding", "all", *binding)
        assert code == 0, shown_text
        printed(
            lambda: (0, str(code_of(port, nodes, Authorization=f"Bearer {text.strip()}"))), "200"
        )
        assert code_of(port, "/apis/../apis/metrics.k8s.io", **told) == 404


def _check_pages(file: Path) -> None:
    """Check what autoscalers make of metrics of a Service, and of what is outside."""
    printed(lambda: kubectl(file, "get", "deployment", "of-service"), r"^of-service +2/2")
    printed(lambda: kubectl(file, "get", "hpa", "of-service"), r"45/45 \(avg\) +1 +5 +2")
    printed(lambda: kubectl(file, "get", "hpa", "outside"), r"20/10 +1 +2 +2")
    for name in ("of-service", "outside"):
        code, text = kubectl(file, "get", "hpa", name, "-o", "json")
        assert code == 0, text
        conditions = json.loads(text)["status"]["conditions"]
        active = next(each for each in conditions if each["type"] == "ScalingActive")
        assert (active["status"], active["reason"]) == ("True", "ValidMetricFound")
    path = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/messages"
    code, text = kubectl(file, "get", "--raw", f"{path}?labelSelector=kind%3Dlate")
    assert code == 0, text
    [item] = json.loads(text)["items"]
    assert (item["value"], item["metricLabels"]["kind"]) == ("5", "late")
    code, text = kubectl(file, "get", "--raw", path, "--as=somebody")
    assert code == 1
    assert "forbidden" in text
