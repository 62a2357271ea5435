"""Deletes finished Jobs after their time to live, with their dependents."""

from collections.abc import Iterator, Sequence
from typing import Final

from kvstack.agents.client.built_in import JOBS
from kvstack.agents.client.object_store import key_of, split_key
from kvstack.agents.controllers.ownership import is_deleting
from kvstack.agents.controllers.workloads.jobs.state import end_condition
from kvstack.agents.controllers.workloads.pod_rules import seconds_of
from kvstack.agents.reconcile.plan import (
    Again,
    BaseController,
    Delete,
    Get,
    Identity,
    Plan,
    View,
    Watch,
)
from kvstack.apimachinery.objects.json_object import Object

_NAME: Final = "ttl-after-finished-controller"


class TtlAfterFinishedController(BaseController):
    """Deletes Jobs whose time is up."""

    identity = Identity(_NAME, _NAME, _NAME)

    def __init__(self) -> None:
        """Follow Jobs."""
        self.watches: Sequence[Watch] = (Watch(JOBS, _keys),)

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for one Job."""
        known = view.get(JOBS, key)
        if known is None:
            return None
        left_s = _left_s(known, now_s)
        if left_s is None:
            return None
        if left_s > 0:
            return Again(left_s)
        # Somebody may have given it more time meanwhile.
        namespace, name = split_key(key)
        [outcome] = yield [Get(JOBS, namespace, name)]
        if outcome.is_not_found:
            return None
        fresh = outcome.result()
        left_s = _left_s(fresh, now_s)
        if left_s is None:
            return None
        if left_s > 0:
            return Again(left_s)
        uid = fresh["metadata"]["uid"]
        [outcome] = yield [Delete(JOBS, namespace, name, uid=uid, propagation="Foreground")]
        if outcome.error is not None and not outcome.is_not_found:
            raise outcome.error
        return None


def _keys(old: Object | None, new: Object | None, view: View) -> Iterator[str]:
    if new is not None and _left_s(new, 0.0) is not None:
        yield key_of(new)


def _left_s(job: Object, now_s: float) -> float | None:
    """Return how many seconds a Job has left; None: it is not counted down."""
    ttl_s = job["spec"].get("ttlSecondsAfterFinished")
    end = end_condition(job)
    if ttl_s is None or is_deleting(job) or end is None:
        return None
    ended_s = seconds_of(end.get("lastTransitionTime")) or 0.0
    return float(ended_s + ttl_s - now_s)
