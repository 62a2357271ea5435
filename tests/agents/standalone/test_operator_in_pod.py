"""An operator in a pod, with clients as they come: kopf, and the client library of Kubernetes.

They find the API server by the variables of their pod, at its address as a Service, and trust it
and are known by what is mounted into the pod.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from kvstack.agents.proxy.nftables import program
from tests.agents.standalone.test_services import Cluster, cluster, eventually
from tests.agents.support.namespaces import has_namespaces

pytest.importorskip("kopf")
pytest.importorskip("kubernetes")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(not has_namespaces(), reason="containers need root and namespaces"),
    pytest.mark.skipif(bool(program.problem()), reason=program.problem() or "-"),
]

GROUP = "example.test"
PYTHON = [
    (name, path)
    for name, path in (("packages", sys.prefix), ("python", sys.base_prefix))
    if not path.startswith("/usr")
]
"""What the image of the machine's file system lacks of the Python of the tests."""
HANDLERS = """
import kopf

@kopf.on.create("example.test", "v1", "greetings")
@kopf.on.update("example.test", "v1", "greetings")
def greet(spec, patch, **_):
    patch.status["text"] = "hello " + spec["to"]
"""
CLIENT = """
import json, sys
import certifi
from kubernetes import client, config, watch

config.load_incluster_config()
api = client.CustomObjectsApi()
greetings = ("example.test", "v1", "default", "greetings")
seen = ""
listed = api.list_namespaced_custom_object
for event in watch.Watch().stream(listed, *greetings, timeout_seconds=60):
    seen = event["object"].get("status", {}).get("text", "")
    if seen:
        break
status = {"status": {"seen": seen}, "spec": {"to": "nobody"}}
api.patch_namespaced_custom_object_status(*greetings, "one", status)

def problem(request):
    try:
        request()
    except Exception as error:
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return "certificate"
        return getattr(error, "status", repr(error))
    return ""

used = client.Configuration.get_default_copy()
secrets = problem(lambda: client.CoreV1Api().list_namespaced_secret("default"))
other = client.Configuration.get_default_copy()
other.ssl_ca_cert, other.retries = certifi.where(), False
distrust = problem(lambda: client.VersionApi(client.ApiClient(other)).get_code())
print(json.dumps([used.host, used.verify_ssl, seen, secrets, distrust]))
"""


def definition() -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"greetings.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"kind": "Greeting", "plural": "greetings", "singular": "greeting"},
            "versions": [version],
        },
    }


def permissions() -> list[dict[str, Any]]:
    """Return an account, and that it may do what kopf does with greetings, and no more."""
    reads = [
        {
            "apiGroups": ["", "apiextensions.k8s.io"],
            "resources": ["namespaces", "customresourcedefinitions"],
            "verbs": ["list", "watch"],
        }
    ]
    rules = [
        {
            "apiGroups": [GROUP],
            "resources": ["greetings", "greetings/status"],
            "verbs": ["get", "list", "watch", "patch"],
        },
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
    ]
    group = "rbac.authorization.k8s.io"
    account = {"kind": "ServiceAccount", "name": "operator", "namespace": "default"}
    objects: list[dict[str, Any]] = [{"apiVersion": "v1", "kind": "ServiceAccount"}]
    for scope, granted in (("", rules), ("Cluster", reads)):
        role = {"apiGroup": group, "kind": f"{scope}Role", "name": "operator"}
        objects += [
            {"apiVersion": f"{group}/v1", "kind": f"{scope}Role", "rules": granted},
            {
                "apiVersion": f"{group}/v1",
                "kind": f"{scope}RoleBinding",
                "subjects": [account],
                "roleRef": role,
            },
        ]
    return [{**each, "metadata": {"name": "operator"}} for each in objects]


def deployment() -> dict[str, Any]:
    labels = {"app": "operator"}
    container = {
        "name": "operator",
        "image": "host",
        "command": [
            *(sys.executable, "-m", "kopf", "run", "--standalone", "--namespace=default"),
            *("--liveness=http://0.0.0.0:8080/healthz", "/operator/handlers.py"),
        ],
        "volumeMounts": [
            {"name": "handlers", "mountPath": "/operator"},
            *({"name": name, "mountPath": path, "readOnly": True} for name, path in PYTHON),
        ],
        "readinessProbe": {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 1},
    }
    pod = {
        "serviceAccountName": "operator",
        "containers": [container],
        "volumes": [
            {"name": "handlers", "configMap": {"name": "handlers"}},
            *({"name": name, "hostPath": {"path": path}} for name, path in PYTHON),
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "operator"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def greeting(to: str) -> dict[str, Any]:
    kind = {"apiVersion": f"{GROUP}/v1", "kind": "Greeting"}
    return {**kind, "metadata": {"name": "one"}, "spec": {"to": to}}


def apply(here: Cluster, *objects: dict[str, Any]) -> None:
    file = Path(here.home, "objects.json")
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
    here.kubectl("apply", "-f", str(file))


def test_an_operator_in_a_pod_reaches_the_api_server(tmp_path: Path) -> None:
    with cluster(tmp_path) as here:
        apply(here, definition(), *permissions())
        here.kubectl(
            "wait", f"crd/greetings.{GROUP}", "--for=condition=Established", "--timeout=60s"
        )
        handlers = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "handlers"}}
        apply(here, {**handlers, "data": {"handlers.py": HANDLERS}}, deployment())
        apply(here, greeting("you"))

        def status() -> Any:
            return json.loads(here.kubectl("get", "greeting", "one", "-o", "json")).get("status")

        eventually(lambda: (status() or {}).get("text") == "hello you")
        here.kubectl("wait", "deployment/operator", "--for=condition=Available", "--timeout=60s")
        exec_ = ("exec", "deployment/operator", "--", sys.executable, "-c", CLIENT)
        answer = json.loads(here.kubectl(*exec_))
        assert answer == ["https://10.96.0.1:443", True, "hello you", 403, "certificate"]
        assert status()["seen"] == "hello you"
        assert here.kubectl("get", "greeting", "one", "-o", "jsonpath={.spec.to}") == "you"

        apply(here, greeting("them"))
        eventually(lambda: status()["text"] == "hello them")
