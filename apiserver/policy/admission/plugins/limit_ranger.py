"""LimitRanger: keeps requests and limits of containers, pods and claims within LimitRanges.

    LimitRange: min, max, maxLimitRequestRatio, default, defaultRequest, by type and resource

Containers without requests get the defaults, which an annotation of the pod records. A namespace
that seems to have no LimitRanges is read from the store, but not for each pod.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeAlias

from kvstack.apimachinery.objects.core.group_resources import CLAIMS, LIMIT_RANGES, PODS
from kvstack.apimachinery.objects.core.pod_resources import LIMITS, REQUESTS, amounts, pod_total
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.quantity import ZERO, Quantity
from kvstack.apimachinery.objects.text import go_text
from kvstack.apiserver.policy.admission.plugin import Listed, calls
from kvstack.apiserver.policy.admission.request import CREATE, UPDATE, AdmissionRequest
from kvstack.apiserver.policy.interfaces import LiveObjects, ObjectView
from kvstack.component.clock import Clock

Amounts: TypeAlias = Mapping[str, Quantity]
_Hook: TypeAlias = Callable[[AdmissionRequest, Iterable[Object]], None]

_ANNOTATION: Final = "kubernetes.io/limit-ranger"
_LOOKED_UP_NS: Final = 30_000_000_000
_LOOKED_UP_MAX: Final = 10_000
_MILLI_MAX: Final = (1 << 63) // 1000
_CONTAINERS: Final = (("containers", "container"), ("initContainers", "init container"))


class LimitRanger(Listed):
    """Fills in defaults and enforces limits."""

    name = "LimitRanger"
    calls = (
        calls((CREATE,), PODS) | calls((UPDATE,), PODS, "resize") | calls((CREATE, UPDATE), CLAIMS)
    )

    def __init__(self, view: ObjectView, live: LiveObjects, clock: Clock) -> None:
        self._view: Final = view
        self._live: Final = live
        self._clock: Final = clock
        self._looked_up: dict[str, int] = {}

    def mutate(self, request: AdmissionRequest) -> Awaitable[None] | None:
        """Apply default requests and limits to a pod."""
        return self._with_limits(request, _fill_in) if request.resource == PODS else None

    def validate(self, request: AdmissionRequest) -> Awaitable[None] | None:
        """Enforce minimum, maximum and ratio."""
        return self._with_limits(request, _enforce)

    def _with_limits(self, request: AdmissionRequest, hook: _Hook) -> Awaitable[None] | None:
        old = request.old
        if old is not None and old["metadata"].get("deletionTimestamp"):
            return None
        found = list(self._view.list(LIMIT_RANGES, request.namespace))
        if not found and self._is_due(request.namespace):
            return self._look_again(request, hook)
        hook(request, found)
        return None

    async def _look_again(self, request: AdmissionRequest, hook: _Hook) -> None:
        await self._live.catch_up()
        hook(request, list(self._view.list(LIMIT_RANGES, request.namespace)))

    def _is_due(self, namespace: str) -> bool:
        now = self._clock.monotonic_ns()
        if now < self._looked_up.get(namespace, 0):
            return False
        if len(self._looked_up) >= _LOOKED_UP_MAX:
            self._looked_up.clear()
        self._looked_up[namespace] = now + _LOOKED_UP_NS
        return True


def _limits(limit_range: Object, kind: str) -> Iterable[Object]:
    for limit in (limit_range.get("spec") or {}).get("limits") or ():
        if limit.get("type") == kind:
            yield limit


def _fill_in(request: AdmissionRequest, limit_ranges: Iterable[Object]) -> None:
    for limit_range in limit_ranges:
        requests: dict[str, str] = {}
        limits: dict[str, str] = {}
        for limit in _limits(limit_range, "Container"):
            requests |= limit.get("defaultRequest") or {}
            limits |= limit.get("default") or {}
        if requests or limits:
            _fill_in_pod(request, requests, limits)


def _fill_in_pod(
    request: AdmissionRequest, requests: Mapping[str, str], limits: Mapping[str, str]
) -> None:
    changes: list[str] = []
    spec = request.own("spec")
    for member, kind in _CONTAINERS:
        if spec.get(member):
            spec[member] = [
                _filled_in(each, kind, requests, limits, changes) for each in spec[member]
            ]
    if changes:
        metadata = request.own("metadata")
        text = f"LimitRanger plugin set: {'; '.join(changes)}"
        metadata["annotations"] = {**(metadata.get("annotations") or {}), _ANNOTATION: text}


def _filled_in(
    container: Object,
    kind: str,
    requests: Mapping[str, str],
    limits: Mapping[str, str],
    changes: list[str],
) -> Object:
    resources = dict(container.get("resources") or {})
    for member, word, defaults in (("requests", "request", requests), ("limits", "limit", limits)):
        given = resources.get(member) or {}
        missing = sorted(defaults.keys() - given.keys())
        if missing:
            resources[member] = {**given, **{name: defaults[name] for name in missing}}
            changes.append(f"{', '.join(missing)} {word} for {kind} {container.get('name', '')}")
    return {**container, "resources": resources}


def _enforce(request: AdmissionRequest, limit_ranges: Iterable[Object]) -> None:
    spec = request.new.get("spec") or {}
    for limit_range in limit_ranges:
        errors = (
            _claim_errors(limit_range, spec)
            if request.resource == CLAIMS
            else (_pod_errors(limit_range, spec))
        )
        if errors:
            raise request.forbidden(go_text.aggregate(errors))


def _claim_errors(limit_range: Object, spec: Object) -> list[str]:
    kind = "PersistentVolumeClaim"
    requests = amounts(spec.get("resources"), REQUESTS)
    errors: list[str] = []
    for limit in _limits(limit_range, kind):
        for name, least in _sorted(limit, "min"):
            errors += _below(kind, name, least, requests, {})
        for name, most in _sorted(limit, "max"):
            # Claims have no limits set by users, so only requests count.
            start = f"maximum {name} usage per {kind} is {most}"
            if name not in requests:
                errors.append(f"{start}.  No request is specified")
                continue
            asked, _, bound = _compared(requests[name], ZERO, most)
            if asked > bound:
                errors.append(f"{start}, but request is {requests[name]}")
    return errors


def _pod_errors(limit_range: Object, spec: Object) -> list[str]:
    errors: list[str] = []
    for limit in (limit_range.get("spec") or {}).get("limits") or ():
        if limit.get("type") == "Container":
            for member, _ in _CONTAINERS:
                for container in spec.get(member) or ():
                    resources = container.get("resources")
                    requests = amounts(resources, REQUESTS)
                    limits = amounts(resources, LIMITS)
                    errors += _errors("Container", limit, requests, limits)
        elif limit.get("type") == "Pod":
            totals = (pod_total(spec, REQUESTS), pod_total(spec, LIMITS))
            errors += _errors("Pod", limit, *totals)
    return errors


def _errors(kind: str, limit: Object, requests: Amounts, limits: Amounts) -> list[str]:
    errors: list[str] = []
    for name, least in _sorted(limit, "min"):
        errors += _below(kind, name, least, requests, limits)
    for name, most in _sorted(limit, "max"):
        errors += _above(kind, name, most, requests, limits)
    for name, ratio in _sorted(limit, "maxLimitRequestRatio"):
        errors += _beyond_ratio(kind, name, ratio, requests, limits)
    return errors


def _below(kind: str, name: str, least: Quantity, requests: Amounts, limits: Amounts) -> list[str]:
    start = f"minimum {name} usage per {kind} is {least}"
    if name not in requests:
        return [f"{start}.  No request is specified"]
    request, limit = requests[name], limits.get(name)
    asked, limited, bound = _compared(request, limit or ZERO, least)
    if asked < bound:
        return [f"{start}, but request is {request}"]
    if limit is not None and limited < bound:
        return [f"{start}, but limit is {limit}"]
    return []


def _above(kind: str, name: str, most: Quantity, requests: Amounts, limits: Amounts) -> list[str]:
    start = f"maximum {name} usage per {kind} is {most}"
    if name not in limits:
        return [f"{start}.  No limit is specified"]
    request, limit = requests.get(name), limits[name]
    asked, limited, bound = _compared(request or ZERO, limit, most)
    if limited > bound:
        return [f"{start}, but limit is {limit}"]
    if request is not None and asked > bound:
        return [f"{start}, but request is {request}"]
    return []


def _beyond_ratio(
    kind: str, name: str, ratio: Quantity, requests: Amounts, limits: Amounts
) -> list[str]:
    start = f"{name} max limit to request ratio per {kind} is {ratio}"
    asked, limited, _ = _compared(requests.get(name, ZERO), limits.get(name, ZERO), ZERO)
    if not asked:
        return [f"{start}, but no request is specified or request is 0"]
    if not limited:
        return [f"{start}, but no limit is specified or limit is 0"]
    found = limited / asked
    if found * 1000 > ratio.milli_value():
        return [f"{start}, but provided ratio is {found:.6f}"]
    return []


def _compared(request: Quantity, limit: Quantity, bound: Quantity) -> tuple[int, int, int]:
    """Return three quantities as whole numbers, in thousandths if these are not too large."""
    amounts = (request, limit, bound)
    whole = [each.value() for each in amounts]
    if all(each <= _MILLI_MAX for each in whole):
        whole = [each.milli_value() for each in amounts]
    return whole[0], whole[1], whole[2]


def _sorted(limit: Object, member: str) -> Iterable[tuple[str, Quantity]]:
    return sorted(amounts(limit, member).items())
