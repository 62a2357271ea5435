"""ResourceQuota: limits what a namespace uses to its quotas.

    writes of one namespace ──► charged one after the other ──► one write of each quota ──► admitted

Usage is written into the status of the quotas before the object is stored, with optimistic locking,
so that it also holds when several API servers admit at once. Writes that arrive while quotas are
being written are charged together. A write that fails afterwards stays charged until the controller
recounts.
"""

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from typing import Final

from kvstack.apimachinery.objects import resources, status
from kvstack.apimachinery.objects.core.group_resources import NAMESPACES, QUOTAS
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apiserver.policy.admission.request import CREATE, UPDATE, AdmissionRequest
from kvstack.apiserver.policy.interfaces import LiveObjects, ObjectView
from kvstack.apiserver.policy.quota.charged_writes import may_change_usage
from kvstack.apiserver.policy.quota.check import charge, used_of
from kvstack.apiserver.policy.quota.limited import LimitedResource
from kvstack.component.clock import Clock

TIMEOUT_S: Final = 10.0
_TRIES_MAX: Final = 4
_AUTHENTICATION: Final = "authentication.k8s.io"
_AUTHORIZATION: Final = "authorization.k8s.io"
_IGNORED: Final = frozenset(
    (
        GroupResource("", "bindings"),
        GroupResource("", "componentstatuses"),
        GroupResource("", "events"),
        GroupResource("events.k8s.io", "events"),
        GroupResource(_AUTHENTICATION, "selfsubjectreviews"),
        GroupResource(_AUTHENTICATION, "tokenreviews"),
        GroupResource(_AUTHORIZATION, "localsubjectaccessreviews"),
        GroupResource(_AUTHORIZATION, "selfsubjectaccessreviews"),
        GroupResource(_AUTHORIZATION, "selfsubjectrulesreviews"),
        GroupResource(_AUTHORIZATION, "subjectaccessreviews"),
    )
)


@dataclass(slots=True, eq=False)
class _Waiter:
    """A write that waits to be charged."""

    request: AdmissionRequest
    answer: "asyncio.Future[None]"

    def settle(self, error: ApiError | None = None) -> None:
        """Admit or refuse it; only the first call counts."""
        if self.answer.done():
            return
        if error is None:
            self.answer.set_result(None)
        else:
            self.answer.set_exception(error)


class ResourceQuota:
    """Charges writes to the quotas of their namespaces."""

    name = "ResourceQuota"

    def __init__(
        self,
        view: ObjectView,
        live: LiveObjects,
        clock: Clock,
        limited: Iterable[LimitedResource] = (),
    ) -> None:
        """limited: resources that may only be used with a quota."""
        self._limited: dict[GroupResource, list[LimitedResource]] = {}
        for each in limited:
            self._limited.setdefault(each.resource, []).append(each)
        self._view: Final = view
        self._live: Final = live
        self._clock: Final = clock
        self._written: dict[tuple[str, str], Object] = {}
        self._waiting: dict[str, list[_Waiter]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def handles(self, operation: str, resource: GroupResource, subresource: str) -> bool:
        """Return whether a write may increase usage."""
        if operation not in {CREATE, UPDATE} or resource in _IGNORED:
            return False
        if resource == NAMESPACES and operation == CREATE:
            return False
        return subresource in {"", "resize", "status"}

    def validate(self, request: AdmissionRequest) -> Awaitable[None] | None:
        """Charge a write; raises ApiError 403 if it exceeds a quota."""
        if not request.namespace or not may_change_usage(request):
            return None
        if request.resource not in self._limited and not any(
            True for _ in self._view.list(QUOTAS, request.namespace)
        ):
            return None
        return self._charge(request)

    async def _charge(self, request: AdmissionRequest) -> None:
        namespace = request.namespace
        waiter = _Waiter(request, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(namespace, []).append(waiter)
        if namespace not in self._tasks:
            task = asyncio.create_task(self._work(namespace), name=f"quotas of {namespace}")
            self._tasks[namespace] = task
        try:
            await asyncio.wait_for(waiter.answer, TIMEOUT_S)
        except TimeoutError:
            raise status.internal_error("resource quota evaluation timed out") from None

    async def _work(self, namespace: str) -> None:
        """Charge waiting writes until there are none."""
        batch: list[_Waiter] = []
        try:
            while batch := self._waiting.pop(namespace, []):
                await self._charge_batch(namespace, batch)
        except BaseException as error:
            # The waiting writes get the error; nothing awaits the task itself.
            message = f"resource quota evaluation failed: {error!r}"
            for waiter in (*batch, *self._waiting.pop(namespace, ())):
                waiter.settle(status.internal_error(message))
            raise
        finally:
            del self._tasks[namespace]

    async def _charge_batch(self, namespace: str, batch: list[_Waiter]) -> None:
        names: set[str] | None = None
        for attempt in range(_TRIES_MAX):
            quotas = self._quotas(namespace, names)
            charged = self._check(quotas, batch)
            failed: dict[str, ApiError] = {}
            for before, after in zip(quotas, charged, strict=True):
                if resources.equal(used_of(before), used_of(after)):
                    continue
                try:
                    await self._write(after)
                except ApiError as error:
                    failed[after["metadata"]["name"]] = error
            if not failed:
                break
            if attempt == _TRIES_MAX - 1:
                _settle(batch, next(iter(failed.values())))
                return
            # The other quotas are written; only these have to be charged again.
            names = set(failed)
            await self._live.catch_up()
        _settle(batch, None)

    def _check(self, quotas: list[Object], batch: list[_Waiter]) -> list[Object]:
        """Return the quotas charged with all writes that fit, and refuse the others."""
        now = self._clock.unix_ms() / 1000
        for waiter in batch:
            if waiter.answer.done():
                continue
            try:
                limited = self._limited.get(waiter.request.resource, ())
                charged = charge(quotas, waiter.request, now, limited)
            except ApiError as error:
                waiter.settle(error)
                continue
            if waiter.request.is_dry_run:
                waiter.settle()
            else:
                quotas = charged
        return quotas

    def _quotas(self, namespace: str, names: set[str] | None) -> list[Object]:
        """Return the quotas of a namespace, or some of them, at their newest known state."""
        found: list[Object] = []
        for quota in self._view.list(QUOTAS, namespace):
            name = quota["metadata"]["name"]
            if names is None or name in names:
                found.append(self._newer(quota))
        return found

    def _newer(self, quota: Object) -> Object:
        """Return what was last written here, unless the watch cache has it or something newer."""
        metadata = quota["metadata"]
        key = metadata["namespace"], metadata["name"]
        written = self._written.get(key)
        if written is None:
            return quota
        if _revision(quota) >= _revision(written):
            del self._written[key]
            return quota
        return written

    async def _write(self, quota: Object) -> None:
        stored = await self._live.replace(QUOTAS, quota, "status")
        metadata = stored["metadata"]
        self._written[metadata["namespace"], metadata["name"]] = stored


def _settle(batch: list[_Waiter], error: ApiError | None) -> None:
    for waiter in batch:
        waiter.settle(error)


def _revision(quota: Object) -> int:
    return int(quota["metadata"]["resourceVersion"])
