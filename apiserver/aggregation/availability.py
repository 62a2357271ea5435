"""Availability checks of aggregated API servers: the condition Available of APIServices.

    keeper = AvailabilityKeeper(registry, backends, services, logger)
    await keeper.begin();  await keeper.end()

A server is checked when its APIService, Service or endpoints change, every 30 seconds, and sooner
while it fails. Of five concurrent attempts one success is enough. An APIService without a Service
is local and always available; the condition is restored if it is overwritten.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from kvstack.apimachinery.objects.core.conditions import find, set_condition
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.text import json_text
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apimachinery.well_known import SERVICE_NAME_LABEL
from kvstack.apiserver.aggregation.backend import BackendError, Backends
from kvstack.apiserver.aggregation.remotes import API_SERVICES, AVAILABLE, Remote, remote_of
from kvstack.apiserver.kinds.api_services import LOCAL, LOCAL_MESSAGE
from kvstack.apiserver.registry.registry import Registry
from kvstack.apiserver.registry.timing import now_text
from kvstack.apiserver.registry.view import Change
from kvstack.apiserver.webhooks.services import SERVICES, SLICES, Services
from kvstack.component.logger import Logger
from kvstack.component.metrics.exposition import FamilyKind, FamilySamples
from kvstack.component.metrics.labelled import LabelledCounter, by_labels
from kvstore.client.errors import StoreError

PERIOD_S: Final = 30.0
RETRY_S: Final = 1.0
QUESTION_S: Final = 5.0
QUESTIONS: Final = 5
_BYTES_MAX: Final = 4 << 20


class Finding(NamedTuple):
    """The value of the condition."""

    is_available: bool
    reason: str
    message: str

    @property
    def condition(self) -> dict[str, str]:
        """Return the members of the condition."""
        status = "True" if self.is_available else "False"
        return {"status": status, "reason": self.reason, "message": self.message}


_LOCAL: Final = Finding(is_available=True, reason=LOCAL, message=LOCAL_MESSAGE)


class AvailabilityKeeper:
    """Maintains the condition of every APIService."""

    def __init__(
        self,
        registry: Registry,
        backends: Backends,
        services: Services,
        logger: Logger,
        *,
        looks_at_others: bool = True,
    ) -> None:
        """looks_at_others: if False, conditions of aggregated servers are not changed."""
        self._looks_at_others: Final = looks_at_others
        self._registry: Final = registry
        self._backends: Final = backends
        self._services: Final = services
        self._logger: Final = logger
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._wakes: dict[str, asyncio.Event] = {}
        self._users: dict[tuple[str, str], set[str]] = {}
        """The APIServices by the namespace and name of their Service."""
        self._found: dict[str, Finding] = {}
        """The last finding by APIService."""
        self._lost: Final = LabelledCounter(
            "aggregator_unavailable_apiservice_total",
            "Counter of APIServices which are marked as unavailable broken down by APIService name"
            " and reason.",
            *("name", "reason"),
        )

    async def begin(self) -> None:
        """Start checking."""
        view = self._registry.view
        view.subscribe(API_SERVICES, self._note)
        view.subscribe(SERVICES, self._note_service)
        view.subscribe(SLICES, self._note_slices)

    def readings(self) -> Iterator[FamilySamples]:
        """Yield the families of metrics."""
        yield (
            "aggregator_unavailable_apiservice",
            FamilyKind.GAUGE,
            "Gauge of APIServices which are marked as unavailable broken down by APIService name.",
            by_labels(
                ("name",),
                {(name,): 0 if each.is_available else 1 for name, each in self._found.items()},
            ),
        )
        yield self._lost.samples()

    def look_again(self) -> None:
        """Check all servers now."""
        for name in self._tasks:
            self._wakes[name].set()

    async def end(self) -> None:
        """Stop checking."""
        tasks, self._tasks = list(self._tasks.values()), {}
        for each in tasks:
            each.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _note(self, changes: Sequence[Change]) -> None:
        for change in changes:
            obj = change.object or change.previous
            assert obj is not None, "a change is of something"
            name = obj["metadata"]["name"]
            for users in self._users.values():
                users.discard(name)
            if change.object is None:
                self._found.pop(name, None)
                task = self._tasks.pop(name, None)
                if task is not None:
                    task.cancel()
                continue
            remote = remote_of(obj)
            if remote is None:
                if name in self._tasks or not _is_reported(obj, _LOCAL):
                    self._wake(name)
                continue
            self._users.setdefault((remote.namespace, remote.service), set()).add(name)
            if change.previous is None or change.previous["spec"] != obj["spec"]:
                self._wake(name)

    def _note_service(self, changes: Sequence[Change]) -> None:
        for change in changes:
            metadata = (change.object or change.previous or {})["metadata"]
            self._wake_users(metadata.get("namespace", ""), metadata["name"])

    def _note_slices(self, changes: Sequence[Change]) -> None:
        for change in changes:
            metadata = (change.object or change.previous or {})["metadata"]
            service = (metadata.get("labels") or {}).get(SERVICE_NAME_LABEL, "")
            self._wake_users(metadata.get("namespace", ""), service)

    def _wake_users(self, namespace: str, service: str) -> None:
        for name in self._users.get((namespace, service), ()):
            self._wake(name)

    def _wake(self, name: str) -> None:
        wake = self._wakes.setdefault(name, asyncio.Event())
        wake.set()
        if name not in self._tasks:
            self._tasks[name] = asyncio.create_task(self._keep(name, wake), name=f"look at {name}")

    async def _keep(self, name: str, wake: asyncio.Event) -> None:
        retry_s = RETRY_S
        while True:
            wake.clear()
            is_fine = await self._look(name)
            if is_fine and self._is_local(name) and not wake.is_set():
                del self._tasks[name]
                return
            retry_s = RETRY_S if is_fine else min(retry_s * 2, PERIOD_S)
            try:
                async with asyncio.timeout(PERIOD_S if is_fine else retry_s):
                    await wake.wait()
            except TimeoutError:
                continue

    def _is_local(self, name: str) -> bool:
        obj = self._registry.view.get(API_SERVICES, "", name)
        return obj is not None and remote_of(obj) is None

    async def _look(self, name: str) -> bool:
        """Check one server; return whether it is reachable and its condition was written."""
        obj = self._registry.view.get(API_SERVICES, "", name)
        if obj is None:
            return True
        remote = remote_of(obj)
        if remote is not None and not self._looks_at_others:
            return True
        finding = _LOCAL if remote is None else await self.find(remote)
        before = self._found.get(name)
        if not finding.is_available and (before is None or before.is_available):
            self._lost.add(name, finding.reason)
        self._found[name] = finding
        try:
            await self._write_condition(obj, finding)
        except (ApiError, StoreError) as error:
            if not isinstance(error, ApiError) or not (error.is_not_found or error.is_conflict):
                self._logger.warning(
                    "failed to write an APIService condition", name=name, error=str(error)
                )
            return False
        return finding.is_available

    async def find(self, remote: Remote) -> Finding:
        """Return the condition of a server."""
        return self._service_fault(remote) or await self._ask(remote)

    def _service_fault(self, remote: Remote) -> Finding | None:
        name, namespace = remote.service, remote.namespace
        service_text = f"service/{name} in {quote(namespace)}"
        service = self._registry.view.get(SERVICES, namespace, name)
        if service is None:
            return Finding(False, "ServiceNotFound", f"{service_text} is not present")
        spec = service.get("spec") or {}
        if spec.get("type", "ClusterIP") != "ClusterIP":
            return None
        ports = [each for each in spec.get("ports") or () if each.get("port") == remote.port]
        if not ports:
            message = f"{service_text} is not listening on port {remote.port}"
            return Finding(False, "ServicePortError", message)
        slices = self._services.slices(namespace, name)
        if not slices:
            message = f"cannot find endpointslices for {service_text}"
            return Finding(False, "EndpointsNotFound", message)
        port_name = ports[0].get("name", "")
        if not any(_has_address(each, port_name) for each in slices):
            message = f"endpointslices for {service_text} have no addresses with port name"
            return Finding(False, "MissingEndpoints", f"{message} {quote(port_name)}")
        return None

    async def _ask(self, remote: Remote) -> Finding:
        """Make several concurrent attempts; one success is enough."""
        checks = [asyncio.ensure_future(self._ask_once(remote)) for _ in range(QUESTIONS)]
        message = ""
        try:
            for each in asyncio.as_completed(checks):
                message = await each
                if not message:
                    return Finding(True, "Passed", "all checks passed")
        finally:
            for question in checks:
                question.cancel()
        return Finding(False, "FailedDiscoveryCheck", message)

    async def _ask_once(self, remote: Remote) -> str:
        """Return what is wrong; empty: nothing."""
        try:
            host, port = self._backends.address(remote)
        except BackendError as error:
            return str(error)
        shown = f"[{host}]" if ":" in host else host
        url = f"https://{shown}:{port}{remote.path}"
        try:
            async with asyncio.timeout(QUESTION_S):
                code, _, _ = await self._backends.get(remote, remote.path, [], _BYTES_MAX)
        except TimeoutError:
            why = f'Get "{url}": context deadline exceeded'
        except BackendError as error:
            why = f'Get "{url}": {error}'
        else:
            if 200 <= code < 300:
                return ""
            why = f"bad status from {url}: {code}"
        return f"failing or missing response from {url}: {why}"

    async def _write_condition(self, obj: Object, finding: Finding) -> None:
        if _is_reported(obj, finding):
            return
        condition: Object = {
            "type": AVAILABLE,
            **finding.condition,
            "lastTransitionTime": now_text(self._registry.clock),
        }
        new: Object = json_text.copied(obj)
        status = new.setdefault("status", {})
        status["conditions"] = set_condition(status.get("conditions"), condition)
        await self._registry.live.replace(API_SERVICES, new, "status")


def _is_reported(obj: Object, finding: Finding) -> bool:
    """Return whether the condition of an APIService already says so."""
    known = find((obj.get("status") or {}).get("conditions"), AVAILABLE)
    return known is not None and finding.condition.items() <= known.items()


def _has_address(found: Object, port_name: str) -> bool:
    has_port = any((each.get("name") or "") == port_name for each in found.get("ports") or ())
    return has_port and any(each.get("addresses") for each in found.get("endpoints") or ())
