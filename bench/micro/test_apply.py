"""What managed fields cost per write: creates, updates and applies of a Deployment and a ConfigMap.

pytest bench/micro/test_apply.py --benchmark-only

The Deployment has two containers and three managers: its creator, the controller that writes its
status, an autoscaler.
"""

from collections.abc import Callable

import orjson
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.load import load
from kvstack.apimachinery.schema.resource import Resource
from kvstack.apiserver.apply.apply import on_apply
from kvstack.apiserver.apply.endpoint import Endpoint
from kvstack.apiserver.apply.update import on_create, on_update

NOW = "2026-01-01T00:00:00Z"
Change = Callable[[Object], object]


def _row(group: str, name: str) -> Resource:
    row = load().resource(group, "v1", name)
    assert row is not None
    return row


DEPLOYMENT = _row("apps", "deployments").type
DEPLOYMENTS = Endpoint(DEPLOYMENT, "apps/v1", "Deployment", reset_fields=(("status",),))
STATUS = Endpoint(
    DEPLOYMENT, "apps/v1", "Deployment", subresource="status", reset_fields=(("spec",),)
)
CONFIG_MAPS = Endpoint(_row("", "configmaps").type, "v1", "ConfigMap")


def _container(name: str) -> Object:
    return {
        "name": name,
        "image": "img:1",
        "ports": [{"containerPort": port, "protocol": "TCP"} for port in (80, 443)],
        "env": [{"name": variable, "value": "1"} for variable in "AB"],
        "resources": {"limits": {"cpu": "1"}},
        "volumeMounts": [{"name": "v", "mountPath": "/x"}],
        "livenessProbe": {"httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }


def _deployment() -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "d", "uid": "u", "labels": {"app": "web"}},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {
                    "containers": [_container("a"), _container("b")],
                    "volumes": [{"name": "v", "emptyDir": {}}],
                    "restartPolicy": "Always",
                    "terminationGracePeriodSeconds": 30,
                    "dnsPolicy": "ClusterFirst",
                    "securityContext": {},
                    "schedulerName": "default-scheduler",
                },
            },
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
            },
            "revisionHistoryLimit": 10,
            "progressDeadlineSeconds": 600,
        },
        "status": {"replicas": 3, "conditions": [{"type": "Available", "status": "True"}]},
    }


def _copy(obj: Object) -> Object:
    copied: Object = orjson.loads(orjson.dumps(obj))
    return copied


def _changed(obj: Object, change: Change) -> Object:
    new = _copy(obj)
    change(new)
    return new


def _scale(obj: Object) -> None:
    obj["spec"]["replicas"] += 1


def _roll_out(obj: Object) -> None:
    obj["spec"]["template"]["spec"]["containers"][0]["image"] = "img:2"


def _add_container(obj: Object) -> None:
    obj["spec"]["template"]["spec"]["containers"].append(_container("c"))


def _nothing(_obj: Object) -> None:
    return None


def _live() -> Object:
    live = _deployment()
    on_create(DEPLOYMENTS, live, "kubectl-create", NOW)
    observed = _changed(live, lambda obj: obj["status"].update(replicas=4))
    on_update(STATUS, live, observed, "kube-controller-manager", NOW)
    scaled = _changed(observed, _scale)
    on_update(DEPLOYMENTS, observed, scaled, "autoscaler", NOW)
    assert len(scaled["metadata"]["managedFields"]) == 3
    return _copy(scaled)


@pytest.mark.parametrize("change", [_nothing, _scale, _roll_out, _add_container])
def test_update_a_deployment(benchmark: BenchmarkFixture, change: Change) -> None:
    live = _live()
    new = _changed(live, change)
    entries = new["metadata"]["managedFields"]

    def update() -> None:
        new["metadata"]["managedFields"] = entries
        on_update(DEPLOYMENTS, live, new, "someone", NOW)

    benchmark(update)
    assert new["metadata"]["managedFields"]


def test_create_a_deployment(benchmark: BenchmarkFixture) -> None:
    new = _deployment()

    def create() -> None:
        new["metadata"].pop("managedFields", None)
        on_create(DEPLOYMENTS, new, "someone", NOW)

    benchmark(create)
    assert new["metadata"]["managedFields"]


@pytest.mark.parametrize("change", [_nothing, _roll_out])
def test_apply_a_deployment(benchmark: BenchmarkFixture, change: Change) -> None:
    config = _deployment()
    del config["status"], config["metadata"]["uid"]
    live = on_apply(DEPLOYMENTS, _live(), config, "argo", NOW, force=True)
    change(config)
    made = benchmark(on_apply, DEPLOYMENTS, live, config, "argo", NOW, force=True)
    assert made["spec"]["replicas"] == 3


def test_update_a_config_map(benchmark: BenchmarkFixture) -> None:
    data = {f"key{each}": "v" * 50 for each in range(5)}
    live = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data}
    on_create(CONFIG_MAPS, live, "creator", NOW)
    new = _changed(live, lambda obj: obj["data"].update(key1="w"))
    entries = new["metadata"]["managedFields"]

    def update() -> None:
        new["metadata"]["managedFields"] = entries
        on_update(CONFIG_MAPS, live, new, "someone", NOW)

    benchmark(update)
    assert len(new["metadata"]["managedFields"]) == 2
