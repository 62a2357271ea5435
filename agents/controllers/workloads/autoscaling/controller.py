"""One sync of an autoscaler, every few seconds.

the target's scale ─► proposals of metrics ─► windows and rates ─► scale ─► status
"""

from collections.abc import Generator, Iterator, Sequence
from typing import Final, NoReturn, TypeAlias

from kvstack.agents.client.built_in import HORIZONTAL_POD_AUTOSCALERS, PODS
from kvstack.agents.client.object_store import key_of
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.controllers.options import AutoscalerOptions
from kvstack.agents.controllers.served_kinds import ServedKinds, UnknownKindError
from kvstack.agents.controllers.workloads.autoscaling.metrics import (
    FailedMetricError,
    MetricProposal,
    Target,
    propose,
)
from kvstack.agents.controllers.workloads.autoscaling.proportions import (
    Question,
    Readiness,
    Tolerances,
)
from kvstack.agents.controllers.workloads.autoscaling.recommendations import Bounds, Memory
from kvstack.agents.reconcile.plan import (
    Again,
    BackOff,
    BaseController,
    ForeseenError,
    Get,
    Identity,
    Later,
    Outcome,
    Plan,
    Record,
    Step,
    Update,
    View,
    Watch,
    do,
)
from kvstack.apimachinery.objects import labels
from kvstack.apimachinery.objects.core import conditions
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.labels import SelectorError
from kvstack.apimachinery.objects.quantity import parse
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.times import format_time

Work: TypeAlias = Generator[Step, list[Outcome], None]

_NAME: Final = "horizontal-pod-autoscaler"
_CONFLICTS_MAX: Final = 5
_NO_SCALE: Final = "the HPA controller was unable to get the target's current scale: "
_HAS_SCALE: Final = "the HPA controller was able to get the target's current scale"
_IS_ZERO: Final = "scaling is disabled since the replica count of the target is zero"


class AutoscalingError(ForeseenError):
    """Scaling was impossible; events and conditions say why."""


class _Memories:
    """State that is kept from round to round."""

    def __init__(self, window_s: float) -> None:
        self.replicas = Memory(window_s)
        self.selectors: dict[str, labels.Selector] = {}
        """The selector of the pods of each autoscaler's target."""
        self.kinds = ServedKinds()

    def forget(self, key: str) -> None:
        """Forget an autoscaler."""
        self.replicas.forget(key)
        self.selectors.pop(key, None)


class AutoscalerController(BaseController):
    """Keeps targets as large as their metrics say."""

    identity = Identity("horizontal-pod-autoscaler-controller", _NAME, _NAME)
    reads: Sequence[ResourceType] = (PODS,)

    def __init__(self, options: AutoscalerOptions) -> None:
        self._options = options
        self._memories = _Memories(options.downscale_stabilization_s)
        self.back_off = BackOff(options.sync_period_s, options.sync_period_s, has_bucket=False)
        self.watches: Sequence[Watch] = (Watch(HORIZONTAL_POD_AUTOSCALERS, self._keys),)

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for one autoscaler."""
        autoscaler = view.get(HORIZONTAL_POD_AUTOSCALERS, key)
        if autoscaler is None:
            self._memories.forget(key)
            return None
        sync = _Sync(autoscaler, view, self._options, self._memories, now_s)
        yield from sync.run()
        return Again(self._options.sync_period_s, is_routine=True)

    def _keys(self, old: Object | None, new: Object | None, view: View) -> Iterator[str | Later]:
        """New ones and those of another spec wait for their next round."""
        if new is None:
            yield key_of(old or {})
        elif old is None or old["spec"] != new["spec"]:
            yield Later(key_of(new), self._options.sync_period_s)


class _Sync:
    """One autoscaler in one round."""

    def __init__(
        self,
        autoscaler: Object,
        view: View,
        options: AutoscalerOptions,
        memories: _Memories,
        now_s: float,
    ) -> None:
        self._autoscaler = autoscaler
        self._key = key_of(autoscaler)
        self._spec: Object = autoscaler["spec"]
        self._namespace: str = autoscaler["metadata"]["namespace"]
        self._view = view
        self._options = options
        self._memories = memories
        self._memory = memories.replicas
        self._now_s = now_s
        self._status: Object = dict(autoscaler.get("status") or {})
        self._conditions: list[Object] = list(self._status.get("conditions") or ())
        self._reason = ""
        self._resource: ResourceType | None = None

    def run(self) -> Work:
        """Bring the target to its size; raises what fails."""
        scale = yield from self._scale_of_target()
        self._say("AbleToScale", "True", "SucceededGetScale", _HAS_SCALE)
        current = (scale.get("spec") or {}).get("replicas", 0)
        self._memory.begin(self._key, current, self._now_s)
        metric_statuses: list[Object] | None = None
        least, most = self._bounds
        desired = current
        failure: Exception | None = None
        if current > most:
            desired, self._reason = most, "Current number of replicas above Spec.MaxReplicas"
        elif current and current < least:
            desired, self._reason = least, "Current number of replicas below Spec.MinReplicas"
        elif not current and not self._may_leave_zero:
            self._say("ScalingActive", "False", "ScalingDisabled", _IS_ZERO)
        else:
            desired, metric_statuses, failure = yield from self._by_metrics(scale, current)
        is_rescaled = desired != current
        if is_rescaled:
            yield from self._rescale(scale, current, desired, metric_statuses)
        yield from self._write(current, desired, metric_statuses, is_rescaled=is_rescaled)
        if failure is not None:
            raise failure

    @property
    def _bounds(self) -> tuple[int, int]:
        least = self._spec.get("minReplicas")
        return (1 if least is None else least), self._spec["maxReplicas"]

    @property
    def _may_leave_zero(self) -> bool:
        """Whether this controller scaled the target to zero."""
        is_scaled_to_zero = conditions.is_true(self._conditions, "ScaledToZero")
        return is_scaled_to_zero and (self._bounds[0] != 0 or self._has_outer_metric)

    @property
    def _has_outer_metric(self) -> bool:
        metrics = self._spec.get("metrics") or ()
        return any(each.get("type") in ("Object", "External") for each in metrics)

    # The target.

    def _scale_of_target(self) -> Generator[Step, list[Outcome], Object]:
        target = self._spec["scaleTargetRef"]
        try:
            version, kind = target.get("apiVersion", "v1"), target["kind"]
            resource = yield from self._memories.kinds.resource_of(version, kind, self._now_s)
            self._resource = resource
            return (yield from do(Get(resource, self._namespace, target["name"], "scale")))
        except (ApiError, UnreachableError, UnknownKindError) as error:
            yield [self._record("Warning", "FailedGetScale", str(error))]
            self._say("AbleToScale", "False", "FailedGetScale", f"{_NO_SCALE}{error}")
            yield from self._write_conditions()
            reference = f"{target['kind']}/{self._namespace}/{target['name']}"
            text = f"failed to query scale subresource for {reference}: {error}"
            raise AutoscalingError(text) from None

    def _rescale(
        self, scale: Object, current: int, desired: int, metric_statuses: list[Object] | None
    ) -> Work:
        assert self._resource is not None
        name = self._spec["scaleTargetRef"]["name"]
        error: Exception | None = None
        for _ in range(_CONFLICTS_MAX):
            changed = {**scale, "spec": {**(scale.get("spec") or {}), "replicas": desired}}
            [outcome] = yield [Update(self._resource, changed, "scale")]
            error = outcome.error
            if not outcome.is_conflict:
                break
            scale = yield from do(Get(self._resource, self._namespace, name, "scale"))
        if error is not None:
            text = f"New size: {desired}; reason: {self._reason}; error: {error}"
            yield [self._record("Warning", "FailedRescale", text)]
            text = f"the HPA controller was unable to update the target scale: {error}"
            self._say("AbleToScale", "False", "FailedUpdateScale", text)
            yield from self._write(current, None, metric_statuses)
            raise error
        text = f"the HPA controller was able to update the target scale to {desired}"
        self._say("AbleToScale", "True", "SucceededRescale", text)
        text = f"New size: {desired}; reason: {self._reason}"
        yield [self._record("Normal", "SuccessfulRescale", text)]
        behavior = self._spec.get("behavior")
        if behavior is not None:
            self._memory.scaled(self._key, current, desired, behavior, self._now_s)
        if current and not desired and self._bounds[0] == 0 and self._has_outer_metric:
            text = "the HPA controller scaled the workload to zero"
            self._say("ScaledToZero", "True", "ScaledToZero", text)
        else:
            text = "the HPA controller did not scale the workload to zero"
            self._say("ScaledToZero", "False", "NotScaledToZero", text)

    # Metrics.

    def _by_metrics(
        self, scale: Object, current: int
    ) -> Generator[Step, list[Outcome], tuple[int, list[Object], Exception | None]]:
        """Return the desired replicas, the current metrics, and the error of those that failed."""
        target = yield from self._target(scale, current)
        metric_statuses: list[Object] = []
        best: MetricProposal | None = None
        failures: list[FailedMetricError] = []
        metrics = self._spec.get("metrics") or ()
        for spec in metrics:
            try:
                proposal = yield from propose(spec, target)
            except FailedMetricError as error:
                yield [self._record("Warning", error.reason, error.cause)]
                failures.append(error)
                metric_statuses.append({"type": ""})
                continue
            metric_statuses.append(proposal.status)
            if best is None or best.replicas == 0 or proposal.replicas > best.replicas:
                best = proposal
        failure: AutoscalingError | None = None
        if failures:
            failure = AutoscalingError(
                f"invalid metrics ({len(failures)} invalid out of {len(metrics)}), first error is:"
                f" {failures[0]}"
            )
            if best is None or best.replicas < current:
                first = failures[0]
                text = f"the HPA was unable to compute the replica count: {first.cause}"
                self._say("ScalingActive", "False", first.reason, text)
                yield from self._give_up(failure, current, metric_statuses)
        proposed, name = (0, "") if best is None else (best.replicas, best.name)
        text = f"the HPA was able to successfully calculate a replica count from {name}"
        self._say("ScalingActive", "True", "ValidMetricFound", text)
        return self._normalized(current, proposed, name), metric_statuses, failure

    def _normalized(self, current: int, proposed: int, metric: str) -> int:
        """Return what windows, rates and bounds leave of a proposal."""
        if proposed > current:
            self._reason = f"{metric} above target"
        elif proposed < current:
            self._reason = "All metrics below target"
        behavior, now_s = self._spec.get("behavior"), self._now_s
        stable = self._memory.stabilized(self._key, proposed, current, behavior, now_s)
        self._say("AbleToScale", "True", stable.reason, stable.message)
        least, most = self._bounds
        bounds = Bounds(current, least, most)
        limited = self._memory.limited(self._key, stable.replicas, bounds, behavior, now_s)
        status = "True" if limited.is_limited else "False"
        self._say("ScalingLimited", status, limited.reason, limited.message)
        if not current and limited.replicas < least:
            self._reason = self._reason or "Current number of replicas below Spec.MinReplicas"
            return least
        return limited.replicas

    def _target(self, scale: Object, current: int) -> Generator[Step, list[Outcome], Target]:
        status = scale.get("status") or {}
        text: str = status.get("selector", "")
        selector = yield from self._selector(text, current)
        pods = [
            pod
            for pod in self._view.list(PODS, self._namespace)
            if selector.matches(pod["metadata"].get("labels") or {})
        ]
        yield from self._check_alone(text, pods, current)
        question = Question(
            pods,
            current,
            self._tolerances,
            Readiness(self._options.cpu_initialization_s, self._options.readiness_delay_s),
            self._now_s,
        )
        return Target(self._namespace, text, status.get("replicas", 0), question)

    def _selector(self, text: str, current: int) -> Generator[Step, list[Outcome], labels.Selector]:
        if not text:
            yield [self._record("Warning", "SelectorRequired", "selector is required")]
            message = "the HPA target's scale is missing a selector"
            self._say("ScalingActive", "False", "InvalidSelector", message)
            yield from self._give_up(AutoscalingError("selector is required"), current, None)
        try:
            selector = labels.parse(text)
        except SelectorError as error:
            message = (
                f"couldn't convert selector into a corresponding internal selector object: {error}"
            )
            yield [self._record("Warning", "InvalidSelector", message)]
            self._say("ScalingActive", "False", "InvalidSelector", message)
            yield from self._give_up(AutoscalingError(message), current, None)
        self._memories.selectors[self._key] = selector
        return selector

    def _check_alone(self, text: str, pods: Sequence[Object], current: int) -> Work:
        """Give up if another autoscaler has pods of this target."""
        others = [
            key
            for key, selector in self._memories.selectors.items()
            if key.partition("/")[0] == self._namespace
            and any(selector.matches(pod["metadata"].get("labels") or {}) for pod in pods)
        ]
        if len(others) <= 1:
            return
        names = " ".join(f"{{{key.partition('/')[2]} {self._namespace}}}" for key in others[:2])
        message = f"pods by selector {text} are controlled by more than one HPA (e.g. [{names}])"
        yield [self._record("Warning", "AmbiguousSelector", message)]
        self._say("ScalingActive", "False", "AmbiguousSelector", message)
        yield from self._give_up(AutoscalingError(message), current, None)

    @property
    def _tolerances(self) -> Tolerances:
        behavior = self._spec.get("behavior") or {}

        def of(direction: str) -> float:
            text = (behavior.get(direction) or {}).get("tolerance")
            return self._options.tolerance if text is None else parse(text).as_float()

        return Tolerances(of("scaleDown"), of("scaleUp"))

    def _give_up(
        self, error: Exception, current: int, metric_statuses: list[Object] | None
    ) -> Generator[Step, list[Outcome], NoReturn]:
        """Report that no metric could be used, and raise."""
        yield from self._write(current, None, metric_statuses)
        yield [self._record("Warning", "FailedComputeMetricsReplicas", str(error))]
        target = self._spec["scaleTargetRef"]
        reference = f"{target['kind']}/{self._namespace}/{target['name']}"
        raise AutoscalingError(
            "failed to compute desired number of replicas based on listed metrics for"
            f" {reference}: {error}"
        )

    # Status.

    def _record(self, type_: str, reason: str, message: str) -> Record:
        return Record(self._autoscaler, type_, reason, message)

    def _say(self, type_: str, status: str, reason: str, message: str) -> None:
        """Set a condition in its place."""
        new: Object = {
            "type": type_,
            "status": status,
            "lastTransitionTime": format_time(self._now_s),
            "reason": reason,
            "message": message,
        }
        self._conditions = conditions.set_condition(self._conditions, new)

    def _write(
        self,
        current: int,
        desired: int | None,
        metric_statuses: list[Object] | None,
        *,
        is_rescaled: bool = False,
    ) -> Work:
        """Write the status; desired: None keeps the last value."""
        before = self._status
        status: Object = {
            "observedGeneration": self._autoscaler["metadata"].get("generation", 0),
            "desiredReplicas": before.get("desiredReplicas", 0) if desired is None else desired,
            "currentMetrics": metric_statuses,
        }
        if current:
            status["currentReplicas"] = current
        if is_rescaled:
            status["lastScaleTime"] = format_time(self._now_s)
        elif "lastScaleTime" in before:
            status["lastScaleTime"] = before["lastScaleTime"]
        self._status = status
        yield from self._write_conditions()

    def _write_conditions(self) -> Work:
        status = {"desiredReplicas": 0, "currentMetrics": None, **self._status}
        status["conditions"] = self._conditions
        known: Object = {"desiredReplicas": 0, "currentMetrics": None, "conditions": []}
        if status == {**known, **(self._autoscaler.get("status") or {})}:
            return
        changed = {**self._autoscaler, "status": status}
        [outcome] = yield [Update(HORIZONTAL_POD_AUTOSCALERS, changed, "status")]
        if outcome.error is not None:
            yield [self._record("Warning", "FailedUpdateStatus", str(outcome.error))]
            raise outcome.error
        self._autoscaler = outcome.result()
