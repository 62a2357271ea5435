"""What an informer holds once."""

import copy
from typing import Any

from kvstack.agents.client.api import Api, Event
from kvstack.agents.client.built_in import PODS
from kvstack.agents.client.in_process import InProcess
from kvstack.agents.client.informer import Informer
from kvstack.component.clock import SystemClock
from kvstack.component.http.serving.local_transport import LocalTransport
from tests.support.list_log import ListLog


def pod(name: str, version: str, status: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "a", "uid": name, "resourceVersion": version}
    return {"metadata": metadata, "spec": {"containers": [{"name": "c"}]}, "status": status}


def test_pods_that_become_ready_together_have_their_conditions_in_common() -> None:
    transport = InProcess(LocalTransport(), "")
    informer = Informer(Api(transport), PODS, SystemClock(), lambda: 0.5, ListLog())
    informer.replace([pod("x", "1", {}), pod("y", "2", {})], "2")
    ready = {"conditions": [{"type": "Ready", "lastTransitionTime": "12:00"}]}
    events = [
        Event("MODIFIED", pod(name, version, {**copy.deepcopy(ready), "podIP": ip}))
        for name, version, ip in (("x", "3", "1"), ("y", "4", "2"))
    ]
    informer.apply(events)
    x, y = informer.store.get("a/x"), informer.store.get("a/y")
    assert x is not None
    assert y is not None
    assert x["spec"] is y["spec"]
    assert x["status"]["conditions"] is y["status"]["conditions"]
    assert [each["status"] for each in (x, y)] == [{**ready, "podIP": ip} for ip in "12"]
