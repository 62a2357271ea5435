"""Auditing of requests: the events of their stages.

    RequestReceived    when the user is known
    ResponseStarted    when the head of a watch or stream is sent, or authentication failed
    ResponseComplete   when the answer is over
    Panic              when it failed unexpectedly

Requests that the policy does not record cost one lookup.
"""

import asyncio
from collections.abc import Awaitable, Iterator
from ipaddress import ip_address
from typing import Any, Final

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apiserver.http.answers import Reply
from kvstack.apiserver.http.request_context import RequestContext
from kvstack.apiserver.policy.audit.audit_context import AuditContext, Facts
from kvstack.apiserver.policy.audit.policy import (
    COMPLETE,
    LEVELS,
    NONE,
    PANIC,
    RECEIVED,
    STARTED,
    Policy,
    Recording,
)
from kvstack.apiserver.policy.audit.sinks import Errors, Sink
from kvstack.apiserver.policy.interfaces import Decision
from kvstack.apiserver.policy.permission import attributes_of
from kvstack.apiserver.registry.reads import Page
from kvstack.apiserver.verbs.endpoint import Endpoint
from kvstack.apiserver.verbs.results import Computed, Listing, Result, Stored
from kvstack.component.clock import Clock
from kvstack.component.http.serving.request import Request
from kvstack.component.metrics.exposition import FamilyKind, FamilySamples, labels

DECISION: Final = "authorization.k8s.io/decision"
REASON: Final = "authorization.k8s.io/reason"
USERS_MAX: Final = 256
"""Number of users per route for whom the audit level is cached."""
_STATUS_MEMBERS: Final = ("status", "message", "reason", "details", "code")


class Auditing:
    """Records requests according to a policy."""

    def __init__(self, policy: Policy, sink: Sink | None, errors: Errors, clock: Clock) -> None:
        """Send events to a sink; None: nowhere."""
        self._policy: Final = policy
        self._sink: Final = sink
        self._errors: Final = errors
        self._clock: Final = clock
        self._tasks: set[asyncio.Task[None]] = set()
        self.levels: Final = [0] * len(LEVELS)
        """Number of requests by level."""
        self.event_count = 0
        self.rejected_count = 0

    def recording(self, context: RequestContext) -> Recording | None:
        """Count a request whose user is known; return how it is recorded, None: it is not."""
        if not self._policy.rules:
            self.levels[NONE] += 1
            return None
        found = self._recording(context)
        self.levels[found.level] += 1
        return None if found.level == NONE else found

    async def begin(self, context: RequestContext, recording: Recording) -> None:
        """Start recording a request; raises ApiError 500 if it must be recorded and cannot be."""
        reply = context.reply
        reply.audit = self._audit_context(context, recording)
        if not await self._send(reply.audit, RECEIVED):
            reply.audit = None
            self.rejected_count += 1
            raise status.internal_error("failed to store audit event")
        if context.route.is_long:
            reply.on_head = self._started

    async def unauthenticated(self, context: RequestContext) -> None:
        """Record a request that could not be authenticated."""
        recording = self._recording(context)
        self.levels[recording.level] += 1
        if recording.level == NONE:
            return
        audit = self._audit_context(context, recording)
        audit.status = {
            "metadata": {},
            "status": "Failure",
            "message": _tried(context.request),
            "reason": "Unauthorized",
            "code": 401,
        }
        await self._send(audit, STARTED)

    async def completed(self, reply: Reply) -> None:
        """Record the end of an answer."""
        audit = reply.audit
        if audit is None:
            return
        reply.audit = None
        if audit.status is None or "status" not in audit.status:
            audit.status = _status_of(reply.code)
        await self._send(audit, COMPLETE)

    def panicked(self, reply: Reply, error: Exception) -> None:
        """Record the unexpected failure of a request."""
        audit = reply.audit
        if audit is None:
            return
        reply.audit = None
        audit.status = {
            "metadata": {},
            "status": "Failure",
            "message": f"APIServer panic'd: {error!r}",
            "reason": "InternalError",
            "code": 500,
        }
        self._later(audit, PANIC)

    def readings(self) -> Iterator[FamilySamples]:
        """Yield the families of metrics."""
        yield (
            "apiserver_audit_event_total",
            FamilyKind.COUNTER,
            "Counter of audit events generated and sent to the audit backend.",
            {"": self.event_count},
        )
        yield (
            "apiserver_audit_requests_rejected_total",
            FamilyKind.COUNTER,
            "Counter of apiserver requests rejected due to an error in audit logging backend.",
            {"": self.rejected_count},
        )
        yield (
            "apiserver_audit_level_total",
            FamilyKind.COUNTER,
            "Counter of policy levels for audit events (1 per request).",
            {labels(level=name): n for name, n in zip(LEVELS, self.levels, strict=True)},
        )
        yield (
            "apiserver_audit_error_total",
            FamilyKind.COUNTER,
            "Counter of audit events that failed to be audited properly. Plugin identifies the"
            " plugin affected by the error.",
            {labels(plugin=name): count for name, count in self._errors.counts.items()},
        )

    def _recording(self, context: RequestContext) -> Recording:
        route, user = context.route, context.user
        recordings = route.recordings
        if recordings is None:
            recordings = route.recordings = {}
        key = user.name, user.groups
        found = recordings.get(key)
        if found is None:
            if len(recordings) >= USERS_MAX:
                recordings.clear()
            found = recordings[key] = self._policy.of(attributes_of(route.info, user))
        return found

    def _audit_context(self, context: RequestContext, recording: Recording) -> AuditContext:
        request, began_ns = context.request, context.began_ns
        elapsed_us = (self._clock.monotonic_ns() - began_ns) // 1000
        facts = Facts(
            context.reply.audit_id,
            request.target,
            attributes_of(context.route.info, context.user),
            tuple(source_ips(request)),
            request.header("user-agent"),
            self._clock.unix_ms() * 1000 - elapsed_us,
            began_ns,
        )
        return AuditContext(recording, facts)

    def _started(self, reply: Reply) -> None:
        if reply.audit is not None:
            reply.audit.status = _status_of(reply.code)
            self._later(reply.audit, STARTED)

    def _later(self, audit: AuditContext, stage: str) -> None:
        """Send an event from where the sender cannot wait."""
        found = self._process(audit, stage)
        if isinstance(found, bool):
            return
        task = asyncio.ensure_future(_finish(found))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, audit: AuditContext, stage: str) -> bool:
        found = self._process(audit, stage)
        return found if isinstance(found, bool) else await found

    def _process(self, audit: AuditContext, stage: str) -> bool | Awaitable[bool]:
        if self._sink is None or stage in audit.recording.omit_stages:
            return True
        self.event_count += 1
        facts = audit.facts
        elapsed_us = 0
        if stage != RECEIVED:
            elapsed_us = (self._clock.monotonic_ns() - facts.began_ns) // 1000
        return self._sink.process([audit.event(stage, facts.received_us + elapsed_us)])


async def _finish(found: Awaitable[bool]) -> None:
    await found


# Details that handlers add.


def note_error(audit: AuditContext, error: ApiError) -> None:
    """Record the error that is answered."""
    error_status = error.status
    response_status: dict[str, Any] = {
        name: error_status[name] for name in _STATUS_MEMBERS if name in error_status
    }
    audit.status = {"metadata": {}, **response_status}
    if audit.wants_response:
        audit.record_response(error_status)


def note_decision(audit: AuditContext, decision: Decision) -> None:
    """Record the authorization decision."""
    audit.annotate(DECISION, "allow" if decision.allowed else "forbid")
    audit.annotate(REASON, decision.reason)


def note_result(audit: AuditContext, endpoint: Endpoint, result: Result) -> None:
    """Record the answer: a Status, and the object if the level includes it."""
    if isinstance(result, Computed) and result.kind.kind == "Status":
        response_status: dict[str, Any] = {
            name: result.obj[name] for name in _STATUS_MEMBERS if name in result.obj
        }
        audit.status = {"metadata": {}, **response_status, "code": result.code}
    if not audit.wants_response:
        return
    match result:
        case Stored(record):
            audit.record_response(endpoint.from_hub(record.parse()))
        case Computed(obj, kind):
            audit.record_response({"kind": kind.kind, "apiVersion": kind.api_version, **obj})
        case Listing(page):
            audit.record_response(_list_of(endpoint, page))
        case _:
            return


def _list_of(endpoint: Endpoint, page: Page) -> dict[str, Any]:
    items: list[Any] = [endpoint.from_hub(each.parse()) for each in page.records]
    if not endpoint.row.is_custom:  # only custom resources have their kind in lists
        items = [
            {name: value for name, value in each.items() if name not in ("kind", "apiVersion")}
            for each in items
        ]
    metadata: dict[str, Any] = {"resourceVersion": str(page.revision)}
    if page.continue_token:
        metadata["continue"] = page.continue_token
    if page.remaining is not None:
        metadata["remainingItemCount"] = page.remaining
    kind = endpoint.row.kind
    return {
        "kind": f"{kind.kind}List",
        "apiVersion": kind.api_version,
        "metadata": metadata,
        "items": items,
    }


def _status_of(code: int) -> dict[str, Any]:
    if code:
        return {"metadata": {}, "code": code}
    return {
        "metadata": {},
        "status": "Success",
        "message": "Connection closed early",
        "code": 200,
    }


def _tried(request: Request) -> str:
    """Return the authentication methods that a request has tried."""
    scheme, _, rest = request.header("authorization").strip().partition(" ")
    tried: list[str] = [each for each in ("basic", "bearer") if scheme.lower() == each and rest]
    if request.connection.certificates:
        tried.append("x509")
    if not tried:
        return "Authentication failed, no credentials provided"
    return f"Authentication failed, attempted: {', '.join(tried)}"


def source_ips(request: Request) -> list[str]:
    """Return the source addresses of a request; only the last is reliable."""
    found = [_address(each) for each in request.header("x-forwarded-for").split(",")]
    ips = [each for each in found if each]
    real = _address(request.header("x-real-ip"))
    if real and real not in ips:
        ips.append(real)
    peer = request.connection.peer
    remote = _address(peer.rpartition(":")[0].strip("[]")) or _address(peer)
    if remote and ips[-1:] != [remote]:
        ips.append(remote)
    return ips


def _address(text: str) -> str:
    try:
        return str(ip_address(text.strip()))
    except ValueError:
        return ""
