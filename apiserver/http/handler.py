"""The walk of a request through HTTP, in Kubernetes' order.

    audit id → route → user (or whom they act as) → room → permission
    → page, or: representation, body → verb → answer

What goes wrong is answered by a Status, whatever it is: an error that nobody expected is told to
the log, and its client gets 500.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from kvstack.apiserver.http import past, tables
from kvstack.apiserver.http.answers import NO_SNIFF, Reply
from kvstack.apiserver.http.auditing import (
    Auditing,
    note_decision,
    note_error,
    note_result,
)
from kvstack.apiserver.http.bodies_in import (
    body_type,
    discard_body,
    has_body,
    is_pretty,
    patch_type,
)
from kvstack.apiserver.http.encoding import Encoder
from kvstack.apiserver.http.fair_queues import FairQueues
from kvstack.apiserver.http.in_flight import InFlight, TooManyError
from kvstack.apiserver.http.negotiation import (
    CUSTOM_OBJECTS,
    DEFAULT,
    LISTS,
    OBJECTS,
    TABLE,
    WITHOUT_TABLE,
    NotAcceptableError,
    Offer,
    Representation,
    negotiate,
)
from kvstack.apiserver.http.observers import NOBODY, RequestObserver
from kvstack.apiserver.http.routing import WRITES, Route, Router
from kvstack.apiserver.objects import status
from kvstack.apiserver.objects.request_info import RequestInfo
from kvstack.apiserver.objects.status import ApiError
from kvstack.apiserver.policy.attributes import User
from kvstack.apiserver.policy.authorization.impersonation import (
    HEADER_PREFIX,
    Impersonation,
    wanted_user,
)
from kvstack.apiserver.policy.credentials import Credentials
from kvstack.apiserver.policy.metrics import PolicyMetrics
from kvstack.apiserver.policy.permission import attributes_of, denied, undecided
from kvstack.apiserver.policy.ports import Authenticator, Decision
from kvstack.apiserver.registry import errors
from kvstack.apiserver.registry.timing import now_text
from kvstack.apiserver.verbs.call import Call
from kvstack.apiserver.verbs.endpoint import Endpoint
from kvstack.apiserver.verbs.environment import Environment
from kvstack.apiserver.verbs.forms.bodies import JSON, MEDIA_TYPES, YAML
from kvstack.apiserver.verbs.results import (
    Connecting,
    Listing,
    Made,
    Proxying,
    Result,
    Stored,
    Watching,
)
from kvstore.http.serving.answer import Answer
from kvstore.http.serving.request import BodyTooLargeError, Request
from kvstore.logger import Logger

if TYPE_CHECKING:
    from kvstack.apiserver.http.browsers import BrowserRules

CUSTOM_BODIES: Final = (JSON, YAML)
"""Custom resources have no protobuf form."""
BODY_BYTES_MAX: Final = 3 * 1024 * 1024

Verb: TypeAlias = Callable[[Call], Awaitable[Result]]

_WITH_BODY: Final = frozenset(("create", "update", "patch", "delete", "deletecollection"))
_PANIC: Final = "This request caused apiserver to panic. Look in the logs for details.\n"
_TOO_MANY: Final = "Too many requests, please try again later.\n"
_TOO_LONG: Final = "request did not complete within the allotted timeout"


class Pages(Protocol):
    """What is served besides resources."""

    async def serve(self, request: Request, reply: Reply, route: Route, user: User) -> None:
        """Answer a request for a path that is no resource."""
        ...


class Watches(Protocol):
    """What serves watches."""

    async def serve(
        self, call: Call, watching: Watching, encoder: Encoder, request: Request, reply: Reply
    ) -> None:
        """Send what changes until the watch is over."""
        ...


class Delegates(Protocol):
    """Serves what other servers serve."""

    def takes(self, path: str) -> bool:
        """Tell whether another server serves a path."""
        ...

    async def serve(self, request: Request, reply: Reply, route: Route, user: User) -> None:
        """Answer with what it answers."""
        ...


class Streams(Protocol):
    """What carries streams of kubelets, and requests to nodes, pods and Services."""

    async def serve(
        self, connecting: Connecting | Proxying, request: Request, reply: Reply
    ) -> None:
        """Answer with a stream; raises ApiError."""
        ...


class Api:
    """Handles requests; see `HttpServer`."""

    def __init__(
        self,
        env: Environment,
        router: Router,
        authenticator: Authenticator,
        verbs: Mapping[str, Verb],
        pages: Pages,
        watches: Watches,
        logger: Logger,
        *,
        streams: Streams | None = None,
        in_flight: InFlight | None = None,
        queues: FairQueues | None = None,
        auditing: Auditing | None = None,
        observer: RequestObserver = NOBODY,
    ) -> None:
        """Handle requests with the given parts."""
        self.env: Final = env
        self.router: Final = router
        self.in_flight: Final = in_flight or InFlight(env.clock)
        self._queues = queues
        self._auditing = auditing
        self._authenticator = authenticator
        self._impersonation = Impersonation(env.authorizer)
        self.policy_metrics: Final = PolicyMetrics()
        self._verbs = verbs
        self._pages = pages
        self._watches = watches
        self._streams = streams
        self._logger = logger
        self._observer = observer
        self.delegates: Delegates | None = None
        """Who is asked before all endpoints and pages."""
        self.browsers: BrowserRules | None = None
        """What browsers are told; None: nothing."""

    async def __call__(self, request: Request, answer: Answer) -> None:
        """Answer a request."""
        env = self.env
        began_ns = env.clock.monotonic_ns()
        reply = Reply(request, answer, request.header("audit-id") or env.new_uid())
        route = self.router.route(request.method, request.target)
        try:
            if self.browsers is None or not self.browsers.answers(request, reply):
                await self._serve(request, reply, route, began_ns)
        except ApiError as error:
            self._refuse(reply, error)
        except NotAcceptableError as error:
            self._refuse(reply, _not_acceptable(error))
        except BodyTooLargeError as error:
            await discard_body(request, reply, error.limit_bytes)
            self._refuse(reply, status.too_large(f"limit is {error.limit_bytes}"))
        except TooManyError as error:
            reply.send_text(429, _TOO_MANY, ("Retry-After", str(error.retry_s)), NO_SNIFF)
        except asyncio.CancelledError:
            if not self.in_flight.is_overdue(reply):
                raise
            text = errors.TIMED_OUT if route.verb in WRITES else _TOO_LONG
            self._refuse(reply, status.timeout(text))
        except Exception as error:
            if self._auditing is not None:
                self._auditing.panicked(reply, error)
            self._logger.error(
                "a request failed", method=request.method, target=request.target, error=repr(error)
            )
            if not reply.is_begun:
                reply.send_text(500, _PANIC, NO_SNIFF)
            raise
        finally:
            ended_ns = env.clock.monotonic_ns()
            self.in_flight.leave(reply)
            if self._queues is not None:
                self._queues.leave(reply, ended_ns)
            self._observer.ended(route, reply, ended_ns - began_ns)
            if self._auditing is not None and reply.trail is not None:
                await self._auditing.completed(reply)

    def _refuse(self, reply: Reply, error: ApiError) -> None:
        """Answer with an error, unless an answer has begun."""
        if reply.is_begun:
            return
        if reply.trail is not None:
            note_error(reply.trail, error)
        reply.send_error(error)

    async def _serve(self, request: Request, reply: Reply, route: Route, began_ns: int) -> None:
        if route.unreadable:
            reply.send_bare(500, route.unreadable)
            return
        if route.bad_timeout is not None:
            raise route.bad_timeout
        auditing = self._auditing
        credentials = _credentials(request, route.info)
        try:
            found = self._authenticator.authenticate(credentials)
            if isinstance(found, User):
                user = found
                self.policy_metrics.authenticated(user.name)
            else:
                user = await self._awaited_user(found)
        except ApiError:
            self.policy_metrics.refused(self.env.clock.monotonic_ns() - began_ns)
            reply.warnings += credentials.warnings
            if auditing is not None:
                await auditing.unauthenticated(request, reply, route, began_ns)
            raise
        if credentials.warnings:
            reply.warnings += credentials.warnings
        if auditing is not None:
            recording = auditing.recording(route, user)
            if recording is not None:
                await auditing.begin(request, reply, route, user, recording, began_ns)
            if credentials.annotations and reply.trail is not None:
                reply.trail.annotations.update(credentials.annotations)
        if request.has_header_prefix(HEADER_PREFIX):
            user = await self._acting(request, reply, route.info, user)
        self.in_flight.enter(reply, route, user, began_ns)
        if self._queues is not None:
            waiting = self._queues.enter(reply, route, user, began_ns)
            if waiting is not None:
                await waiting
        known = route.asked
        if known is None or known.user is not user:
            known = route.asked = attributes_of(route.info, user)
        verdict = self.env.authorizer.authorize(known)
        if isinstance(verdict, Decision):
            decision = verdict
            self.policy_metrics.authorized(decision)
        else:
            decision = await self._awaited_decision(verdict)
        if reply.trail is not None:
            note_decision(reply.trail, decision)
        if not decision.allowed:
            reply.extra.append(NO_SNIFF)
            if decision.error:
                self._logger.error("a request cannot be authorized", error=decision.error)
                reply.send_text(500, undecided(request.target, decision))
                return
            raise denied(route.info, user, decision)
        delegates = self.delegates
        if delegates is not None and delegates.takes(route.info.path):
            await delegates.serve(request, reply, route, user)
            return
        if route.error is not None:
            raise route.error
        if route.endpoint is None:
            await self._pages.serve(request, reply, route, user)
        else:
            await self._act(request, reply, route, user)

    async def _awaited_decision(self, waiting: Awaitable[Decision]) -> Decision:
        clock = self.env.clock
        began_ns = clock.monotonic_ns()
        decision = await waiting
        self.policy_metrics.authorized(decision, clock.monotonic_ns() - began_ns)
        return decision

    async def _awaited_user(self, waiting: Awaitable[User]) -> User:
        clock = self.env.clock
        began_ns = clock.monotonic_ns()
        user = await waiting
        self.policy_metrics.authenticated(user.name, clock.monotonic_ns() - began_ns)
        return user

    async def _acting(self, request: Request, reply: Reply, info: RequestInfo, user: User) -> User:
        """Return whom a user acts as; raises ApiError."""
        try:
            wanted = wanted_user(request.headers)
            if wanted is None:
                return user
            found = await self._impersonation.impersonate(wanted, attributes_of(info, user))
            if reply.trail is not None:
                reply.trail.acts_as, reply.trail.constraint = found
        except ApiError:
            reply.extra.append(NO_SNIFF)
            raise
        return found.user

    async def _act(self, request: Request, reply: Reply, route: Route, user: User) -> None:
        """Do what the request asks of a resource, and answer with the result."""
        endpoint, verb = route.endpoint, route.verb
        assert endpoint is not None, "pages are served elsewhere"
        if endpoint.deprecation:
            reply.warnings.append(endpoint.deprecation)
        is_custom = endpoint.row.is_custom
        media_type = ""
        if verb == "patch":
            media_type = patch_type(request, endpoint.row.patches, is_custom=is_custom)
        representation = DEFAULT
        if verb != "connect":  # what a stream gives is the other side's
            representation = negotiate(request.header("accept"), _offer(verb, endpoint))
        body = b""
        if verb in _WITH_BODY:
            if verb in ("create", "update") or (verb != "patch" and has_body(request)):
                whole = is_custom and verb in ("create", "update")
                media_type = body_type(request, CUSTOM_BODIES if whole else MEDIA_TYPES)
            body = await request.read(BODY_BYTES_MAX)
        at_revision = await past.revision_of(self.env.registry, route) if route.at else 0
        call = Call(
            self.env,
            endpoint,
            route.info,
            user,
            route.query,
            now_text(self.env.clock),
            body,
            media_type,
            request.header("user-agent"),
            at_revision,
            warnings=reply.warnings,
        )
        if reply.trail is not None:
            call.trail, call.annotations = reply.trail, reply.trail.annotations
        encoder = self._encoder(request, route, endpoint, representation)
        try:
            result = await self._verbs[verb](call)
        except ApiError as error:
            if call.at_revision and error.code == 410 and "continue" not in call.query:
                raise await past.expired(self.env.registry) from None
            raise
        if reply.trail is not None:
            note_result(reply.trail, endpoint, result)
        match result:
            case Stored(record, code):
                reply.send(code, representation.media_type, encoder.stored(record))
            case Made(obj, kind, type_, code):
                reply.send(code, representation.media_type, encoder.made(obj, kind, type_))
            case Listing(page):
                parts = encoder.shared(page)
                if parts is not None:
                    reply.send_parts(200, representation.media_type, parts)
                    return
                chunks = encoder.listing(page)
                first, second = next(chunks), next(chunks, None)
                if second is None:
                    reply.send(200, representation.media_type, first)
                else:
                    rest = chain((first, second), chunks)
                    await reply.stream(200, representation.media_type, rest)
            case Connecting() | Proxying():
                if self._streams is None:
                    raise status.service_unavailable("streams to kubelets are not served")
                await self._streams.serve(result, request, reply)
            case Watching():
                await self._watches.serve(call, result, encoder, request, reply)

    def _encoder(
        self, request: Request, route: Route, endpoint: Endpoint, representation: Representation
    ) -> Encoder:
        """Return what writes the results; raises ApiError for a bad `includeObject`."""
        include, now_s = tables.METADATA, 0.0
        if representation.as_ == TABLE:
            values = route.query.get("includeObject")
            include = tables.include_of(values[0] if values else "")
            now_s = self.env.clock.unix_ms() / 1000
        return Encoder(
            endpoint,
            representation,
            is_pretty=is_pretty(request, route, representation),
            include=include,
            now=now_s,
        )


def _credentials(request: Request, info: RequestInfo) -> Credentials:
    return Credentials(
        request.header("authorization"),
        request.connection.certificates,
        request.all_headers,
        info.path,
        request.header_values("sec-websocket-protocol") if request.may_upgrade else (),
    )


def _offer(verb: str, endpoint: Endpoint) -> Offer:
    if endpoint.row.is_custom:
        return CUSTOM_OBJECTS
    if not endpoint.strategy.has_table:
        return WITHOUT_TABLE
    return LISTS if verb in ("list", "watch") else OBJECTS


def _not_acceptable(error: NotAcceptableError) -> ApiError:
    if error.text.startswith("406"):
        return status.failure(406, "NotAcceptable", error.text, {})
    return status.not_acceptable(error.text)
