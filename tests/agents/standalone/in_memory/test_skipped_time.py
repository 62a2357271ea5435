"""Time in which looks around are left out, and time in which none is: the same comes of both.

The story touches what is only found by looking around: nodes that fall silent, pods whose node is
gone, kinds that are defined while the cluster runs, and objects of the server that are taken away.
"""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kvstack.agents.standalone.in_memory import cluster_time
from kvstack.agents.standalone.in_memory.background import (
    BackgroundCluster,
    Settings,
    make_authorities,
)
from kvstack.apimachinery.attributes import PRIVILEGED, User
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.virtual_time.loop import VirtualLoop

pytestmark = pytest.mark.slow


BEGAN_MS = 1_767_225_605_000  # a few seconds into 2026
NOT_COMPARED = ("/leases/", "/events/")
RANDOM = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}$")
CHANCE = (
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "uid"),
    (re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}\b"), "-name"),
    (re.compile(r'ort": [1-6]\d{4}\b'), 'ort": 0'),  # of the API server
)


class World:
    """One cluster, whose users act on its own loop: what they do takes no time."""

    def __init__(self, cluster: BackgroundCluster) -> None:
        self.cluster = cluster
        agents = cluster._live.agents
        self.api = agents.api(User("admin", groups=(PRIVILEGED,)), "test")

    def do(self, method: str, path: str, body: Any = None) -> Any:
        data = b"" if body is None else json.dumps(body).encode()
        return self.cluster.call(self.api.call(method, path, body=data))

    def later(self, seconds: float) -> None:
        self.cluster.clock.advance(seconds)

    def contents(self) -> Counter[str]:
        """Return all objects but for what chance gave them; times are compared."""
        found: Counter[str] = Counter()
        for kv in self.cluster.rows().records:
            key = kv.key.decode()
            if kv.value.startswith(b"{") and not any(each in key for each in NOT_COMPARED):
                found[f"{RANDOM.sub('', key)} {_display_form(json.loads(kv.value))}"] += 1
        return found


def _display_form(obj: Object) -> str:
    meta = {
        name: value
        for name, value in obj["metadata"].items()
        if name in ("creationTimestamp", "deletionTimestamp", "labels", "annotations")
    }
    status = obj.get("status") or {}
    text = json.dumps([meta, obj.get("spec"), status.get("phase"), status.get("conditions")])
    for pattern, shown in CHANCE:
        text = pattern.sub(shown, text)
    return text


def definition() -> Object:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "ships", "singular": "ship", "kind": "Ship"}
    spec = {"group": "sea.example", "scope": "Namespaced", "names": names, "versions": [version]}
    return {"metadata": {"name": "ships.sea.example"}, "spec": spec}


def cron_job() -> Object:
    container = {"name": "c", "image": "i"}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    job = {"spec": {"template": template, "ttlSecondsAfterFinished": 400}}
    return {"metadata": {"name": "often"}, "spec": {"schedule": "*/7 * * * *", "jobTemplate": job}}


def play(world: World) -> list[Counter[str]]:
    """Return what there was after each part of the story."""
    found = []
    world.do("POST", "/apis/batch/v1/namespaces/default/cronjobs", cron_job())
    world.later(63.7)
    # Nobody reports for it: it falls silent, and its pod is evicted.
    world.do("POST", "/api/v1/nodes", {"metadata": {"name": "mute"}})
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}
    body = {"metadata": {"name": "mute"}, "status": {"conditions": [ready]}}
    world.do("PUT", "/api/v1/nodes/mute/status", body)
    pod = {"metadata": {"name": "lost"}, "spec": {"nodeName": "mute", "containers": [C]}}
    world.do("POST", "/api/v1/namespaces/default/pods", pod)
    world.later(41.2)
    found.append(world.contents())
    world.later(90.0)
    found.append(world.contents())
    world.later(700.0)
    found.append(world.contents())
    # A pod whose node is gone.
    world.do("DELETE", "/api/v1/nodes/mute")
    world.later(111.3)
    found.append(world.contents())
    # A kind of which the garbage collector does not know yet.
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    world.do("POST", definitions, definition())
    world.later(7.9)
    ships = "/apis/sea.example/v1/namespaces/default/ships"
    kind = {"apiVersion": "sea.example/v1", "kind": "Ship"}
    owner = world.do("POST", ships, {**kind, "metadata": {"name": "owner"}})
    reference = {**kind, "name": "owner", "uid": owner["metadata"]["uid"]}
    owned = {"metadata": {"name": "owned", "ownerReferences": [reference]}}
    world.do("POST", "/api/v1/namespaces/default/configmaps", owned)
    world.later(33.0)
    world.do("DELETE", f"{ships}/owner")
    world.later(61.0)
    found.append(world.contents())
    # What the server keeps, and puts back at its time.
    for path in (
        "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/probes",
        "/api/v1/namespaces/default/services/kubernetes",
        "/api/v1/namespaces/kube-system/configmaps/kube-apiserver-legacy-service-account-token-tracking",
    ):
        world.do("DELETE", path)
        world.later(12.6)
    found.append(world.contents())
    world.later(2_000.0)
    found.append(world.contents())
    return found


def differences(one: list[Counter[str]], other: list[Counter[str]]) -> dict[int, Any]:
    """Return what only one of two stories has, by part."""
    parts = enumerate(zip(one, other, strict=True))
    return {at: (dict(a - b), dict(b - a)) for at, (a, b) in parts if a != b}


C = {"name": "c", "image": "i"}


def test_what_is_left_out_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_time, "began_now_ms", lambda _: BEGAN_MS)
    make_authorities(keys := tmp_path / "keys")
    stories: list[list[Counter[str]]] = []
    rounds: list[int] = []
    for skips in (True, False):
        settings = Settings(1, clock="paused", seed=3, skips=skips)
        directory = tmp_path / str(len(stories))
        with BackgroundCluster(directory, settings, authorities=keys) as cluster:
            cluster.settle()
            stories.append(play(World(cluster)))
            assert isinstance(cluster._loop, VirtualLoop)
            rounds.append(cluster._loop.rounds)
    assert differences(*stories) == {}
    assert rounds[0] < rounds[1] / 2
