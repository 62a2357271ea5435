"""One sync of a Deployment.

    scaling, or paused   sizes in proportion; no new ReplicaSet
    RollingUpdate        the new ReplicaSet grows as far as it may, else the old ones shrink
    Recreate             the old ones end, then the new one begins

What is written is kept, so that later steps of the same sync write on top of it.
"""

from collections.abc import Generator, Sequence
from typing import Final, TypeAlias

from kvstack.agents.client.built_in import DEPLOYMENTS, PODS, REPLICA_SETS
from kvstack.agents.controllers.ownership import CONTROLLER_INDEX, controller_of, is_deleting
from kvstack.agents.controllers.workloads.deployments import counts, revisions
from kvstack.agents.controllers.workloads.deployments import status as statuses
from kvstack.agents.reconcile.plan import (
    Again,
    Create,
    Delete,
    Get,
    Outcome,
    Record,
    Step,
    Update,
    View,
    do,
)
from kvstack.apimachinery.objects.core.pod_status import is_ended
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.go_numbers import NumberError, parse_int

Work: TypeAlias = Generator[Step, list[Outcome], None]

_RECREATE: Final = "Recreate"


class Rollout:
    """A Deployment with its ReplicaSets, while they are brought a step further."""

    def __init__(
        self, deployment: Object, sets: Sequence[Object], view: View, now_s: float
    ) -> None:
        """sets: those that the Deployment owns."""
        self._deployment = deployment
        self._view = view
        self._now_s = now_s
        self._new, self._old = revisions.split(deployment, sets)

    def run(self) -> Generator[Step, list[Outcome], Again | None]:
        """Bring the Deployment a step further; return when its deadline is to be checked."""
        if is_deleting(self._deployment):
            yield from self._sync_revision()
            yield from self._write_counts()
            return None
        yield from self._mark_paused()
        if self._deployment["spec"].get("paused"):
            yield from self._resize()
            return None
        if (target := _rollback_target(self._deployment)) is not None:
            yield from self._roll_back(target)
            return None
        yield from self._sync_revision()
        if self._is_resized():
            yield from self._resize()
            return None
        if self._deployment["spec"]["strategy"].get("type") == _RECREATE:
            yield from self._recreate()
        else:
            yield from self._roll()
        return (yield from self._write_progress())

    @property
    def _sets(self) -> list[Object]:
        return self._old if self._new is None else [*self._old, self._new]

    @property
    def _status(self) -> Object:
        return self._deployment.get("status") or {}

    # Strategies.

    def _roll(self) -> Work:
        if self._new is None:
            yield from self._create()
        assert self._new is not None
        bounds = counts.bounds(self._deployment)
        own = counts.size(self._new)
        if own > bounds.replicas:
            wanted = bounds.replicas
        else:
            wanted = counts.new_size(self._deployment, self._sets, own)
        if own not in (bounds.replicas, wanted):
            yield from self._scale(self._new, wanted)
            return
        if not (yield from self._shrink(self._new)):
            yield from self._clean_up_if_complete()

    def _recreate(self) -> Work:
        shrinking = counts.active(self._old)
        if shrinking:
            for each in shrinking:
                yield from self._scale(each, 0)
            return
        if self._has_old_pods():
            return
        if self._new is None:
            yield from self._create()
        assert self._new is not None
        yield from self._scale(self._new, counts.bounds(self._deployment).replicas)
        yield from self._clean_up_if_complete()

    def _shrink(self, new: Object) -> Generator[Step, list[Outcome], bool]:
        """Shrink the old sets as far as enough pods stay available; return whether any did."""
        bounds = counts.bounds(self._deployment)
        old = counts.active(self._old)
        missing = counts.size(new) - counts.available(new)
        spare = counts.total_size(self._sets) - bounds.least_available - missing
        if not old or spare <= 0 or not all(map(_is_observed, old)):
            return False
        sizes = {each["metadata"]["uid"]: counts.size(each) for each in old}
        is_known = True
        # Replicas that are not available go first: that costs nothing.
        for each in old:
            uid = each["metadata"]["uid"]
            if spare <= 0:
                break
            if counts.available(each) > sizes[uid]:
                is_known = (
                    False  # it is still scaling down, and will report its available pods later
                )
                break
            part = min(spare, sizes[uid] - counts.available(each))
            sizes[uid] -= part
            spare -= part
        surplus = sum(map(counts.available, (*old, new))) - bounds.least_available
        for each in old if is_known else ():
            uid = each["metadata"]["uid"]
            part = max(min(surplus, sizes[uid]), 0)
            sizes[uid] -= part
            surplus -= part
        has_shrunk = False
        for each in old:
            wanted = sizes[each["metadata"]["uid"]]
            if wanted != counts.size(each):
                yield from self._scale(each, wanted)
                has_shrunk = True
        return has_shrunk

    def _resize(self) -> Work:
        """Follow a change of the number of replicas, or of a paused Deployment."""
        yield from self._sync_revision()
        for each, wanted in self._resized():
            yield from self._scale(each, wanted, is_annotated=True)
        if self._deployment["spec"].get("paused"):
            yield from self._clean_up()
        yield from self._write_counts()

    def _resized(self) -> list[tuple[Object, int]]:
        """Return which sets get which size, whether they have it or not."""
        replicas = counts.bounds(self._deployment).replicas
        active = counts.active(self._sets)
        if len(active) <= 1:
            newest = self._new or (self._old[-1] if self._old else None)
            only = active[0] if active else newest
            if only is None or counts.size(only) == replicas:
                return []
            return [(only, replicas)]
        if self._new is not None and counts.is_saturated(self._deployment, self._new):
            return [(each, 0) for each in counts.active(self._old)]
        if counts.is_rolling(self._deployment):
            return counts.proportional(self._deployment, active)
        return []

    def _is_resized(self) -> bool:
        """Whether the number of replicas has changed since the sets were last annotated."""
        replicas = counts.bounds(self._deployment).replicas
        recorded_sizes = (
            counts.number_in(each, counts.DESIRED_REPLICAS) for each in counts.active(self._sets)
        )
        return any(each is not None and each != replicas for each in recorded_sizes)

    def _has_old_pods(self) -> bool:
        if any((each.get("status") or {}).get("replicas", 0) for each in self._old):
            return True
        return any(
            not is_ended(pod)
            for each in self._old
            for pod in self._view.by_index(PODS, CONTROLLER_INDEX, each["metadata"]["uid"])
        )

    # ReplicaSets.

    def _sync_revision(self) -> Work:
        """Bring annotations of the new set up to date, and the Deployment's revision."""
        new = self._new
        if new is None:
            return
        revision = revisions.max_revision(self._old) + 1
        annotations = revisions.new_set_annotations(self._deployment, new, revision)
        wanted_s = self._deployment["spec"].get("minReadySeconds", 0)
        if annotations is not None or new["spec"].get("minReadySeconds", 0) != wanted_s:
            meta = {**new["metadata"], **({"annotations": annotations} if annotations else {})}
            spec = {**new["spec"], "minReadySeconds": wanted_s}
            written = yield from do(Update(REPLICA_SETS, {**new, "metadata": meta, "spec": spec}))
            self._new = written
            return
        revision_text = (new["metadata"].get("annotations") or {}).get(revisions.REVISION, "")
        status = self._status
        if (
            statuses.deadline_s(self._deployment) is not None
            and statuses.progressing(status) is None
        ):
            message = f'Found new replica set "{new["metadata"]["name"]}"'
            status = self._progressing("True", statuses.FOUND_NEW_SET, message)
        yield from self._write(status, revision_text)

    def _create(self) -> Work:
        """Create the new set."""
        revision = revisions.max_revision(self._old) + 1
        made = revisions.new_set(self._deployment, revision)
        size = counts.new_size(self._deployment, self._old, 0)
        made["spec"]["replicas"] = size
        meta = made["metadata"]
        [outcome] = yield [Create(REPLICA_SETS, meta["namespace"], made)]
        if outcome.error is not None:
            yield from self._not_created(meta["name"], outcome, revision)
            return
        created = self._new = outcome.result()
        name = created["metadata"]["name"]
        if size:
            text = f"Scaled up replica set {name} from 0 to {size}"
            yield [Record(self._deployment, "Normal", "ScalingReplicaSet", text)]
        status = self._status
        if statuses.deadline_s(self._deployment) is not None:
            message = f'Created new replica set "{name}"'
            status = self._progressing("True", statuses.NEW_SET_CREATED, message)
        yield from self._write(status, str(revision))

    def _not_created(self, name: str, outcome: Outcome, revision: int) -> Work:
        """Use an existing set of this name and template as the new one, else report and raise."""
        assert outcome.error is not None
        meta = self._deployment["metadata"]
        if outcome.is_conflict:
            found = self._view.get(REPLICA_SETS, f"{meta['namespace']}/{name}")
            if found is None:
                raise outcome.error
            owner = controller_of(found)
            is_own = owner is not None and owner["uid"] == meta["uid"]
            if is_own and revisions.has_template(found, self._deployment):
                self._new = found
                yield from self._write(self._status, str(revision))
                return
            count = self._status.get("collisionCount", 0) + 1
            yield from self._write({**self._status, "collisionCount": count})
        elif not outcome.is_namespace_terminating:
            message = f'Failed to create new replica set "{name}": {outcome.error}'
            if statuses.deadline_s(self._deployment) is not None:
                failed = self._progressing("False", statuses.SET_CREATE_ERROR, message)
                yield [self._status_update(failed)]  # the first error is what counts
            yield [Record(self._deployment, "Warning", statuses.SET_CREATE_ERROR, message)]
        raise outcome.error

    def _scale(self, replica_set: Object, replicas: int, *, is_annotated: bool = False) -> Work:
        """Give a set a size; is_annotated: the annotations are to be right even if the size is."""
        before = counts.size(replica_set)
        meta = replica_set["metadata"]
        annotations = meta.get("annotations") or {}
        new_annotations = revisions.scale_annotations(self._deployment)
        is_behind = is_annotated and not new_annotations.items() <= annotations.items()
        if before == replicas and not is_behind:
            return
        [outcome] = yield [_size_update(replica_set, replicas, new_annotations)]
        if outcome.is_conflict:
            # Mostly only its status is another: a sync that is half done would scale elsewhere.
            fresh = yield from do(Get(REPLICA_SETS, meta["namespace"], meta["name"]))
            if fresh["metadata"].get("generation") == meta.get("generation"):
                [outcome] = yield [_size_update(fresh, replicas, new_annotations)]
        self._replace(outcome.result())
        if before != replicas:
            direction = "up" if before < replicas else "down"
            text = f"Scaled {direction} replica set {meta['name']} from {before} to {replicas}"
            yield [Record(self._deployment, "Normal", "ScalingReplicaSet", text)]

    def _replace(self, written: Object) -> None:
        uid = written["metadata"]["uid"]
        if self._new is not None and self._new["metadata"]["uid"] == uid:
            self._new = written
        self._old = [written if each["metadata"]["uid"] == uid else each for each in self._old]

    def _clean_up_if_complete(self) -> Work:
        if statuses.is_complete(self._deployment, self._status):
            yield from self._clean_up()

    def _clean_up(self) -> Work:
        """Delete the oldest sets beyond the limit, if they have no pods."""
        limit = statuses.history_limit(self._deployment)
        alive = [each for each in self._old if not is_deleting(each)]
        if limit is None or len(alive) <= limit:
            return
        deletions = [
            Delete(REPLICA_SETS, each["metadata"]["namespace"], each["metadata"]["name"])
            for each in revisions.by_revision(alive)[: len(alive) - limit]
            if _is_empty(each)
        ]
        outcomes = yield deletions
        for outcome in outcomes:
            if outcome.error is not None and not outcome.is_not_found:
                raise outcome.error

    # Rolling back by annotation.

    def _roll_back(self, target: int) -> Work:
        """Restore the template of a revision; 0: of the last one."""
        yield from self._sync_revision()
        if self._new is None:
            yield from self._create()
        revision = target or revisions.last_revision(self._sets)
        meta = self._deployment["metadata"]
        replica_set = next(
            (each for each in self._sets if revisions.revision_of(each) == revision), None
        )
        annotations = dict(meta.get("annotations") or {})
        spec = self._deployment["spec"]
        event = ("Warning", "DeploymentRollbackRevisionNotFound")
        if not revision:
            text = "Unable to find last revision."
        elif replica_set is None:
            text = "Unable to find the revision to rollback to."
        elif revisions.has_template(replica_set, self._deployment):
            event = ("Warning", "DeploymentRollbackTemplateUnchanged")
            text = (
                "The rollback revision contains the same template as current deployment"
                f' "{meta["name"]}"'
            )
        else:
            event = ("Normal", "DeploymentRollback")
            text = f'Rolled back deployment "{meta["name"]}" to revision {revision}'
            spec = {**spec, "template": revisions.without_hash(replica_set["spec"]["template"])}
            annotations = {
                name: value for name, value in annotations.items() if not revisions.is_copied(name)
            }
            for name, value in (replica_set["metadata"].get("annotations") or {}).items():
                if revisions.is_copied(name):
                    annotations[name] = value
        annotations.pop(revisions.ROLLBACK_TO, None)
        changed = {
            **self._deployment,
            "metadata": {**meta, "annotations": annotations},
            "spec": spec,
        }
        yield from do(Update(DEPLOYMENTS, changed))
        yield [Record(self._deployment, *event, text)]

    # Status.

    def _mark_paused(self) -> Work:
        """Set the condition of a paused or resumed Deployment, which suspends the deadline."""
        if statuses.deadline_s(self._deployment) is None:
            return
        current = statuses.progressing(self._status)
        reason = None if current is None else current["reason"]
        is_paused = bool(self._deployment["spec"].get("paused"))
        if reason == statuses.TIMED_OUT or is_paused == (reason == statuses.PAUSED):
            return
        if is_paused:
            state = (statuses.PAUSED, "Deployment is paused")
        else:
            state = (statuses.RESUMED, "Deployment is resumed")
        yield from self._write(self._progressing("Unknown", *state))

    def _write_counts(self) -> Work:
        status = statuses.counted(self._deployment, self._new, self._sets, self._now_s)
        yield from self._write(status)

    def _write_progress(self) -> Generator[Step, list[Outcome], Again | None]:
        status = statuses.counted(self._deployment, self._new, self._sets, self._now_s)
        status = statuses.with_progress(
            self._deployment, self._new, self._sets, status, self._now_s
        )
        yield from self._write(status)
        wait_s = statuses.until_deadline_s(self._deployment, status, self._now_s)
        return None if wait_s is None else Again(wait_s)

    def _progressing(self, state: str, reason: str, message: str) -> Object:
        new = statuses.condition(statuses.PROGRESSING, state, reason, message, self._now_s)
        return statuses.with_condition(self._status, new)

    def _write(self, status: Object, revision: str = "") -> Work:
        """Write the status, and the revision of the Deployment, if either differs."""
        annotations = self._deployment["metadata"].get("annotations") or {}
        is_annotated = not revision or annotations.get(revisions.REVISION) == revision
        if is_annotated and status == self._status:
            return
        self._deployment = yield from do(self._status_update(status, revision))

    def _status_update(self, status: Object, revision: str = "") -> Update:
        meta = self._deployment["metadata"]
        if revision:
            new_annotations = {**(meta.get("annotations") or {}), revisions.REVISION: revision}
            meta = {**meta, "annotations": new_annotations}
        return Update(
            DEPLOYMENTS, {**self._deployment, "metadata": meta, "status": status}, "status"
        )


def _size_update(replica_set: Object, replicas: int, new_annotations: dict[str, str]) -> Update:
    """Return the update that sets the size of a set and its annotations."""
    meta = replica_set["metadata"]
    annotations = {**(meta.get("annotations") or {}), **new_annotations}
    changed = {
        **replica_set,
        "metadata": {**meta, "annotations": annotations},
        "spec": {**replica_set["spec"], "replicas": replicas},
    }
    return Update(REPLICA_SETS, changed)


def _is_empty(replica_set: Object) -> bool:
    """Whether a set has no pods in spec and status."""
    status = replica_set.get("status") or {}
    return (
        not status.get("replicas", 0) and not counts.size(replica_set) and _is_observed(replica_set)
    )


def _is_observed(replica_set: Object) -> bool:
    """Whether a set's status is that of its spec: else it is about to be written."""
    observed = (replica_set.get("status") or {}).get("observedGeneration", 0)
    return bool(observed >= replica_set["metadata"].get("generation", 0))


def _rollback_target(deployment: Object) -> int | None:
    """Return the revision that the deprecated annotation asks for."""
    text = (deployment["metadata"].get("annotations") or {}).get(revisions.ROLLBACK_TO)
    if not text:
        return None
    try:
        return parse_int(text)
    except NumberError:
        return None
