"""Scales, for the replay of recorded requests."""

from copy import deepcopy
from typing import Any, Final

from kvstack.apimachinery.schema.decode import normalize
from kvstack.apiserver.kinds.workloads.scales import scale_of, set_replicas
from tests.apiserver.kinds.replay import TABLE, Operations, Reply, Request, patched

_SCALE: Final = TABLE.types["io.k8s.api.autoscaling.v1.Scale"]


def scale(request: Request) -> Reply | None:
    """Answer a PUT or a patch of a Scale; preconditions are the store's."""
    body: Any = request.step["body"]
    patch = request.step.get("type")
    is_refused = request.step["status"] not in {200, 422}
    if request.stored is None or is_refused:
        return None
    owner = deepcopy(request.stored)
    if patch is not None:
        body = patched(scale_of(owner), body, _SCALE, patch)
    if not isinstance(body["spec"].get("replicas", 0), int):
        return None
    set_replicas(owner, body)
    context = request.context()
    request.strategy.prepare_update(owner, request.stored, context)
    assert not request.strategy.validate_update(owner, request.stored, context)
    is_dry_run = "dryRun" in request.target.query
    changed = {} if is_dry_run else {request.target.key: owner}
    return Reply(200, normalize(scale_of(owner), _SCALE), [], changed)


WORKLOAD_OPERATIONS: Final[Operations] = {
    ("apps", "deployments", "scale"): scale,
    ("apps", "replicasets", "scale"): scale,
    ("apps", "statefulsets", "scale"): scale,
    ("", "replicationcontrollers", "scale"): scale,
}
