"""metrics.k8s.io: lists, selectors, Tables, and what is refused."""

from typing import Any

import orjson
import pytest

from kvstack.agents.client.object_store import ObjectStore
from kvstack.agents.metrics.points import Points
from kvstack.agents.metrics.readings import ContainerUsage, Reading, Usage
from kvstack.agents.metrics.resource_api import ResourceApi, usage_text
from kvstack.apimachinery.objects import quantity
from tests.support.clocks import HandClock

NOW_MS = 1_700_000_000_000
BASE = "/apis/metrics.k8s.io/v1beta1"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def pod(namespace: str, name: str, node: str, **labels: str) -> dict[str, Any]:
    meta = {"namespace": namespace, "name": name, "labels": labels}
    return {"metadata": meta, "spec": {"nodeName": node}}


def used(
    namespace: str, name: str, time_s: int, cpu_s: float, container: str = "c"
) -> ContainerUsage:
    usage = Usage(NOW_MS + time_s * 1000, NOW_MS - 10**6, int(cpu_s * 1e9), 3 << 20)
    return ContainerUsage(namespace, name, container, usage)


@pytest.fixture
def api() -> ResourceApi:
    nodes, pods = ObjectStore(), ObjectStore()
    for name in ("n2", "n1", "silent"):
        nodes.set({"metadata": {"name": name, "labels": {"name": name}}})
    for each in (
        pod("d", "web", "n1", app="web"),
        pod("d", "db", "n1", app="db"),
        pod("a", "one", "n2"),
        pod("d", "new", "n2", app="web"),
    ):
        pods.set(each)
    points = Points(15)
    for time_s in (1, 16):
        node = Usage(NOW_MS + time_s * 1000, 0, time_s * 10**9, 1000)
        points.take(
            "n1",
            Reading(
                node,
                [
                    used("d", "web", time_s, time_s / 2),
                    used("d", "web", time_s, time_s / 4, "side"),
                    used("d", "db", time_s, time_s / 1000),
                    used("a", "one", time_s, time_s * 9),  # a pod of another node
                ],
            ),
        )
        points.take("n2", Reading(node, [used("a", "one", time_s, time_s / 10)]))
    return ResourceApi(points, nodes, pods, HandClock(NOW_MS / 1000))


def ask(api: ResourceApi, path: str, accept: str = "", **query: str) -> tuple[int, Any]:
    found = api.answer(
        "GET", f"{BASE}{path}", {name: [value] for name, value in query.items()}, accept
    )
    assert found.content_type == "application/json"
    return found.code, orjson.loads(found.body)


def names(found: tuple[int, Any]) -> list[str]:
    code, body = found
    assert code == 200
    return [each["metadata"]["name"] for each in body["items"]]


def test_one_pod(api: ResourceApi) -> None:
    code, found = ask(api, "/namespaces/d/pods/web")
    assert code == 200
    assert found == {
        "kind": "PodMetrics",
        "apiVersion": "metrics.k8s.io/v1beta1",
        "metadata": {
            "name": "web",
            "namespace": "d",
            "creationTimestamp": "2023-11-14T22:13:20Z",
            "labels": {"app": "web"},
        },
        "timestamp": "2023-11-14T22:13:36Z",
        "window": "15s",
        "containers": [
            {"name": "c", "usage": {"cpu": "500m", "memory": "3Mi"}},
            {"name": "side", "usage": {"cpu": "250m", "memory": "3Mi"}},
        ],
    }


def test_lists_are_sorted_and_without_what_is_not_measured(api: ResourceApi) -> None:
    assert names(ask(api, "/nodes")) == ["n1", "n2"]
    assert names(ask(api, "/pods")) == ["one", "db", "web"]
    assert names(ask(api, "/namespaces/d/pods")) == ["db", "web"]
    assert names(ask(api, "/namespaces/none/pods")) == []
    assert ask(api, "/pods")[1]["kind"] == "PodMetricsList"


def test_only_its_own_node_speaks_for_a_pod(api: ResourceApi) -> None:
    _, found = ask(api, "/namespaces/a/pods/one")
    assert found["containers"][0]["usage"]["cpu"] == "100m"


def test_selectors(api: ResourceApi) -> None:
    assert names(ask(api, "/namespaces/d/pods", labelSelector="app=web")) == ["web"]
    assert names(ask(api, "/nodes", labelSelector="name!=n1")) == ["n2"]
    assert names(ask(api, "/pods", fieldSelector="metadata.namespace=a")) == ["one"]
    code, found = ask(api, "/pods", fieldSelector="spec.nodeName=n1")
    assert (code, found["message"]) == (400, "field label not supported: spec.nodeName")
    assert ask(api, "/pods", labelSelector="a in (")[0] == 400


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/nodes/none", 'nodes "none" not found'),
        ("/nodes/silent", 'nodemetrics.metrics.k8s.io "silent" not found'),
        ("/namespaces/d/pods/none", 'pods "none" not found'),
        ("/namespaces/d/pods/new", 'podmetrics.metrics.k8s.io "d/new" not found'),
        ("/jobs", "the server could not find the requested resource"),
        ("/nodes/n1/status", "the server could not find the requested resource"),
    ],
)
def test_what_is_not_there(api: ResourceApi, path: str, message: str) -> None:
    code, found = ask(api, path)
    assert (code, found["message"]) == (404, message)


def test_only_reading_is_served(api: ResourceApi) -> None:
    found = api.answer("DELETE", f"{BASE}/namespaces/d/pods/web", {}, "")
    assert found.code == 405
    assert b'delete is not supported on resources of kind \\"pods.metrics' in found.body
    assert ask(api, "/pods", watch="true")[0] == 405


def test_tables(api: ResourceApi) -> None:
    _, found = ask(api, "/namespaces/d/pods", TABLE)
    assert [each["name"] for each in found["columnDefinitions"]] == [
        "Name",
        "cpu",
        "memory",
        "Window",
    ]
    assert [each["cells"] for each in found["rows"]] == [
        ["db", "1m", "3Mi", "15s"],
        ["web", "750m", "6Mi", "15s"],
    ]
    assert found["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    _, found = ask(api, "/nodes/n1", TABLE, includeObject="None")
    assert found["rows"] == [{"cells": ["n1", "1", "1k", "15s"]}]


@pytest.mark.parametrize(
    "nano", [0, 1, 999, 1000, 250_000_000, 249_993_933, 10**9, 64 * 10**9, 10**12, 5 * 10**15]
)
def test_cores_are_in_canonical_form(nano: int) -> None:
    assert usage_text(nano, 0)["cpu"] == quantity.canonical(f"{nano}n")


@pytest.mark.parametrize("kib", [1, 4, 1023, 1024, 18752, 3 << 20, (1 << 40) + 4])
def test_bytes_are_in_canonical_form(kib: int) -> None:
    assert usage_text(0, kib << 10)["memory"] == quantity.canonical(f"{kib}Ki")
    assert usage_text(0, 1000 * kib + 1)["memory"] == quantity.canonical(str(1000 * kib + 1))


def test_json_is_what_there_is(api: ResourceApi) -> None:
    assert ask(api, "/nodes", "application/vnd.kubernetes.protobuf, */*")[0] == 200
    assert ask(api, "/nodes", "application/vnd.kubernetes.protobuf")[0] == 406


def test_discovery(api: ResourceApi) -> None:
    _, found = ask(api, "")
    assert [(each["name"], each["namespaced"], each["kind"]) for each in found["resources"]] == [
        ("nodes", False, "NodeMetrics"),
        ("pods", True, "PodMetrics"),
    ]
