"""CronJob: a Job each time a schedule is due.

    old Jobs go ─► ended Jobs leave the list of active ones ─► the Job that is due ─► status

What time it is elsewhere the zones say that the controller is given.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Final, TypeAlias

from kvstack.agents.client.built_in import CRON_JOBS, JOBS
from kvstack.agents.client.object_store import key_of
from kvstack.agents.controllers.ownership import (
    CONTROLLER_INDEX,
    controller_of,
    controller_reference,
    controller_values,
    is_deleting,
    owner_keys,
)
from kvstack.agents.controllers.workloads.jobs.due_times import NeverDueError, due, next_s
from kvstack.agents.controllers.workloads.jobs.state import end_condition, is_finished
from kvstack.agents.controllers.workloads.pod_rules import seconds_of
from kvstack.agents.reconcile.plan import (
    Again,
    BaseController,
    Create,
    Delete,
    ForeseenError,
    Get,
    Identity,
    Index,
    Later,
    Outcome,
    Plan,
    Record,
    Retry,
    Step,
    Update,
    View,
    Watch,
    do,
)
from kvstack.apimachinery.objects.cron_schedules import LOCAL, Schedule, ScheduleError, parse
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apimachinery.objects.times import format_time

ZoneOf: TypeAlias = Callable[[str], tzinfo]
"""Returns the zone of a name; raises KeyError (or a kind of it) for one that there is not."""
ScheduleOf: TypeAlias = Callable[[Object], tuple[Schedule, tzinfo]]

_SCHEDULED: Final = "batch.kubernetes.io/cronjob-scheduled-timestamp"
_AFTERWARDS_S: Final = 0.1
_MISSED_MAX: Final = 100
_MINUTE_S: Final = 60
_TOO_MANY_MISSED: Final = (
    "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
)
_FORBIDDEN: Final = (
    "Not starting job because prior execution is running and concurrency policy is Forbid"
)


class CronJobController(BaseController):
    """Keeps CronJobs."""

    identity = Identity("cronjob-controller", "cronjob-controller", "cronjob-controller")
    indexes: Sequence[Index] = (Index(JOBS, CONTROLLER_INDEX, controller_values),)

    def __init__(self, zone_of: ZoneOf, local_zone: tzinfo = UTC) -> None:
        """zone_of: the time zones there are; local_zone: of schedules that name none."""
        self._zone_of = zone_of
        self._local_zone = local_zone
        self.watches: Sequence[Watch] = (
            Watch(CRON_JOBS, self._keys_of_cron_job),
            Watch(JOBS, _keys_of_job),
        )
        self._now_s = 0.0

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for one CronJob."""
        self._now_s = now_s
        cron_job = view.get(CRON_JOBS, key)
        if cron_job is None:
            return None
        jobs = view.by_index(JOBS, CONTROLLER_INDEX, cron_job["metadata"]["uid"])
        return (yield from _Sync(cron_job, jobs, self._schedule, self._zone_of, now_s).run())

    def _keys_of_cron_job(
        self, old: Object | None, new: Object | None, view: View
    ) -> Iterator[str | Later]:
        """A new schedule counts from its next time on."""
        if old is not None and new is not None and _when(old) != _when(new):
            try:
                schedule, zone = self._schedule(new)
            except (ScheduleError, KeyError):
                yield key_of(new)
                return
            earliest_s = _earliest_s(new)
            now_s = max(self._now_s, earliest_s)
            yield Later(key_of(new), max(_until_next_s(schedule, zone, earliest_s, now_s), 0.0))
            return
        yield key_of(new or old or {})

    def _schedule(self, cron_job: Object) -> tuple[Schedule, tzinfo]:
        """Return schedule and zone; raises ScheduleError, and KeyError for an unknown zone."""
        text, zone_name = _when(cron_job)
        zone = self._zone_of(zone_name) if zone_name else self._local_zone
        schedule = parse(text)
        if schedule.zone != LOCAL:
            zone = self._zone_of(schedule.zone)
        return schedule, zone


class _Sync:
    """One CronJob with its Jobs."""

    def __init__(
        self,
        cron_job: Object,
        jobs: Sequence[Object],
        schedule_of: ScheduleOf,
        zone_of: ZoneOf,
        now_s: float,
    ) -> None:
        self._cron_job = cron_job
        self._spec: Object = cron_job["spec"]
        self._status: Object = dict(cron_job.get("status") or {})
        self._jobs = jobs
        self._schedule_of = schedule_of
        self._zone_of = zone_of
        self._now_s = now_s

    def run(self) -> Plan:
        """Clean up, start what is due, and write the status once."""
        failure: Exception | None = None
        again: Again | Retry | None = None
        yield from self._clean_up()
        try:
            yield from self._look_at_jobs()
            again = yield from self._start()
        except Exception as error:  # noqa: BLE001 - raised again once the status is written
            failure = error
        if self._status != (self._cron_job.get("status") or {}):
            yield from do(Update(CRON_JOBS, {**self._cron_job, "status": self._status}, "status"))
        if failure is not None:
            raise failure
        return again

    # Jobs there are.

    @property
    def _active(self) -> list[Object]:
        return self._status.get("active") or []

    def _drop_active(self, uid: str) -> None:
        left = [each for each in self._active if each.get("uid") != uid]
        self._status.pop("active", None)
        if left:
            self._status["active"] = left

    def _record(self, type_: str, reason: str, message: str) -> Record:
        return Record(self._cron_job, type_, reason, message)

    def _clean_up(self) -> Generator[Step, list[Outcome], None]:
        """Delete the oldest ended Jobs beyond the limits of history."""
        for limit_name, condition in (
            ("successfulJobsHistoryLimit", "Complete"),
            ("failedJobsHistoryLimit", "Failed"),
        ):
            limit = self._spec.get(limit_name)
            if limit is None:
                continue
            ended = sorted(
                (job for job in self._jobs if _end_of(job) == condition), key=_start_order
            )
            for job in ended[: max(len(ended) - limit, 0)]:
                yield from self._delete(job)

    def _delete(self, job: Object) -> Generator[Step, list[Outcome], bool]:
        meta = job["metadata"]
        [outcome] = yield [Delete(JOBS, meta["namespace"], meta["name"], propagation="Background")]
        if outcome.error is not None:
            yield [self._record("Warning", "FailedDelete", f"Deleted job: {outcome.error}")]
            return False
        self._drop_active(meta["uid"])
        yield [self._record("Normal", "SuccessfulDelete", f"Deleted job {meta['name']}")]
        return True

    def _look_at_jobs(self) -> Generator[Step, list[Outcome], None]:
        """Bring the list of active Jobs up to date with the Jobs there are."""
        for job in self._jobs:
            meta = job["metadata"]
            is_known = any(each.get("uid") == meta["uid"] for each in self._active)
            if is_finished(job):
                if is_known:
                    self._drop_active(meta["uid"])
                    text = f"Saw completed job: {meta['name']}, condition: {_end_of(job)}"
                    yield [self._record("Normal", "SawCompletedJob", text)]
                self._note_success(job)
            elif not is_known:
                text = f"Saw a job that the controller did not create or forgot: {meta['name']}"
                yield [self._record("Warning", "UnexpectedJob", text)]
        known = {job["metadata"]["uid"] for job in self._jobs}
        for each in list(self._active):
            if each.get("uid") in known:
                continue
            [outcome] = yield [Get(JOBS, each["namespace"], each["name"])]
            if outcome.is_not_found:
                text = f"Active job went missing: {each['name']}"
                yield [self._record("Normal", "MissingJob", text)]
                self._drop_active(each["uid"])
            else:
                outcome.result()

    def _note_success(self, job: Object) -> None:
        done = (job.get("status") or {}).get("completionTime")
        if _end_of(job) != "Complete" or not done:
            return
        last_s = seconds_of(self._status.get("lastSuccessfulTime"))
        if last_s is None or (seconds_of(done) or 0.0) > last_s:
            self._status["lastSuccessfulTime"] = done

    # The Job that is due.

    def _start(self) -> Plan:
        if is_deleting(self._cron_job):
            return None
        zone_name = self._spec.get("timeZone")
        try:
            schedule, zone = self._schedule_of(self._cron_job)
        except KeyError:
            text = f"invalid timeZone: {quote(str(zone_name))}: unknown time zone {zone_name}"
            yield [self._record("Warning", "UnknownTimeZone", text)]
            return None
        except ScheduleError as error:
            if not self._spec.get("suspend"):
                text = f"unparseable schedule: {quote(self._spec['schedule'])} : {error}"
                yield [self._record("Warning", "UnparseableSchedule", text)]
            return None
        if self._spec.get("suspend"):
            return None
        if "TZ" in self._spec["schedule"]:
            text = (
                f"CRON_TZ or TZ used in schedule {quote(self._spec['schedule'])} is not officially"
                " supported, see https://kubernetes.io/docs/concepts/workloads/controllers/"
                "cron-jobs/ for more details"
            )
            yield [self._record("Warning", "UnsupportedSchedule", text)]
        try:
            moment = yield from self._due(schedule, zone)
        except NeverDueError as error:
            text = f"invalid schedule: {self._spec['schedule']} : {error}"
            yield [self._record("Warning", "InvalidSchedule", text)]
            return None
        if moment is not None and not (yield from self._make(moment)):
            return None
        wait_s = _until_next_s(schedule, zone, _earliest_s(self._with_status()), self._now_s)
        return Again(max(wait_s, 0.0))

    def _with_status(self) -> Object:
        return {**self._cron_job, "status": self._status}

    def _due(self, schedule: Schedule, zone: tzinfo) -> Generator[Step, list[Outcome], int | None]:
        """Return the time whose Job is to be made now."""
        earliest_s = _earliest_s(self._cron_job)
        deadline_s = self._spec.get("startingDeadlineSeconds")
        if deadline_s is not None:
            earliest_s = max(earliest_s, self._now_s - deadline_s)
        found = due(schedule, zone, earliest_s, self._now_s)
        moment = found.most_recent_s
        if moment is None:
            return None
        if found.missed > _MISSED_MAX:
            yield [self._record("Warning", "TooManyMissedTimes", _TOO_MANY_MISSED)]
        if deadline_s is not None and moment + deadline_s < self._now_s:
            when = datetime.fromtimestamp(moment, UTC).strftime("%a, %d %b %Y %H:%M:%S +0000")
            text = f"Missed scheduled time to start a job: {when}"
            yield [self._record("Warning", "MissSchedule", text)]
            return None
        name = self._job_name(moment)
        if any(each.get("name") == name for each in self._active):
            return None
        if seconds_of(self._status.get("lastScheduleTime")) == moment:
            return None
        if self._spec.get("concurrencyPolicy") == "Forbid" and self._active:
            yield [self._record("Normal", "JobAlreadyActive", _FORBIDDEN)]
            return None
        return moment

    def _make(self, moment: int) -> Generator[Step, list[Outcome], bool]:
        """Make the Job of a time; return whether the schedule goes on from there."""
        if self._spec.get("concurrencyPolicy") == "Replace":
            for each in list(self._active):
                yield from self._replace(each)
        namespace = self._cron_job["metadata"]["namespace"]
        made = self._new_job(moment)
        [outcome] = yield [Create(JOBS, namespace, made)]
        name = made["metadata"]["name"]
        if outcome.is_conflict:
            job = yield from do(Get(JOBS, namespace, name))
            owner = controller_of(job)
            if owner is None or owner["uid"] != self._cron_job["metadata"]["uid"]:
                return False
        else:
            if outcome.error is not None and not outcome.is_namespace_terminating:
                text = f"Error creating job: {outcome.error}"
                yield [self._record("Warning", "FailedCreate", text)]
            job = outcome.result()
            yield [self._record("Normal", "SuccessfulCreate", f"Created job {name}")]
        meta = job["metadata"]
        reference = {
            "apiVersion": JOBS.api_version,
            "kind": JOBS.kind,
            "namespace": meta["namespace"],
            "name": meta["name"],
            "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"],
        }
        self._status["active"] = [*self._active, reference]
        self._status["lastScheduleTime"] = format_time(moment)
        return True

    def _replace(self, active: Object) -> Generator[Step, list[Outcome], None]:
        """Delete a Job that is active still; raises what fails."""
        [outcome] = yield [Get(JOBS, active["namespace"], active["name"])]
        if outcome.error is not None:
            yield [self._record("Warning", "FailedGet", f"Get job: {outcome.error}")]
            raise outcome.error
        if not (yield from self._delete(outcome.result())):
            raise ReplaceError(f"could not replace job {active['namespace']}/{active['name']}")

    def _job_name(self, moment: int) -> str:
        return f"{self._cron_job['metadata']['name']}-{moment // _MINUTE_S}"

    def _new_job(self, moment: int) -> Object:
        template = self._spec["jobTemplate"]
        meta = template.get("metadata") or {}
        zone = self._zone_of(self._spec["timeZone"]) if self._spec.get("timeZone") else UTC
        local = datetime.fromtimestamp(moment, zone).isoformat()
        metadata: Object = {
            "name": self._job_name(moment),
            "namespace": self._cron_job["metadata"]["namespace"],
            "annotations": {
                **(meta.get("annotations") or {}),
                _SCHEDULED: local.replace("+00:00", "Z"),
            },
            "ownerReferences": [controller_reference(self._cron_job)],
        }
        if meta.get("labels"):
            metadata["labels"] = dict(meta["labels"])
        return {
            "apiVersion": JOBS.api_version,
            "kind": JOBS.kind,
            "metadata": metadata,
            "spec": template["spec"],
        }


class ReplaceError(ForeseenError):
    """A Job that another was to take the place of is still there."""


def _keys_of_job(old: Object | None, new: Object | None, view: View) -> Iterator[str | Later]:
    for job in (old, new):
        if job is not None:
            yield from owner_keys(job, CRON_JOBS.group, CRON_JOBS.kind)


def _when(cron_job: Object) -> tuple[str, str | None]:
    return cron_job["spec"]["schedule"], cron_job["spec"].get("timeZone")


def _earliest_s(cron_job: Object) -> float:
    """Return from when on times of the schedule count."""
    last = (cron_job.get("status") or {}).get("lastScheduleTime")
    return seconds_of(last or cron_job["metadata"].get("creationTimestamp")) or 0.0


def _until_next_s(schedule: Schedule, zone: tzinfo, earliest_s: float, now_s: float) -> float:
    """Return in how many seconds the schedule is due next."""
    try:
        found = due(schedule, zone, earliest_s, now_s)
    except NeverDueError:
        since_s = now_s
    else:
        if found.most_recent_s is not None:
            since_s = float(found.most_recent_s)
        else:
            since_s = now_s if found.missed else earliest_s
    moment = next_s(schedule, since_s, zone)
    return (0.0 if moment is None else moment - now_s) + _AFTERWARDS_S


def _end_of(job: Object) -> str:
    """Return in which condition a Job has ended; empty: in none."""
    condition = end_condition(job)
    return "" if condition is None else str(condition["type"])


def _start_order(job: Object) -> tuple[bool, float, str]:
    """Return the sort key of those that started first; those that did not are last."""
    start_s = seconds_of((job.get("status") or {}).get("startTime"))
    return start_s is None, start_s or 0.0, job["metadata"]["name"]
