"""Writes that a real kube-apiserver answered: whom it recorded as the owner of what, and how."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.schema.decode import normalize
from kvstack.apimachinery.schema.load import load
from kvstack.apimachinery.schema.resource import Resource
from kvstack.apiserver.apply.apply import on_apply
from kvstack.apiserver.apply.endpoint import Endpoint
from kvstack.apiserver.apply.managed_fields import name_from_user_agent
from kvstack.apiserver.apply.scale import parent_entries, scale_entries
from kvstack.apiserver.apply.update import on_create, on_update
from tests.apimachinery.schema.recordings import lines
from tests.apiserver.apply.endpoints import endpoint_of

TABLE = load()

SET_LATER = {
    "ClusterRole": ("rules",),
    "Job": (
        "metadata.labels",
        "spec.selector",
        "spec.template.metadata.labels",
    ),
    "Namespace": ("spec.finalizers",),
    "Node": ("spec.taints",),
    "PersistentVolume": ("metadata.finalizers",),
    "PersistentVolumeClaim": ("metadata.finalizers", "spec.dataSource", "spec.dataSourceRef"),
    "Pod": (
        "spec.preemptionPolicy",
        "spec.priority",
        "spec.serviceAccount",
        "spec.serviceAccountName",
        "spec.tolerations",
    ),
    "Service": ("spec.clusterIP", "spec.clusterIPs", "spec.ipFamilies", "spec.ipFamilyPolicy"),
    "VolumeAttributesClass": ("metadata.finalizers",),
}
"""What admission and the kinds put in after the managers were recorded, on creation."""

CHANGED_LATER = frozenset(
    [
        "CertificateSigningRequest.status.conditions[].lastTransitionTime",
        "CertificateSigningRequest.status.conditions[].lastUpdateTime",
        "FlowSchema.spec.matchingPrecedence",
        "Namespace.metadata.labels.kubernetes.io/metadata.name",
        "Node.spec.taints[]",
        "Secret.stringData",
        "Service.spec.ports[].targetPort",
    ]
)
"""What defaults, admission and the kinds have made of an applied object."""

LEFT_OUT = {
    "crud-status-core-v1-services": {1: "node ports are allocated"},
    "crud-status-apps-v1-daemonsets": {
        11: "the template generation of the patch is put back",
        12: "the template generation of the patch is put back",
        13: "follows from 11",
        14: "follows from 11",
        15: "the template generation of the patch is put back",
    },
    "patch-pods": {
        27: "the image that the patch changes is put back",
        34: "the image that the patch changes is put back",
        36: "the label that the patch adds is put back",
    },
    "updates/status/pod-minimal": {
        20: "the observed generation is set by the kind",
        141: "the observed generation is set by the kind",
    },
    "updates/workloads/job-manual/spec.template": {1: "labels are added to those sent"},
    "updates/network/service-loadbalancer/spec.allocateLoadBalancerNodePorts": {
        2: "node ports are given back",
        3: "node ports are given back",
    },
    "defaults/pods/pod-containers/spec.volumes[2].emptyDir.mode": dict.fromkeys(
        range(2, 8), "the mode is dropped: its gate is off"
    ),
}
"""Steps whose answer does not show the object that the managers were recorded for."""

SERVERS_OWN = frozenset(
    [
        "creationTimestamp",
        "deletionTimestamp",
        "generation",
        "managedFields",
        "resourceVersion",
        "selfLink",
        "uid",
    ]
)

REPLICAS = ("spec", "replicas")


class Player:
    """Plays one conversation: keeps what was answered, and writes it again."""

    def __init__(self) -> None:
        self.live: dict[str, Object] = {}
        self.compared = 0

    def play(self, step: dict[str, Any]) -> None:
        where = step["object"]
        if step["write"] == "delete":
            self.live.pop(where, None)
            return
        if step["write"] == "read":
            if "scaled" in step:
                self._compare_scaled(where, step["answer"])
            self.live[where] = step["answer"]
            return
        group, version, resource, _, _ = where.split("/")
        row = TABLE.resource(group, version, resource)
        assert row is not None
        made = self._write(step, row, where)
        if made is not None and "dry" not in step:
            self.live[where] = made

    def _write(self, step: dict[str, Any], row: Resource, where: str) -> Object | None:
        subresource = step.get("subresource", "")
        endpoint = endpoint_of(row, subresource)
        manager = step["manager"]
        if isinstance(manager, dict):
            manager = name_from_user_agent(manager["user-agent"])
        if subresource == "scale":
            return self._scale(step, endpoint, row, where, manager)
        if step["write"] == "apply":
            return self._apply(step, endpoint, self.live.get(where), manager)
        answer = step["answer"]
        new = copy.deepcopy(answer)
        expected = new["metadata"].pop("managedFields", [])
        if "given" in step:
            new["metadata"]["managedFields"] = step["given"]
        live = None if step["write"] == "create" else self.live[where]
        if "whole" in step and "sent" in step:
            _take_back(new, normalize(step["sent"], endpoint.type))
        if live is None:
            on_create(endpoint, new, manager, _time(expected))
        else:
            on_update(endpoint, live, new, manager, _time(expected))
        assert new["metadata"].get("managedFields", []) == expected
        assert _texts(new) == _texts(answer)
        self.compared += 1
        return answer if live is None or "managedFields" in answer["metadata"] else new

    def _apply(
        self, step: dict[str, Any], endpoint: Endpoint, live: Object | None, manager: str
    ) -> Object | None:
        sent, force = step["sent"], step.get("force", False)
        self.compared += 1
        if "refused" in step:
            with pytest.raises(ApiError) as refusal:
                on_apply(endpoint, live, sent, manager, "2026-01-01T00:00:00Z", force=force)
            _compare_refusal(refusal.value, step["refused"])
            return None
        answer: Object = step["answer"]
        expected = answer["metadata"].get("managedFields", [])
        applied = on_apply(endpoint, live, sent, manager, _time(expected), force=force)
        assert applied["metadata"].get("managedFields", []) == expected
        assert _texts(applied) == _texts(answer)
        decoded = normalize(applied, endpoint.type)
        for name in SERVERS_OWN & decoded["metadata"].keys():
            del decoded["metadata"][name]
        lost = set(_lost(decoded, answer, endpoint.kind))
        assert lost - CHANGED_LATER == set()
        return answer

    def _scale(
        self, step: dict[str, Any], endpoint: Endpoint, row: Resource, where: str, manager: str
    ) -> Object | None:
        parent = self.live[where]
        paths = {row.group_version: REPLICAS}
        entries = parent["metadata"].get("managedFields", [])
        live = {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {"uid": "u", "managedFields": scale_entries(entries, paths)},
            "spec": {"replicas": parent["spec"]["replicas"]},
            "status": {"replicas": 0},
        }
        if step["write"] == "apply":
            step = {**step, "answer": {**step.get("answer", {}), "metadata": {}}}
            self.compared += 1
            if "refused" in step:
                with pytest.raises(ApiError) as refusal:
                    on_apply(endpoint, live, step["sent"], manager, "", force="force" in step)
                _compare_refusal(refusal.value, step["refused"])
                return None
            new = on_apply(
                endpoint, live, step["sent"], manager, "2026-01-01T00:00:00Z", force=True
            )
        else:
            new = {**live, "metadata": {}, "spec": step["answer"]["spec"]}
            on_update(endpoint, live, new, manager, "2026-01-01T00:00:00Z")
        scaled = new["metadata"].get("managedFields", [])
        after = copy.deepcopy(parent)
        after["spec"]["replicas"] = new["spec"]["replicas"]
        after["metadata"]["managedFields"] = parent_entries(
            entries, scaled, row.group_version, paths
        )
        return after

    def _compare_scaled(self, where: str, answer: Object) -> None:
        """What was worked out from the writes of a Scale is what a read then shows."""
        known = self.live[where]["metadata"]["managedFields"]
        assert known == answer["metadata"]["managedFields"]
        self.compared += 1


def _take_back(new: Object, sent: Object) -> None:
    """Make of an answer what was there when the managers were recorded."""
    for path in SET_LATER.get(new["kind"], ()):
        *parents, last = path.split(".")
        at, was = new, sent
        for name in parents:
            at, was = at.setdefault(name, {}), was.get(name, {})
        if last in was:
            at[last] = was[last]
        else:
            at.pop(last, None)


def _time(entries: list[Object]) -> str:
    """Return when a write happened: nothing in its answer is later."""
    return max((each.get("time", "") for each in entries), default="")


def _texts(obj: Object) -> list[str]:
    """Return the sets of fields with the order of their members."""
    return [str(each["fieldsV1"]) for each in obj["metadata"].get("managedFields", [])]


def _compare_refusal(error: ApiError, refused: dict[str, Any]) -> None:
    assert (error.code, error.message) == (refused["code"], refused["message"])
    causes = error.status.get("details", {}).get("causes", [])
    # Their order is random.
    assert sorted(causes, key=str) == sorted(refused["causes"], key=str)


def _lost(applied: Any, answer: Any, path: str) -> Iterator[str]:
    """Yield the fields that an apply has made and the server answered differently."""
    if isinstance(applied, dict) and isinstance(answer, dict):
        for name, value in applied.items():
            if name in answer:
                yield from _lost(value, answer[name], f"{path}.{name}")
            elif value not in (None, {}, []):
                yield f"{path}.{name}"
    elif isinstance(applied, list) and isinstance(answer, list):
        if len(applied) != len(answer):
            yield f"{path}[]"
        for one, other in zip(applied, answer, strict=False):
            yield from _lost(one, other, f"{path}[]")
    elif applied != answer:
        yield path


CONVERSATIONS = list(lines("apply"))


@pytest.mark.parametrize(
    "conversation", CONVERSATIONS, ids=[each["name"] for each in CONVERSATIONS]
)
def test_managers_are_those_of_a_real_server(conversation: dict[str, Any]) -> None:
    player = Player()
    left_out = LEFT_OUT.get(conversation["name"], {})
    for step in conversation["steps"]:
        if step["step"] not in left_out:
            player.play(step)
        elif "answer" in step and "dry" not in step:
            player.live[step["object"]] = step["answer"]
    assert player.compared or left_out
