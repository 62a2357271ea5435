"""The request pipeline, in Kubernetes' order.

    audit id → route → user (or whom they act as) → room → permission
    → page, or: representation, body → verb → answer → written

A request keeps its seats, and counts as in flight, until its client has read the answer: slow
readers keep occupying only their own share. Answers smaller than `TRACKED_BYTES_MIN` are not waited
for; a connection has few of them.

Every failure is answered with a Status. An unexpected error is logged and answered with 500.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import chain
from typing import Final, Protocol, TypeAlias

from kvstack.apimachinery.attributes import PRIVILEGED, User
from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.request_info import RequestInfo
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.text.value_limit import TooManyValuesError, check_json
from kvstack.apimachinery.schema.resource import APPLY_PATCH
from kvstack.apiserver.http import past, read_only, tables
from kvstack.apiserver.http.answers import NO_SNIFF, STREAM_BYTES, Reply
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
    patch_type,
)
from kvstack.apiserver.http.browsers import BrowserRules
from kvstack.apiserver.http.encoding import Encoder
from kvstack.apiserver.http.limits.fair_queues import FairQueues
from kvstack.apiserver.http.limits.in_flight import InFlight
from kvstack.apiserver.http.limits.too_many import TooManyError
from kvstack.apiserver.http.limits.unsent import Unsent, UnsentAnswer
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
from kvstack.apiserver.http.observers import RequestObserver
from kvstack.apiserver.http.pretty import is_pretty
from kvstack.apiserver.http.request_context import RequestContext
from kvstack.apiserver.http.routing import WRITES, Route, Router
from kvstack.apiserver.policy.authorization.impersonation import (
    HEADER_PREFIX,
    Impersonation,
    requested_user,
)
from kvstack.apiserver.policy.credentials import Credentials
from kvstack.apiserver.policy.interfaces import Authenticator, Decision
from kvstack.apiserver.policy.metrics import PolicyMetrics
from kvstack.apiserver.policy.permission import attributes_of, denied, undecided
from kvstack.apiserver.registry import errors
from kvstack.apiserver.registry.reads import Page
from kvstack.apiserver.registry.timing import now_text
from kvstack.apiserver.verbs.call import Call
from kvstack.apiserver.verbs.endpoint import Endpoint
from kvstack.apiserver.verbs.environment import Environment
from kvstack.apiserver.verbs.forms.bodies import JSON, MEDIA_TYPES, PROTOBUF, YAML
from kvstack.apiserver.verbs.large_objects import LARGE_BYTES
from kvstack.apiserver.verbs.results import (
    Computed,
    Connecting,
    Listing,
    Proxying,
    Result,
    Stored,
    Watching,
)
from kvstack.apiserver.verbs.stages import (
    ANSWER,
    AUTHENTICATION,
    AUTHORIZATION,
    BODY,
    QUEUE,
    READING,
    timed,
)
from kvstack.component.http.serving.answer import Answer
from kvstack.component.http.serving.request import BodyTooLargeError, Request
from kvstack.component.logger import Logger

CUSTOM_BODIES: Final = (JSON, YAML)
"""Custom resources have no protobuf form."""
BODY_BYTES_MAX: Final = 3 * 1024 * 1024
TRACKED_BYTES_MIN: Final = 4 * 1024
_NOT_JSON: Final = frozenset((YAML, APPLY_PATCH, PROTOBUF))
"""Media types of bodies whose values are counted by their own parser."""

Verb: TypeAlias = Callable[[Call], Awaitable[Result]]

_WITH_BODY: Final = frozenset(("create", "update", "patch", "delete", "deletecollection"))
_READING: Final = frozenset(("get", "list"))
_PANIC: Final = "This request caused apiserver to panic. Look in the logs for details.\n"
_TOO_MANY: Final = "Too many requests, please try again later.\n"
_TOO_LONG: Final = "request did not complete within the allotted timeout"


class Pages(Protocol):
    """Serves paths that are not resources."""

    async def serve(self, context: RequestContext) -> None:
        """Answer a request for a path that is not a resource."""
        ...


class Watches(Protocol):
    """What serves watches."""

    async def serve(
        self, call: Call, watching: Watching, encoder: Encoder, request: Request, reply: Reply
    ) -> None:
        """Send changes until the watch ends."""
        ...


class Delegates(Protocol):
    """Forwards requests to aggregated servers."""

    def takes(self, path: str) -> bool:
        """Return whether an aggregated server serves a path."""
        ...

    async def serve(self, context: RequestContext) -> None:
        """Forward the request and its answer."""
        ...


class Streams(Protocol):
    """Forwards streams to kubelets, and requests to nodes, pods and Services."""

    async def serve(
        self, connecting: Connecting | Proxying, request: Request, reply: Reply
    ) -> None:
        """Connect the stream; raises ApiError."""
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
        unsent: Unsent | None = None,
        auditing: Auditing | None = None,
        observers: Sequence[RequestObserver] = (),
    ) -> None:
        self.env: Final = env
        self.router: Final = router
        self.in_flight: Final = in_flight or InFlight(env.clock)
        self._queues = queues
        self._unsent = unsent or Unsent()
        self._auditing = auditing
        self._authenticator = authenticator
        self._impersonation = Impersonation(env.authorizer)
        self.policy_metrics: Final = PolicyMetrics()
        self._verbs = verbs
        self._pages = pages
        self._watches = watches
        self._streams = streams
        self._logger = logger
        self._observers = observers
        self.delegates: Delegates | None = None
        """Consulted before all endpoints and pages."""
        self.browsers = BrowserRules((), ())
        """Rules for requests of web pages."""

    async def __call__(self, request: Request, answer: Answer) -> None:  # noqa: PLR0912 - hot path: one await
        """Answer a request."""
        env = self.env
        began_ns = env.clock.monotonic_ns()
        reply = Reply(request, answer, request.header("audit-id") or env.identifiers.new_uid())
        route = self.router.route(request.method, request.target)
        context = RequestContext(request, reply, route, began_ns)
        try:
            if not self.browsers.answers(request, reply):
                self.browsers.check(request)
                await self._serve(context)
        except ApiError as error:
            self._refuse(reply, error)
        except NotAcceptableError as error:
            self._refuse(reply, _not_acceptable(error))
        except BodyTooLargeError as error:
            await discard_body(request, reply, error.limit_bytes)
            self._refuse(reply, status.too_large(f"limit is {error.limit_bytes}"))
        except TooManyValuesError as error:
            self._refuse(reply, status.too_large(str(error)))
        except TooManyError as error:
            reply.send_text(429, _TOO_MANY, ("Retry-After", str(error.retry_s)), NO_SNIFF)
        except asyncio.CancelledError:
            if not self.in_flight.is_overdue(reply):
                raise
            if reply.is_begun:
                reply.answer.cut()
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
            if reply.size < TRACKED_BYTES_MIN or not self._keep(reply):
                self._leave(reply, ended_ns)
            for each in self._observers:
                each.ended(context, ended_ns - began_ns)
            if self._auditing is not None and reply.audit is not None:
                await self._auditing.completed(reply)

    def _keep(self, reply: Reply) -> bool:
        """Keep seats and counts until the answer is written; return whether it is not yet."""
        answer, user = reply.answer, reply.user
        if user is None or PRIVILEGED in user.groups:
            return False
        if not answer.when_written(lambda: self._leave(reply, self.env.clock.monotonic_ns())):
            return False
        self.note_writing(reply)
        return True

    def note_writing(self, reply: Reply) -> None:
        """Note that an answer is being written from now on."""
        user = reply.user
        if user is None:
            return
        if reply.held is None:
            reply.held = self._hold(reply, user)
        self.in_flight.note_writing(reply, user)
        if self._queues is not None:
            self._queues.note_writing(reply)

    def _hold(self, reply: Reply, user: User) -> UnsentAnswer | None:
        """Start counting the unsent bytes of an answer."""
        if not reply.answer.is_over:
            return self._unsent.hold(user, STREAM_BYTES)
        shared = reply.shared if reply.answer.transport.shares_bytes else b""
        return self._unsent.hold(user, reply.size - len(shared), shared)

    def _leave(self, reply: Reply, now_ns: int) -> None:
        """Release everything a request holds."""
        self.in_flight.leave(reply)
        if self._queues is not None:
            self._queues.leave(reply, now_ns)
        if reply.held is not None:
            self._unsent.release(reply.held)
            reply.held = None

    def settled(self, reply: Reply) -> None:
        """Note that a watch has sent its initial events."""
        if self._queues is not None:
            self._queues.settled(reply)
        if reply.held is not None:
            self._unsent.release(reply.held)
            reply.held = None

    def _refuse(self, reply: Reply, error: ApiError) -> None:
        """Answer with an error, unless an answer has begun."""
        if reply.is_begun:
            return
        if reply.audit is not None:
            note_error(reply.audit, error)
        reply.send_error(error)

    async def _serve(self, context: RequestContext) -> None:  # noqa: PLR0912, PLR0915 - hot path: one await
        request, reply, route = context.request, context.reply, context.route
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
                user = await self._awaited_user(context, found)
            context.user = user
        except ApiError:
            self.policy_metrics.refused(self.env.clock.monotonic_ns() - context.began_ns)
            reply.warnings += credentials.warnings
            if auditing is not None:
                await auditing.unauthenticated(context)
            raise
        if credentials.warnings:
            reply.warnings += credentials.warnings
        if auditing is not None:
            recording = auditing.recording(context)
            if recording is not None:
                await auditing.begin(context, recording)
            if credentials.annotations and reply.audit is not None:
                reply.audit.annotations.update(credentials.annotations)
        if request.has_header_prefix(HEADER_PREFIX):
            user = context.user = await self._acting(context)
        if route.verb != "connect":
            self._unsent.check(user)
            reply.tracker = self
        reply.user = user
        self.in_flight.enter(context)
        if self._queues is not None:
            waiting = self._queues.enter(context)
            if waiting is not None:
                await timed(self.env.clock, context.spent, QUEUE, waiting)
        known = route.asked
        if known is None or known.user is not user:
            known = route.asked = attributes_of(route.info, user)
        verdict = self.env.authorizer.authorize(known)
        if isinstance(verdict, Decision):
            decision = verdict
            self.policy_metrics.authorized(decision)
        else:
            decision = await self._awaited_decision(context, verdict)
        if reply.audit is not None:
            note_decision(reply.audit, decision)
        if not decision.allowed:
            reply.extra.append(NO_SNIFF)
            if decision.error:
                self._logger.error("failed to authorize a request", error=decision.error)
                reply.send_text(500, undecided(request.target, decision))
                return
            raise denied(route.info, user, decision)
        delegates = self.delegates
        if delegates is not None and delegates.takes(route.info.path):
            await delegates.serve(context)
            return
        if route.error is not None:
            raise route.error
        if route.endpoint is None:
            await self._pages.serve(context)
        else:
            await self._serve_resource(context)

    async def _awaited_decision(
        self, context: RequestContext, waiting: Awaitable[Decision]
    ) -> Decision:
        decision = await timed(self.env.clock, context.spent, AUTHORIZATION, waiting)
        self.policy_metrics.authorized(decision, context.spent[AUTHORIZATION])
        return decision

    async def _awaited_user(self, context: RequestContext, waiting: Awaitable[User]) -> User:
        user = await timed(self.env.clock, context.spent, AUTHENTICATION, waiting)
        self.policy_metrics.authenticated(user.name, context.spent[AUTHENTICATION])
        return user

    async def _acting(self, context: RequestContext) -> User:
        """Return the impersonated user; raises ApiError."""
        reply = context.reply
        try:
            wanted = requested_user(context.request.headers)
            if wanted is None:
                return context.user
            asked = attributes_of(context.route.info, context.user)
            impersonated = await self._impersonation.impersonate(wanted, asked)
            if reply.audit is not None:
                reply.audit.impersonated_user, reply.audit.constraint = impersonated
        except ApiError:
            reply.extra.append(NO_SNIFF)
            raise
        return impersonated.user

    async def _serve_resource(self, context: RequestContext) -> None:
        """Run the verb on a resource, and answer with the result."""
        request, reply, route = context.request, context.reply, context.route
        endpoint, verb = route.endpoint, route.verb
        assert endpoint is not None, "pages have a handler of their own"
        if endpoint.deprecation:
            reply.warnings.append(endpoint.deprecation)
        if self.env.settings.is_read_only and not read_only.lets_pass(route):
            raise status.failure(405, "MethodNotAllowed", read_only.REFUSAL)
        is_custom = endpoint.row.is_custom
        media_type = ""
        if verb == "patch":
            media_type = patch_type(request, endpoint.row.patches, is_custom=is_custom)
        representation = DEFAULT
        if verb != "connect":  # the bytes of a stream come from the other server
            representation = negotiate(request.header("accept"), _offer(verb, endpoint))
        body = b""
        if verb in _WITH_BODY:
            if verb in ("create", "update") or (verb != "patch" and has_body(request)):
                whole = is_custom and verb in ("create", "update")
                media_type = body_type(request, CUSTOM_BODIES if whole else MEDIA_TYPES)
            body = await self._body(context, media_type)
        at_revision = await past.revision_of(self.env.registry, route) if route.at else 0
        call = Call(
            self.env,
            endpoint,
            route.info,
            context.user,
            route.query,
            now_text(self.env.clock),
            body,
            media_type,
            request.header("user-agent"),
            at_revision,
            warnings=reply.warnings,
            spent=context.spent,
        )
        if reply.audit is not None:
            call.audit, call.annotations = reply.audit, reply.audit.annotations
        encoder = self._encoder(request, route, endpoint, representation)
        working = self._verbs[verb](call)
        if verb in _READING:
            working = timed(self.env.clock, context.spent, READING, working)
        try:
            result = await working
        except ApiError as error:
            if call.at_revision and error.is_gone and "continue" not in call.query:
                raise await past.expired(self.env.registry) from None
            raise
        if reply.audit is not None:
            note_result(reply.audit, endpoint, result)
        if isinstance(result, Stored):
            record, code = result
            if len(record.body) > LARGE_BYTES and not encoder.is_joined:
                content = await self.env.large_objects.run(encoder.stored, record)
            else:
                content = encoder.stored(record)
            reply.send(code, representation.media_type, content)
        else:
            await self._answering(call, result, encoder, context)

    def _answering(
        self,
        call: Call,
        result: Computed | Listing | Watching | Connecting | Proxying,
        encoder: Encoder,
        context: RequestContext,
    ) -> Awaitable[None]:
        """Return what answers with a result that is no single stored object; raises ApiError."""
        request, reply = context.request, context.reply
        match result:
            case Computed():
                return self._answer_computed(call, result, encoder, reply)
            case Listing(page):
                answering = self._answer_list(page, encoder, reply)
                return timed(self.env.clock, context.spent, ANSWER, answering)
            case Connecting() | Proxying():
                if self._streams is None:
                    raise status.service_unavailable("streams to kubelets are not served")
                return self._streams.serve(result, request, reply)
            case Watching():
                return self._watches.serve(call, result, encoder, request, reply)

    async def _answer_computed(
        self, call: Call, result: Computed, encoder: Encoder, reply: Reply
    ) -> None:
        content = await call.apart(encoder.encode, result.obj, result.kind, result.type)
        reply.send(result.code, encoder.representation.media_type, content)

    async def _body(self, context: RequestContext, media_type: str) -> bytes:
        """Read the body; a large one is checked in a thread. Raises ApiError."""
        reading = context.request.read(BODY_BYTES_MAX)
        body = await timed(self.env.clock, context.spent, BODY, reading)
        if len(body) > LARGE_BYTES and media_type not in _NOT_JSON:
            await self.env.large_objects.run(check_json, body)
        return body

    async def _answer_list(self, page: Page, encoder: Encoder, reply: Reply) -> None:
        """Answer with a list: complete, or in pieces as its client reads."""
        media_type = encoder.representation.media_type
        parts = encoder.shared(page)
        if parts is not None:
            reply.send_parts(200, media_type, parts)
            return
        if not encoder.is_joined and page.size_bytes > LARGE_BYTES:
            chunks = await self.env.large_objects.run(encoder.listing, page)
        else:
            chunks = encoder.listing(page)
        first, second = next(chunks), next(chunks, None)
        if second is None:
            reply.send(200, media_type, first)
        else:
            await reply.stream(200, media_type, chain((first, second), chunks))

    def _encoder(
        self, request: Request, route: Route, endpoint: Endpoint, representation: Representation
    ) -> Encoder:
        """Return the encoder of the results; raises ApiError for a bad `includeObject`."""
        include, now_s = tables.METADATA, 0.0
        if representation.as_ == TABLE:
            values = route.query.get("includeObject")
            include = tables.include_of(values[0] if values else "")
            now_s = self.env.clock.unix_ms() / 1000
        return Encoder(
            endpoint,
            representation,
            is_pretty=is_pretty(request, representation, route.query),
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
    if not endpoint.has_table:
        return WITHOUT_TABLE
    return LISTS if verb in ("list", "watch") else OBJECTS


def _not_acceptable(error: NotAcceptableError) -> ApiError:
    if error.text.startswith("406"):
        return status.failure(406, "NotAcceptable", error.text, {})
    return status.not_acceptable(error.text)
