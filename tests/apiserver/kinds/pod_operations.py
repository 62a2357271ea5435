"""Bindings and evictions, for the replay of recorded requests."""

from copy import deepcopy
from typing import Final

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.kinds.pods.deletion import grace_period
from kvstack.apiserver.kinds.pods.subresources import binding, eviction
from tests.apiserver.kinds.replay import Operations, Reply, Request

_SUCCESS: Final = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Success",
    "code": 201,
}


def bind(request: Request) -> Reply | None:
    """Answer a POST of a Binding; preconditions are the store's."""
    body = request.step["body"]
    if body.get("kind") != "Binding" or "Precondition" in request.step["answer"].get("message", ""):
        return None
    binding.check_binding(body, request.target.name)
    pod = deepcopy(request.stored or {})
    binding.bind(pod, body, request.now)
    is_dry_run = "dryRun" in request.target.query
    return Reply(201, _SUCCESS, [], {} if is_dry_run else {request.target.key: pod})


def evict(request: Request) -> Reply | None:
    """Answer a POST of an Eviction; preconditions are the store's."""
    body, pod = request.step["body"], request.stored
    if body.get("apiVersion", "policy/v1") not in {"policy/v1", "policy/v1beta1"}:
        return None
    dry_run = request.target.query.get("dryRun", [])
    options = eviction.delete_options(body, request.target.name, dry_run)
    if pod is None or options.get("preconditions"):
        return None
    changed = {request.target.key: _ending(pod, options.get("gracePeriodSeconds"), request.now)}
    if not eviction.ignores_budgets(pod):
        budgets = [
            each
            for (_, resource, namespace, _), each in request.known.items()
            if resource == "poddisruptionbudgets" and namespace == request.target.namespace
        ]
        decision = eviction.decide(pod, eviction.covering_budgets(pod, budgets), request.now)
        if decision.budget is not None:
            key = ("policy", "poddisruptionbudgets", request.target.namespace, decision.budget_name)
            changed[key] = decision.budget
    return Reply(201, _SUCCESS, [], {} if options.get("dryRun") else changed)


def _ending(pod: Object, seconds: int | None, now: str) -> Object:
    ending = deepcopy(pod)
    eviction.mark_evicted(ending, now)
    if "deletionTimestamp" not in ending["metadata"]:
        grace = grace_period(ending, seconds)
        ending["metadata"] |= {
            "deletionTimestamp": now,
            "deletionGracePeriodSeconds": grace,
            "generation": ending["metadata"]["generation"] + 1,
        }
    return ending


POD_OPERATIONS: Final[Operations] = {
    ("", "pods", "binding"): bind,
    ("", "pods", "eviction"): evict,
}
