"""The two webhook plugins.

    MutatingAdmissionWebhook     one after another; each sees what those before it made
    ValidatingAdmissionWebhook   all at once; the first refusal counts

After a mutating webhook changed the object the whole mutating chain is called once more. Webhooks
with the reinvocation policy IfNeeded that were called before the change are then called again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import Final, TypeVar

import orjson

from kvstack.apimachinery.objects import json_patch, status
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.json_patch import JsonPatchError
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.text import json_text
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apimachinery.objects.text.json_syntax import JsonError
from kvstack.apiserver.policy.admission.exemption import CONFIGURATIONS, is_exempt
from kvstack.apiserver.policy.admission.manifests import Manifests
from kvstack.apiserver.policy.admission.request import AdmissionRequest, VersionedResource
from kvstack.apiserver.policy.admission.webhooks.calls import Caller, FailedOpenError, request_of
from kvstack.apiserver.policy.admission.webhooks.hooks import (
    MUTATING,
    VALIDATING,
    Concerned,
    Hook,
    Hooks,
)
from kvstack.apiserver.policy.admission.webhooks.metrics import WebhookMetrics
from kvstack.apiserver.policy.admission.webhooks.selection import (
    ConditionError,
    Conditions,
    Selection,
)
from kvstack.apiserver.policy.interfaces import LiveObjects, ObjectView
from kvstack.apiserver.webhooks.client import WebhookClient
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger

T = TypeVar("T")

_MUTATION: Final = "mutation.webhook.admission.k8s.io"
_PATCH: Final = "patch.webhook.admission.k8s.io"
_FAILED_OPEN: Final = "failed-open.{}.webhook.admission.k8s.io"


@dataclass(frozen=True, slots=True)
class WebhookParts:
    """What both plugins need."""

    view: ObjectView
    live: LiveObjects
    client: WebhookClient
    clock: Clock
    new_uid: Callable[[], str]
    conditions: Conditions
    metrics: WebhookMetrics
    logger: Logger
    manifests: Manifests = field(default_factory=Manifests)
    """Configurations from manifest files."""


class _Plugin:
    """The common part of both."""

    name = ""

    def __init__(self, parts: WebhookParts, resource: GroupResource) -> None:
        self._hooks: Final = Hooks(parts.view, resource, parts.manifests)
        self._has_static: Final = self.name in parts.manifests.plugins
        self._selection: Final = Selection(parts.view, parts.live)
        self._conditions: Final = parts.conditions
        self._caller: Final = Caller(
            parts.client,
            parts.clock,
            parts.new_uid,
            parts.metrics,
            parts.logger,
            is_mutating=resource == MUTATING,
        )

    def handles(self, _operation: str, resource: GroupResource, _subresource: str) -> bool:
        """Return whether webhooks may apply to a resource."""
        return not is_exempt(resource, CONFIGURATIONS, has_static=self._has_static)

    async def _guarded(self, hook: Hook, step: Awaitable[T]) -> T:
        """Return the result of a step at a webhook; raises only ApiError and FailedOpenError.

        An unexpected error is subject to the failure policy, like one of the call.
        """
        try:
            return await step
        except (ApiError, FailedOpenError):
            raise
        except Exception as error:
            raise self._caller.failed(hook, error) from error

    async def _is_called(
        self, hook: Hook, versioned: VersionedResource, request_objects: "_RequestObjects"
    ) -> bool:
        """Return whether a webhook is to be called; if so, show the objects in its version."""
        request = request_objects.request
        if not await self._selection.selects(hook, request):
            return False
        await request_objects.turn_to(versioned)
        if not hook.conditions:
            return True
        new, old = request_objects.objects
        try:
            found = self._conditions.hold(hook.conditions, request, new, old)
            return await found if isawaitable(found) else bool(found)
        except ConditionError as error:
            if hook.ignores_failure:
                return False
            raise request.forbidden(str(error)) from error


class _RequestObjects:
    """The objects of a request in one version at a time."""

    def __init__(self, request: AdmissionRequest) -> None:
        assert request.versions is not None, "webhooks are only called for requests"
        self.request: Final = request
        self._versions: Final = request.versions
        self._versioned: VersionedResource | None = None
        self._new: Object | None = None
        self._old: Object | None = None
        self._text = b""

    @property
    def objects(self) -> tuple[Object | None, Object | None]:
        """The new and the old object."""
        return self._new, self._old

    async def turn_to(self, versioned: VersionedResource) -> None:
        """Show the objects in a version."""
        if versioned == self._versioned:
            return
        self._new = await self._at(self.request.object, versioned)
        self._old = await self._at(self.request.old, versioned)
        self._versioned, self._text = versioned, b""

    async def _at(self, obj: Object | None, versioned: VersionedResource) -> Object | None:
        return None if obj is None else await self._versions.show(obj, versioned)

    def text(self, versioned: VersionedResource) -> bytes:
        """Return the encoded review for a webhook."""
        if not self._text:
            self._text = request_of(self.request, versioned, self._new, self._old)
        return self._text

    async def change(self, patched: Object, versioned: VersionedResource) -> bool:
        """Adopt a patched object; return whether anything differs. Raises ApiError."""
        obj = self.request.new
        taken = await self._versions.take(patched, versioned)
        is_different = not json_text.equal(taken, obj)
        obj.clear()
        obj.update(taken)
        self._new, self._text = await self._at(obj, versioned), b""
        return is_different


@dataclass(slots=True)
class _Rounds:
    """State that the first round leaves to the second."""

    asked: list[Hook] = field(default_factory=list)
    """Webhooks with IfNeeded that were called since the last change."""
    again: set[int] = field(default_factory=set)
    """Positions of webhooks to call again."""
    left: Object | None = None
    """The object after the last webhook."""

    def require(self) -> None:
        """Schedule webhooks that were called before a change to be called again."""
        self.again.update(each.position for each in self.asked)
        self.asked.clear()


class MutatingAdmissionWebhook(_Plugin):
    """Lets webhooks change objects."""

    name = "MutatingAdmissionWebhook"

    def __init__(self, parts: WebhookParts) -> None:
        super().__init__(parts, MUTATING)

    def mutate(self, request: AdmissionRequest) -> Awaitable[None] | None:
        """Call the webhooks whose rules match."""
        concerned = self._hooks.concerned(request)
        return self._ask(request, concerned) if concerned else None

    async def _ask(self, request: AdmissionRequest, concerned: Sequence[Concerned]) -> None:
        rounds: _Rounds = request.kept.setdefault(self.name, _Rounds())
        is_again = request.is_second_round
        if is_again and not json_text.equal(rounds.left, request.object):
            rounds.require()
        request_objects = _RequestObjects(request)
        for hook, versioned in concerned:
            try:
                if not await self._guarded(hook, self._is_called(hook, versioned, request_objects)):
                    continue
            except FailedOpenError:
                self._note_failed_open(hook, request)
                continue
            if is_again and hook.position not in rounds.again:
                continue
            if await self._change(hook, versioned, request_objects):
                rounds.require()
                request.wants_second_round = True
            if hook.is_reinvoked:
                rounds.asked.append(hook)
        rounds.left = json_text.copied(request.object)

    async def _change(
        self, hook: Hook, versioned: VersionedResource, request_objects: _RequestObjects
    ) -> bool:
        request = request_objects.request
        is_changed = False
        try:
            is_changed = await self._guarded(hook, self._called(hook, versioned, request_objects))
        except FailedOpenError:
            self._note_failed_open(hook, request)
        finally:
            note = {
                "configuration": hook.configuration,
                "webhook": hook.name,
                "mutated": is_changed,
            }
            annotation = f"{_MUTATION}/{_number(hook, request)}"
            request.annotations[annotation] = orjson.dumps(note).decode()
        return is_changed

    async def _called(
        self, hook: Hook, versioned: VersionedResource, request_objects: _RequestObjects
    ) -> bool:
        """Call a webhook and apply its patch; return whether that changed anything."""
        request = request_objects.request
        verdict = await self._caller.call(hook, request, request_objects.text(versioned))
        if not verdict.patch:
            return False
        is_changed = await self._patch(hook, versioned, request_objects, verdict.patch)
        if request.is_detailed and (text := _patch_text(hook, verdict.patch)):
            request.annotations[f"{_PATCH}/{_number(hook, request)}"] = text
        return is_changed

    @staticmethod
    def _note_failed_open(hook: Hook, request: AdmissionRequest) -> None:
        annotation = f"{_FAILED_OPEN.format('mutation')}/{_number(hook, request)}"
        request.annotations[annotation] = hook.name

    async def _patch(
        self,
        hook: Hook,
        versioned: VersionedResource,
        request_objects: _RequestObjects,
        patch: bytes,
    ) -> bool:
        """Apply the patch of a webhook; return whether it changed anything. Raises ApiError."""
        try:
            json_text.parse(patch)
            operations, _ = json_patch.parse(patch, is_strict=False)
        except (JsonError, ApiError) as error:
            text = f"received undecodable patch in webhook response: {error}"
            if hook.ignores_failure:
                raise FailedOpenError from error
            raise status.internal_error(f"failed calling webhook {quote(hook.name)}: {text}") from (
                error
            )
        if not operations:
            return False
        new, _ = request_objects.objects
        if new is None:
            raise status.internal_error(
                f"admission webhook {quote(hook.name)} attempted to modify the object, which is"
                " not supported for this operation"
            )
        try:
            patched = json_patch.apply(new, operations)
        except JsonPatchError as error:
            raise status.internal_error(str(error)) from error
        return await request_objects.change(patched, versioned)


def _number(hook: Hook, request: AdmissionRequest) -> str:
    """Return the round and index of a call, for audit annotations."""
    return f"round_{int(request.is_second_round)}_index_{hook.position}"


def _patch_text(hook: Hook, patch: bytes) -> str:
    """Return the audit annotation of an applied patch; empty: it has no operations."""
    operations = json_text.parse(patch)
    if not operations:
        return ""
    annotation = {
        "configuration": hook.configuration,
        "webhook": hook.name,
        "patch": [dict(sorted(each.items())) for each in operations],
        "patchType": "JSONPatch",
    }
    return json_text.write(annotation).decode()


class ValidatingAdmissionWebhook(_Plugin):
    """Lets webhooks refuse objects."""

    name = "ValidatingAdmissionWebhook"

    def __init__(self, parts: WebhookParts) -> None:
        super().__init__(parts, VALIDATING)

    def validate(self, request: AdmissionRequest) -> Awaitable[None] | None:
        """Call the webhooks whose rules and selectors match."""
        for hook, _ in self._hooks.concerned(request):
            if self._may_select(hook, request):
                return self._ask(request, self._hooks.concerned(request))
        return None

    def _may_select(self, hook: Hook, request: AdmissionRequest) -> bool:
        """Return whether a webhook may be selected; a failure here recurs when it is called."""
        try:
            return self._selection.selects_at_once(hook, request) is not False
        except Exception:  # noqa: BLE001 - raised again where the webhook is asked
            return True

    async def _ask(self, request: AdmissionRequest, concerned: Iterable[Concerned]) -> None:
        shown = _RequestObjects(request)
        reviews: list[tuple[Hook, bytes]] = []
        for hook, versioned in concerned:
            try:
                text = await self._guarded(hook, self._text_for(hook, versioned, shown))
            except FailedOpenError:
                self._note_failed_open(hook, request, len(reviews))
                continue
            if text is not None:
                reviews.append((hook, text))
        if len(reviews) == 1:
            await self._call(request, *reviews[0], 0)
        elif reviews:
            await self._call_all(request, reviews)

    async def _text_for(
        self, hook: Hook, versioned: VersionedResource, shown: _RequestObjects
    ) -> bytes | None:
        """Return the review for a webhook; None: it is not called."""
        return shown.text(versioned) if await self._is_called(hook, versioned, shown) else None

    async def _call_all(
        self, request: AdmissionRequest, reviews: Sequence[tuple[Hook, bytes]]
    ) -> None:
        """Call all at once; the error that came first counts, once all have answered."""
        calls = [
            asyncio.ensure_future(self._call(request, hook, text, number))
            for number, (hook, text) in enumerate(reviews)
        ]
        first: BaseException | None = None
        try:
            for each in asyncio.as_completed(calls):
                try:
                    await each
                except ApiError as error:
                    first = first or error
        finally:
            for call in calls:
                call.cancel()
        if first is not None:
            raise first

    async def _call(self, request: AdmissionRequest, hook: Hook, text: bytes, number: int) -> None:
        try:
            await self._caller.call(hook, request, text)
        except FailedOpenError:
            self._note_failed_open(hook, request, number)

    @staticmethod
    def _note_failed_open(hook: Hook, request: AdmissionRequest, number: int) -> None:
        name = f"{_FAILED_OPEN.format('validating')}/round_0_index_{number}"
        request.annotations[name] = hook.name
