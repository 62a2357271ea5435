"""Resource claims of pods: made, reserved, given back."""

from typing import Any

import pytest

from kvstack.agents.client.built_in import PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from kvstack.agents.controllers.workloads.resource_claims import (
    NoClaimError,
    ResourceClaimController,
)
from kvstack.agents.reconcile.plan import Create, Delete, Get, Patch, Update
from kvstack.apimachinery.objects.json_object import Object
from tests.agents.support.plans import Answer, drive, refusal, view_of

DEV = {"name": "dev", "resourceClaimTemplateName": "t"}
HELD = "resource.kubernetes.io/delete-protection"


def pod(*claims: Object, name: str = "p", node: str = "", phase: str = "Pending") -> Object:
    spec: Object = {"resourceClaims": list(claims), "containers": []}
    if node:
        spec["nodeName"] = node
    meta = {"name": name, "namespace": "a", "uid": f"uid of {name}"}
    return {"metadata": meta, "spec": spec, "status": {"phase": phase}}


def claim(name: str, *consumers: str, of: str = "", **status: Any) -> Object:
    meta: Object = {"name": name, "namespace": "a", "uid": f"uid of {name}"}
    if of:
        owner = {"kind": "Pod", "name": of, "uid": f"uid of {of}", "controller": True}
        meta["ownerReferences"] = [owner]
        meta["annotations"] = {"resource.kubernetes.io/pod-claim-name": "dev"}
    if consumers:
        rows = [{"resource": "pods", "name": each, "uid": f"uid of {each}"} for each in consumers]
        status["reservedFor"] = rows
    return {"metadata": meta, "spec": {}, "status": status}


TEMPLATE = {
    "metadata": {"name": "t", "namespace": "a"},
    "spec": {"metadata": {"labels": {"x": "y"}}, "spec": {"devices": {}}},
}


def with_claim(made: Object, name: str) -> Object:
    told = {"name": "dev", "resourceClaimName": name}
    return {**made, "status": {**made["status"], "resourceClaimStatuses": [told]}}


def run(key: str, *objects: Object, there: bool = True) -> list[Any]:
    """Carry a plan out; there: whether objects that the view lacks are on the server."""
    controller = ResourceClaimController()
    sorted_in: dict[Any, Any] = {PODS: [], RESOURCE_CLAIMS: [], RESOURCE_CLAIM_TEMPLATES: []}
    for each in objects:
        if "containers" in each["spec"]:
            sorted_in[PODS].append(each)
        elif "status" in each:
            sorted_in[RESOURCE_CLAIMS].append(each)
        else:
            sorted_in[RESOURCE_CLAIM_TEMPLATES].append(each)
    view = view_of(sorted_in, controller.indexes)

    def answer(action: Any) -> Answer:
        if isinstance(action, Get):
            found = {"metadata": {"name": action.name, "uid": f"uid of {action.name}"}}
            return found if there else refusal(404)
        if isinstance(action, Create):
            return {"metadata": {"name": "p-dev-12345"}}
        return action.obj if isinstance(action, Update) else {}

    asked, _ = drive(controller.reconcile(key, view, 0.0), answer)
    return [each for each in asked if not isinstance(each, Get)]


def test_a_claim_is_made_from_the_template_and_reported() -> None:
    created, applied = run("pod/a/p", pod(DEV), TEMPLATE)
    assert created.obj["metadata"]["generateName"] == "p-dev-"
    assert created.obj["metadata"]["labels"] == {"x": "y"}
    assert created.obj["metadata"]["ownerReferences"][0]["uid"] == "uid of p"
    assert isinstance(applied, Patch)
    body: Any = applied.body
    rows = [{"name": "dev", "resourceClaimName": "p-dev-12345"}]
    assert body["status"] == {"resourceClaimStatuses": rows}


def test_a_claim_that_the_status_does_not_tell_of_is_taken() -> None:
    [applied] = run("pod/a/p", pod(DEV), TEMPLATE, claim("made", of="p"))
    assert applied.body["status"]["resourceClaimStatuses"][0]["resourceClaimName"] == "made"


def test_long_names_are_cut_in_proportion() -> None:
    long = {"name": "d" * 40, "resourceClaimTemplateName": "t"}
    created, _ = run(f"pod/a/{'p' * 60}", pod(long, name="p" * 60), TEMPLATE)
    generated = created.obj["metadata"]["generateName"]
    assert generated == f"{'p' * 33}-{'d' * 22}"


def test_without_its_template_a_claim_cannot_be_made() -> None:
    text = 'resource claim template "t": resourceclaimtemplate.resource.k8s.io "t" not found'
    with pytest.raises(NoClaimError, match=text):
        run("pod/a/p", pod(DEV))


def test_a_bound_pod_has_its_allocated_claim_reserved() -> None:
    bound = with_claim(pod(DEV, node="n"), "c")
    [reserved] = run("pod/a/p", bound, claim("c", of="p", allocation={"x": 1}))
    assert reserved.subresource == "status"
    consumer = {"resource": "pods", "name": "p", "uid": "uid of p"}
    assert reserved.obj["status"]["reservedFor"] == [consumer]
    assert run("pod/a/p", bound, claim("c", "p", of="p", allocation={"x": 1})) == []
    assert run("pod/a/p", bound, claim("c", of="p")) == []
    created, _applied = run("pod/a/p", bound, claim("c", of="q"), TEMPLATE)
    assert isinstance(created, Create)


def test_the_last_consumer_takes_the_allocation_along() -> None:
    held = claim("c", "p", "q", allocation={"x": 1})
    held["metadata"]["finalizers"] = [HELD, "other"]
    [changed] = run("claim/a/c", held, pod(DEV, phase="Succeeded"), pod(DEV, name="q"))
    assert [each["name"] for each in changed.obj["status"]["reservedFor"]] == ["q"]
    assert "allocation" in changed.obj["status"]
    ended = pod(DEV, name="q", phase="Failed")
    freed, let_go = run("claim/a/c", held, pod(DEV, phase="Succeeded"), ended)
    assert freed.obj["status"] == {}
    assert let_go.obj["metadata"]["finalizers"] == ["other"]


def test_a_consumer_that_the_view_lacks_is_asked_for() -> None:
    assert run("claim/a/c", claim("c", "p"), there=True) == []
    [changed] = run("claim/a/c", claim("c", "p"), there=False)
    assert changed.obj["status"] == {}


def test_a_generated_claim_goes_with_its_ended_pod() -> None:
    assert run("claim/a/c", claim("c", of="p"), pod(DEV)) == []
    [deleted] = run("claim/a/c", claim("c", of="p"), pod(DEV, phase="Succeeded"))
    assert deleted == Delete(RESOURCE_CLAIMS, "a", "c", "uid of c")


def test_a_deleted_claim_that_nobody_uses_is_let_go() -> None:
    held = claim("c", allocation={"x": 1})
    held["metadata"] |= {"finalizers": [HELD], "deletionTimestamp": "2027-01-15T08:00:00Z"}
    freed, let_go = run("claim/a/c", held)
    assert freed.obj["status"] == {}
    assert let_go.obj["metadata"]["finalizers"] == []
