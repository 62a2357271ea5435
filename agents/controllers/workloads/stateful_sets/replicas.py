"""One sync of a StatefulSet's pods.

    1 replicas, lowest ordinal first: created, waited for, repaired
    2 pods beyond the range, highest first: deleted
    3 pods of another revision, highest first: ended, to be made anew

OrderedReady takes one pod at a time and waits until it is available; Parallel takes all.
"""

from collections.abc import Callable, Generator, Sequence
from typing import TypeAlias

from kvstack.agents.client.built_in import PERSISTENT_VOLUME_CLAIMS, PODS
from kvstack.agents.controllers.ownership import is_deleting
from kvstack.agents.controllers.workloads.history import template_of
from kvstack.agents.controllers.workloads.pod_rules import is_available
from kvstack.agents.controllers.workloads.stateful_sets import claims, pods
from kvstack.agents.reconcile.plan import (
    Create,
    Delete,
    ForeseenError,
    Outcome,
    Record,
    SlowStart,
    Step,
    Update,
    View,
    do,
)
from kvstack.apimachinery.objects.core.pod_status import is_ended, is_ready
from kvstack.apimachinery.objects.int_or_string import scaled
from kvstack.apimachinery.objects.json_object import Object

Work: TypeAlias = Generator[Step, list[Outcome], None]
Halting: TypeAlias = Generator[Step, list[Outcome], bool]
"""Returns whether the sync ends here, until something changes."""


class ClaimError(ForeseenError):
    """Claims of a pod could not be made."""


class Replicas:
    """The pods of one StatefulSet, while they are brought a step further."""

    def __init__(
        self,
        stateful_set: Object,
        revisions: tuple[Object, Object],
        members: Sequence[Object],
        view: View,
        now_s: float,
    ) -> None:
        """revisions: the current one and that of the update; members: the pods there are."""
        self._set = stateful_set
        self._current, self._update = revisions
        self._view = view
        self._now_s = now_s
        spec = stateful_set["spec"]
        self._min_ready_s: int = spec.get("minReadySeconds", 0)
        self._is_ordered: bool = spec.get("podManagementPolicy") != "Parallel"
        self._strategy: Object = spec.get("updateStrategy") or {}
        self.deleted = 0
        """The number of pods of the current revision that were deleted for the update."""
        self.waits_for_claims = False
        """Whether pods must wait for the deletion of earlier claims, which no event announces."""
        by_ordinal = {pods.ordinal_of(pod): pod for pod in members}
        start = pods.start_of(stateful_set)
        self._replicas = [
            by_ordinal.get(ordinal) or self._new_pod(ordinal)
            for ordinal in range(start, start + pods.replicas_of(stateful_set))
        ]
        self._condemned = [
            by_ordinal[ordinal]
            for ordinal in sorted(by_ordinal, reverse=True)
            if ordinal >= 0 and not pods.is_in_range(stateful_set, ordinal)
        ]

    def run(self) -> Work:
        """Bring the pods a step further; raises what fails."""
        if (yield from self._for_all(self._replicas, self._keep)):
            return
        for pod in self._condemned:
            yield from self._own_claims(pod)
        if (yield from self._for_all(self._condemned, self._end)):
            return
        if self._strategy.get("type") == "RollingUpdate":
            yield from self._replace()

    def _new_pod(self, ordinal: int) -> Object:
        rolling = self._strategy.get("rollingUpdate")
        if rolling is not None:
            kept = rolling.get("partition", 0)
        elif self._strategy.get("type") == "RollingUpdate":
            kept = (self._set.get("status") or {}).get("currentReplicas", 0)
        else:
            kept = 0
        is_kept = ordinal < pods.start_of(self._set) + kept
        revision = self._current if is_kept else self._update
        name = revision["metadata"]["name"]
        return pods.new_pod(self._set, template_of(revision), name, ordinal)

    def _for_all(
        self, members: Sequence[Object], work: Callable[[Sequence[Object]], Halting]
    ) -> Halting:
        if not self._is_ordered:
            return (yield from work(members))
        for pod in members:
            if (yield from work([pod])):
                return True
        return False

    def _is_available(self, pod: Object) -> bool:
        return is_available(pod, self._min_ready_s, self._now_s)

    def _is_running(self, pod: Object) -> bool:
        phase = (pod.get("status") or {}).get("phase")
        return bool(phase == "Running") and is_ready(pod) and self._is_available(pod)

    # Replicas that are wanted.

    def _keep(self, members: Sequence[Object]) -> Halting:
        """Create, wait for and repair pods: one, or all side by side."""
        ended = [pod for pod in members if is_ended(pod)]
        yield from self._delete([pod for pod in ended if not is_deleting(pod)])
        missing = [pod for pod in members if not pods.is_created(pod)]
        ready_to_make = [pod for pod in missing if not self._is_blocked(pod)]
        self.waits_for_claims |= len(ready_to_make) < len(missing)
        yield from self._create(ready_to_make)
        if self._is_ordered and (ended or missing):
            return True
        present = [pod for pod in members if pods.is_created(pod) and not is_ended(pod)]
        for pod in present:
            if pod["status"]["phase"] == "Pending":
                yield from self._make_claims(pod)
                yield from self._own_claims(pod)
        if self._is_ordered and any(
            is_deleting(pod) or not self._is_running(pod) for pod in present
        ):
            return True
        for pod in present:
            yield from self._repair(pod)
        return False

    def _is_blocked(self, pod: Object) -> bool:
        return any(claims.blocks_pod(self._set, claim, pod) for claim in self._known_claims(pod))

    def _create(self, missing: Sequence[Object]) -> Work:
        namespace = self._set["metadata"]["namespace"]
        for pod in missing:
            try:
                yield from self._make_claims(pod)
            except ClaimError as error:
                yield [self._pod_event("Create", pod, error)]
                raise
        if not missing:
            return
        outcomes = yield SlowStart([Create(PODS, namespace, pod) for pod in missing])
        failed: Exception | None = None
        for pod, outcome in zip(missing, outcomes, strict=True):
            if outcome.is_skipped:
                continue
            if outcome.error is None:
                yield from self._own_claims(outcome.result())
            failed = failed or outcome.error
            if not outcome.is_conflict:
                yield [self._pod_event("Create", pod, outcome.error)]
        if failed is not None:
            raise failed

    def _repair(self, pod: Object) -> Work:
        """Give a pod the labels, volumes and claims of its ordinal, should it lack them."""
        desired = pod
        if not pods.has_identity(pod):
            desired = pods.with_identity(desired)
        if not pods.has_storage(self._set, pod):
            desired = pods.with_storage(self._set, desired)
            yield from self._make_claims(pod)
        yield from self._own_claims(pod)
        if desired is not pod:
            [outcome] = yield [Update(PODS, desired)]
            yield [self._pod_event("Update", pod, outcome.error)]
            outcome.result()

    # Replicas that are not wanted, or of another revision.

    def _end(self, members: Sequence[Object]) -> Halting:
        """Delete pods beyond the range: one, or all."""
        if self._is_ordered:
            pod = members[0]
            is_first = pod is self._first_unavailable()
            if is_deleting(pod) or not (self._is_running(pod) or is_first):
                return True
        going = [pod for pod in members if not is_deleting(pod)]
        yield from self._delete(going)
        return self._is_ordered

    def _first_unavailable(self) -> Object | None:
        for pod in (*self._replicas, *reversed(self._condemned)):
            if self._is_unavailable(pod):
                return pod
        return None

    def _is_unavailable(self, pod: Object) -> bool:
        return is_deleting(pod) or not self._is_available(pod)

    def _replace(self) -> Work:
        """End pods of another revision, as many as may be unavailable at once."""
        rolling = self._strategy.get("rollingUpdate") or {}
        replicas = pods.replicas_of(self._set)
        budget = max(scaled(rolling.get("maxUnavailable", 1), replicas, round_up=False), 1)
        budget -= sum(map(self._is_unavailable, self._replicas))
        stale = [
            pod
            for pod in reversed(self._replicas[rolling.get("partition", 0) :])
            if pods.revision_of(pod) != self._update["metadata"]["name"] and not is_deleting(pod)
        ]
        if self._is_ordered:
            going = stale[: max(budget, 0)]
        else:
            # What is not available costs nothing: it goes whatever the budget is.
            going = [pod for pod in stale if self._is_unavailable(pod)]
            others = [pod for pod in stale if not self._is_unavailable(pod)]
            going += others[: max(budget, 0)]
        yield from self._delete(going)
        self.deleted += len(going)

    def _delete(self, going: Sequence[Object]) -> Work:
        if not going:
            return
        outcomes = yield [
            Delete(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in going
        ]
        failed: Exception | None = None
        records = []
        for pod, outcome in zip(going, outcomes, strict=True):
            error = None if outcome.is_not_found else outcome.error
            failed = failed or error
            records.append(self._pod_event("Delete", pod, error))
        yield records
        if failed is not None:
            raise failed

    # Claims.

    def _known_claims(self, pod: Object) -> list[Object]:
        namespace = self._set["metadata"]["namespace"]
        found = (
            self._view.get(PERSISTENT_VOLUME_CLAIMS, f"{namespace}/{name}")
            for name in pods.claim_names(self._set, pods.ordinal_of(pod))
        )
        return [claim for claim in found if claim is not None]

    def _make_claims(self, pod: Object) -> Work:
        """Create the claims that a pod lacks; raises ClaimError."""
        existing = {claim["metadata"]["name"]: claim for claim in self._known_claims(pod)}
        problems = [
            f"pvc {name} is being deleted" for name, claim in existing.items() if is_deleting(claim)
        ]
        missing = [
            claim
            for claim in pods.new_claims(self._set, pods.ordinal_of(pod)).values()
            if claim["metadata"]["name"] not in existing
        ]
        if missing:
            outcomes = yield [
                Create(PERSISTENT_VOLUME_CLAIMS, claim["metadata"]["namespace"], claim)
                for claim in missing
            ]
            records = []
            for claim, outcome in zip(missing, outcomes, strict=True):
                name = claim["metadata"]["name"]
                if outcome.error is not None:
                    problems.append(f"failed to create PVC {name}: {outcome.error}")
                if not outcome.is_conflict:
                    records.append(self._claim_event(name, pod, outcome.error))
            yield records
        if problems:
            text = ", ".join(problems)
            raise ClaimError(f"[{text}]" if len(problems) > 1 else text)

    def _own_claims(self, pod: Object) -> Work:
        """Give a pod's claims the owners that the retention policy says."""
        for claim in self._known_claims(pod):
            if claims.has_other_controller(claim, self._set, pod):
                name = claim["metadata"]["name"]
                text = (
                    f"PersistentVolumeClaim {name} has a conflicting OwnerReference that acts as a"
                    " manging controller, the retention policy is ignored for this claim"
                )
                yield [Record(self._set, "Warning", "ConflictingController", text)]
            references = claims.desired_references(claim, self._set, pod)
            if references is None:
                continue
            meta = {**claim["metadata"], "ownerReferences": references}
            yield from do(Update(PERSISTENT_VOLUME_CLAIMS, {**claim, "metadata": meta}))

    # Events.

    def _pod_event(self, verb: str, pod: Object, error: Exception | None) -> Record:
        text = (
            f"{verb} Pod {pod['metadata']['name']} in StatefulSet {self._set['metadata']['name']}"
        )
        if error is None:
            return Record(self._set, "Normal", f"Successful{verb}", f"{text} successful")
        return Record(self._set, "Warning", f"Failed{verb}", f"{text} failed error: {error}")

    def _claim_event(self, claim: str, pod: Object, error: Exception | None) -> Record:
        name, pod_name = self._set["metadata"]["name"], pod["metadata"]["name"]
        if error is None:
            text = f"Create Claim {claim} Pod {pod_name} in StatefulSet {name} success"
            return Record(self._set, "Normal", "SuccessfulCreate", text)
        text = (
            f"Create Claim {claim} for Pod {pod_name} in StatefulSet {name} failed error: {error}"
        )
        return Record(self._set, "Warning", "FailedCreate", text)
