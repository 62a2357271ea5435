"""The history of a DaemonSet's templates: one revision for each, the current one the newest."""

from collections.abc import Generator, Sequence
from typing import Final, NamedTuple

from kvstack.agents.client.built_in import CONTROLLER_REVISIONS, DAEMON_SETS, PODS
from kvstack.agents.controllers.workloads import history
from kvstack.agents.controllers.workloads.hashes import template_hash
from kvstack.agents.controllers.workloads.history import REVISION_LABEL
from kvstack.agents.reconcile.plan import (
    Create,
    Delete,
    Get,
    Outcome,
    Patch,
    Step,
    Update,
    do,
    do_all,
)
from kvstack.apimachinery.objects.json_object import Object

_MERGE: Final = "application/merge-patch+json"


class Revisions(NamedTuple):
    """The revisions of a DaemonSet."""

    current: Object
    old: list[Object]
    pods: list[Object]
    """With their current labels."""


def find(
    daemon_set: Object, revisions: Sequence[Object], pods: list[Object]
) -> Generator[Step, list[Outcome], Revisions]:
    """Return the revision of the template, made if need be, and all others."""
    labelled = yield from _all_labelled(revisions)
    data = history.data_of(daemon_set["spec"]["template"])
    same = [each for each in labelled if history.is_same(each["data"], data)]
    old = [each for each in labelled if not history.is_same(each["data"], data)]
    number = history.next_number(old)
    if not same:
        return Revisions((yield from _create(daemon_set, data, number)), old, pods)
    current = history.ordered(same)[-1]
    if len(same) > 1:
        pods = yield from _keep_one(current, same, pods)
    if current["revision"] < number:
        current = yield from do(Update(CONTROLLER_REVISIONS, {**current, "revision": number}))
    return Revisions(current, old, pods)


def hash_of(revision: Object) -> str:
    """Return the hash that pods of a revision are labelled with."""
    hashed: str = (revision["metadata"].get("labels") or {}).get(REVISION_LABEL, "")
    return hashed


def surplus(old: Sequence[Object], pods: Sequence[Object], limit: int) -> list[Delete]:
    """Return the deletions of the oldest revisions beyond a limit that no pod has."""
    live = set(map(_label_of, pods))
    unused = [each for each in history.ordered(old) if hash_of(each) not in live]
    return [
        Delete(CONTROLLER_REVISIONS, each["metadata"]["namespace"], each["metadata"]["name"])
        for each in unused[: max(len(old) - limit, 0)]
    ]


def _all_labelled(
    revisions: Sequence[Object],
) -> Generator[Step, list[Outcome], list[Object]]:
    """Label the revisions that were adopted without the label of their hash."""
    labelled = [each for each in revisions if hash_of(each)]
    updates = []
    for each in revisions:
        if not hash_of(each):
            meta = each["metadata"]
            labels = {**(meta.get("labels") or {}), REVISION_LABEL: meta["name"]}
            changed = {**each, "metadata": {**meta, "labels": labels}}
            updates.append(Update(CONTROLLER_REVISIONS, changed))
    return [*labelled, *(yield from do_all(updates))]


def _keep_one(
    kept: Object, same: Sequence[Object], pods: Sequence[Object]
) -> Generator[Step, list[Outcome], list[Object]]:
    """Keep one of the revisions of a template, and return the pods, those of it with its label."""
    hashed = hash_of(kept)
    doubles = {hash_of(each) for each in same} - {hashed}
    others = [pod for pod in pods if _label_of(pod) in doubles]
    labelled = yield from do_all(
        [
            Patch(
                PODS,
                pod["metadata"]["namespace"],
                pod["metadata"]["name"],
                {"metadata": {"labels": {REVISION_LABEL: hashed}}},
                _MERGE,
            )
            for pod in others
        ]
    )
    yield from do_all(
        [
            Delete(CONTROLLER_REVISIONS, each["metadata"]["namespace"], each["metadata"]["name"])
            for each in same
            if each is not kept
        ]
    )
    return [*(pod for pod in pods if _label_of(pod) not in doubles), *labelled]


def _label_of(pod: Object) -> str:
    hashed: str = (pod["metadata"].get("labels") or {}).get(REVISION_LABEL, "")
    return hashed


def _create(
    daemon_set: Object, data: Object, number: int
) -> Generator[Step, list[Outcome], Object]:
    status = daemon_set.get("status") or {}
    meta = daemon_set["metadata"]
    collisions = status.get("collisionCount")
    hashed = template_hash(daemon_set["spec"]["template"], collisions)
    made = history.new_revision(daemon_set, hashed, REVISION_LABEL, data, number)
    [outcome] = yield [Create(CONTROLLER_REVISIONS, meta["namespace"], made)]
    if not outcome.is_conflict:
        return outcome.result()
    name = made["metadata"]["name"]
    found = yield from do(Get(CONTROLLER_REVISIONS, meta["namespace"], name))
    if history.is_same(found["data"], data):
        return found
    fresh = yield from do(Get(DAEMON_SETS, meta["namespace"], meta["name"]))
    status = fresh.get("status") or {}
    if status.get("collisionCount") == collisions:
        status = {**status, "collisionCount": (collisions or 0) + 1}
        yield from do(Update(DAEMON_SETS, {**fresh, "status": status}, "status"))
    return outcome.result()  # raises: the next sync takes another name
