"""The state of one sync of a Job: the Job, its pods, and results so far.

Made anew for each sync; the parts of a sync read and change it.
"""

from collections.abc import Sequence
from typing import Final

from kvstack.agents.controllers.workloads.jobs import back_off, indexes
from kvstack.agents.controllers.workloads.jobs import pods as job_pods
from kvstack.agents.controllers.workloads.jobs.back_off import Record as Failures
from kvstack.agents.controllers.workloads.jobs.failure_policy import FAIL_INDEX, verdict
from kvstack.agents.controllers.workloads.jobs.tracking import Uncounted
from kvstack.agents.controllers.workloads.pod_rules import is_active, is_terminating
from kvstack.apimachinery.objects.core.pod_status import is_ready
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.times import format_time

COMPLETE: Final = "Complete"
FAILED: Final = "Failed"
FAILURE_TARGET: Final = "FailureTarget"
SUCCESS_CRITERIA: Final = "SuccessCriteriaMet"
SUSPENDED: Final = "Suspended"


def is_finished(job: Object) -> bool:
    """Whether a Job is Complete or Failed."""
    return end_condition(job) is not None


def end_condition(job: Object) -> Object | None:
    """Return the condition in which a Job has ended, Complete or Failed; None: in none."""
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition["type"] in (COMPLETE, FAILED) and condition["status"] == "True":
            found: Object = condition
            return found
    return None


class JobState:
    """A Job and its pods."""

    def __init__(
        self, job: Object, pods: Sequence[Object], failures: Failures, now_s: float
    ) -> None:
        """failures: those that the Job had before these pods."""
        self.job = job
        self.spec: Object = job["spec"]
        self.status: Object = dict(job.get("status") or {})
        self.now_s = now_s
        self.is_indexed = job_pods.is_indexed(job)
        self.pods = sorted(pods, key=_by_index) if self.is_indexed else list(pods)
        self.active = [pod for pod in self.pods if is_active(pod)]
        self.active_count = len(self.active)
        self.ready_count = sum(map(is_ready, self.active))
        self.terminating_count = sum(map(is_terminating, self.pods))
        self.uncounted = Uncounted(self.status)
        self.is_changed = False
        self.finish: Object | None = None
        self.failure: Exception | None = None
        self.waits: list[float] = []
        new_succeeded = self.newly_ended("succeeded")
        new_failed = self.newly_ended("failed")
        self.new_failures = back_off.after(failures, new_succeeded, new_failed)
        self.failures = failures
        """The back-off record to store once the status is written."""
        self.succeeded = (
            self.status.get("succeeded", 0)
            + len(new_succeeded)
            + len(self.uncounted.of("succeeded"))
        )
        self.failed = (
            self.status.get("failed", 0)
            + sum(verdict(job, pod).is_counted for pod in new_failed)
            + len(self.uncounted.of("failed"))
        )
        self.completed: set[int] = set()
        self.completed_before: set[int] = set()
        self.failed_indexes: set[int] | None = None
        self.waiting_for_successor: dict[int, Object] = {}

    @property
    def is_suspended(self) -> bool:
        """Whether the Job is suspended."""
        return job_pods.is_suspended(self.job)

    @property
    def ends_in_failure(self) -> bool:
        """Whether the Job has failed."""
        return self.finish is not None and self.finish["type"] != SUCCESS_CRITERIA

    def set_count(self, name: str, count: int) -> None:
        """Set a counter that is absent where it is 0."""
        if count != self.status.get(name, 0):
            self.is_changed = True
        if count:
            self.status[name] = count
        else:
            self.status.pop(name, None)

    def is_valid(self, pod: Object) -> bool:
        """Whether a pod counts: of an indexed Job it must have a valid index."""
        if not self.is_indexed:
            return True
        index = indexes.index_of(pod)
        return index is not None and index < self.spec["completions"]

    def newly_ended(self, counter: str) -> list[Object]:
        """Return the ended pods that are not among the uncounted yet."""
        known = set(self.uncounted.of(counter))
        return [
            pod
            for pod in self.pods
            if job_pods.is_tracked(pod)
            and pod["metadata"]["uid"] not in known
            and self.is_valid(pod)
            and (
                job_pods.phase_of(pod) == "Succeeded"
                if counter == "succeeded"
                else job_pods.is_failed(pod, self.job)
            )
        ]

    def read_indexes(self) -> None:
        """Find out which indexes have succeeded, and which have failed for good."""
        completions = self.spec["completions"]
        tracked = [pod for pod in self.pods if job_pods.is_tracked(pod) and self.is_valid(pod)]
        before = self.completed_before = indexes.parse(
            self.status.get("completedIndexes"), completions
        )
        self.completed = before | {
            index
            for pod in tracked
            if job_pods.phase_of(pod) == "Succeeded"
            and (index := indexes.index_of(pod)) is not None
        }
        self.succeeded = len(self.completed)
        if not job_pods.has_limit_per_index(self.job):
            return
        failed = self.failed_indexes = indexes.parse(self.status.get("failedIndexes"), completions)
        failed.update(
            index
            for pod in tracked
            if self.has_failed_index(pod) and (index := indexes.index_of(pod)) is not None
        )
        settled = self.completed | failed | indexes_of(self.active)
        self.waiting_for_successor = job_pods.last_failed_by_index(
            (
                pod
                for pod in tracked
                if job_pods.is_failed(pod, self.job) and indexes.index_of(pod) not in settled
            ),
        )

    def has_failed_index(self, pod: Object) -> bool:
        """Whether the index of a pod has failed for good."""
        if not job_pods.is_failed(pod, self.job):
            return False
        found = verdict(self.job, pod)
        if found.action == FAIL_INDEX:
            return True
        limit: int = self.spec["backoffLimitPerIndex"]
        return found.is_counted and job_pods.failures_of(pod) >= limit

    def condition(self, type_: str, reason: str, message: str, status: str = "True") -> Object:
        """Return a condition of now."""
        now = format_time(self.now_s)
        return {
            "type": type_,
            "status": status,
            "lastProbeTime": now,
            "lastTransitionTime": now,
            "reason": reason,
            "message": message,
        }


def indexes_of(pods: Sequence[Object]) -> set[int]:
    """Return the indexes of pods, of those that have one."""
    found = map(indexes.index_of, pods)
    return {index for index in found if index is not None}


def _by_index(pod: Object) -> int:
    index = indexes.index_of(pod)
    return -1 if index is None else index
