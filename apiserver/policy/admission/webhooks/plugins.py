"""The two plugins that ask webhooks.

    MutatingAdmissionWebhook     one after another; each sees what those before it made
    ValidatingAdmissionWebhook   all at once; the first refusal counts

A mutating webhook that changed the object has the whole mutating chain called once more. Webhooks
with the reinvocation policy IfNeeded that were asked before the change are then asked again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import Final

import orjson

from kvstack.apiserver.objects import json_patch, status
from kvstack.apiserver.objects.groups import GroupResource
from kvstack.apiserver.objects.json_patch import JsonPatchError
from kvstack.apiserver.objects.status import ApiError
from kvstack.apiserver.objects.text import json_text
from kvstack.apiserver.objects.text.go_text import quote
from kvstack.apiserver.objects.text.json_syntax import JsonError
from kvstack.apiserver.policy.admission.manifests import Manifests
from kvstack.apiserver.policy.admission.request import AdmissionRequest, Obj, Place
from kvstack.apiserver.policy.admission.webhooks.calls import Caller, FailedOpenError, request_of
from kvstack.apiserver.policy.admission.webhooks.hooks import (
    MUTATING,
    VALIDATING,
    Concerned,
    Hook,
    Hooks,
    is_exempt,
)
from kvstack.apiserver.policy.admission.webhooks.metrics import WebhookMetrics
from kvstack.apiserver.policy.admission.webhooks.selection import (
    ConditionError,
    Conditions,
    Selection,
)
from kvstack.apiserver.policy.ports import Clock, LiveObjects, ObjectView
from kvstack.apiserver.webhooks.client import WebhookClient
from kvstore.logger import Logger

_MUTATION: Final = "mutation.webhook.admission.k8s.io"
_PATCH: Final = "patch.webhook.admission.k8s.io"
_FAILED_OPEN: Final = "failed-open.{}.webhook.admission.k8s.io"


@dataclass(frozen=True, slots=True)
class WebhookParts:
    """What both plugins are made of."""

    view: ObjectView
    live: LiveObjects
    client: WebhookClient
    clock: Clock
    new_uid: Callable[[], str]
    conditions: Conditions
    metrics: WebhookMetrics
    logger: Logger
    manifests: Manifests = field(default_factory=Manifests)
    """Configurations that stand in files."""


class _Plugin:
    """What both have in common."""

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
        """Tell whether webhooks may be asked about a resource."""
        return not is_exempt(resource, has_static=self._has_static)

    async def _is_called(self, hook: Hook, place: Place, shown: "_Shown") -> bool:
        """Tell whether a webhook is to be called, and show the objects in its version if so."""
        request = shown.request
        if not await self._selection.selects(hook, request):
            return False
        await shown.turn_to(place)
        if not hook.conditions:
            return True
        new, old = shown.objects
        try:
            found = self._conditions.hold(hook.conditions, request, new, old)
            return await found if isawaitable(found) else bool(found)
        except ConditionError as error:
            if hook.ignores_failure:
                return False
            raise request.forbidden(str(error)) from error


class _Shown:
    """The objects of a request in one version at a time."""

    def __init__(self, request: AdmissionRequest) -> None:
        assert request.versions is not None, "webhooks are asked within requests"
        self.request: Final = request
        self._versions: Final = request.versions
        self._place: Place | None = None
        self._new: Obj | None = None
        self._old: Obj | None = None
        self._text = b""

    @property
    def objects(self) -> tuple[Obj | None, Obj | None]:
        """The new and the old object."""
        return self._new, self._old

    async def turn_to(self, place: Place) -> None:
        """Show the objects in a version."""
        if place == self._place:
            return
        self._new = await self._at(self.request.object, place)
        self._old = await self._at(self.request.old, place)
        self._place, self._text = place, b""

    async def _at(self, obj: Obj | None, place: Place) -> Obj | None:
        return None if obj is None else await self._versions.show(obj, place)

    def text(self, place: Place) -> bytes:
        """Return the request as it is written for a webhook."""
        if not self._text:
            self._text = request_of(self.request, place, self._new, self._old)
        return self._text

    async def change(self, patched: Obj, place: Place) -> bool:
        """Take over a patched object; return whether anything is different. Raises ApiError."""
        obj = self.request.new
        taken = await self._versions.take(patched, place)
        is_different = not json_text.equal(taken, obj)
        obj.clear()
        obj.update(taken)
        self._new, self._text = await self._at(obj, place), b""
        return is_different


@dataclass(slots=True)
class _Rounds:
    """What the first round leaves to the second."""

    asked: list[Hook] = field(default_factory=list)
    """Those with the policy IfNeeded that were asked since the last change."""
    again: set[int] = field(default_factory=set)
    """Those to be asked again, by their place among all."""
    left: Obj | None = None
    """The object as the last webhook left it."""

    def require(self) -> None:
        """Ask again whoever was asked before a change."""
        self.again.update(each.position for each in self.asked)
        self.asked.clear()


class MutatingAdmissionWebhook(_Plugin):
    """Lets webhooks change objects."""

    name = "MutatingAdmissionWebhook"

    def __init__(self, parts: WebhookParts) -> None:
        """Follow the configurations of the view."""
        super().__init__(parts, MUTATING)

    def mutate(self, request: AdmissionRequest) -> Awaitable[None] | None:
        """Ask the webhooks whose rules match."""
        concerned = self._hooks.concerned(request)
        return self._ask(request, concerned) if concerned else None

    async def _ask(self, request: AdmissionRequest, concerned: Sequence[Concerned]) -> None:
        rounds: _Rounds = request.kept.setdefault(self.name, _Rounds())
        is_again = request.is_second_round
        if is_again and not json_text.equal(rounds.left, request.object):
            rounds.require()
        shown = _Shown(request)
        for hook, place in concerned:
            if not await self._is_called(hook, place, shown):
                continue
            if is_again and hook.position not in rounds.again:
                continue
            if await self._change(hook, place, shown):
                rounds.require()
                request.wants_second_round = True
            if hook.is_reinvoked:
                rounds.asked.append(hook)
        rounds.left = json_text.copied(request.object)

    async def _change(self, hook: Hook, place: Place, shown: _Shown) -> bool:
        request = shown.request
        number = f"round_{int(request.is_second_round)}_index_{hook.position}"
        is_changed = False
        try:
            verdict = await self._caller.call(hook, request, shown.text(place))
            if verdict.patch:
                is_changed = await self._patch(hook, place, shown, verdict.patch)
                if request.is_detailed and (text := _patch_text(hook, verdict.patch)):
                    request.annotations[f"{_PATCH}/{number}"] = text
        except FailedOpenError:
            request.annotations[f"{_FAILED_OPEN.format('mutation')}/{number}"] = hook.name
        finally:
            told = {
                "configuration": hook.configuration,
                "webhook": hook.name,
                "mutated": is_changed,
            }
            request.annotations[f"{_MUTATION}/{number}"] = orjson.dumps(told).decode()
        return is_changed

    async def _patch(self, hook: Hook, place: Place, shown: _Shown, patch: bytes) -> bool:
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
        new, _ = shown.objects
        if new is None:
            raise status.internal_error(
                f"admission webhook {quote(hook.name)} attempted to modify the object, which is"
                " not supported for this operation"
            )
        try:
            patched = json_patch.apply(new, operations)
        except JsonPatchError as error:
            raise status.internal_error(str(error)) from error
        return await shown.change(patched, place)


def _patch_text(hook: Hook, patch: bytes) -> str:
    """Return what the audit is told of a patch that was applied; empty: it has no operations."""
    operations = json_text.parse(patch)
    if not operations:
        return ""
    told = {
        "configuration": hook.configuration,
        "webhook": hook.name,
        "patch": [dict(sorted(each.items())) for each in operations],
        "patchType": "JSONPatch",
    }
    return json_text.write(told).decode()


class ValidatingAdmissionWebhook(_Plugin):
    """Lets webhooks refuse objects."""

    name = "ValidatingAdmissionWebhook"

    def __init__(self, parts: WebhookParts) -> None:
        """Follow the configurations of the view."""
        super().__init__(parts, VALIDATING)

    def validate(self, request: AdmissionRequest) -> Awaitable[None] | None:
        """Ask the webhooks whose rules and selectors match."""
        selects = self._selection.selects_at_once
        for hook, _ in self._hooks.concerned(request):
            if selects(hook, request) is not False:
                return self._ask(request, self._hooks.concerned(request))
        return None

    async def _ask(self, request: AdmissionRequest, concerned: Iterable[Concerned]) -> None:
        shown = _Shown(request)
        wanted: list[tuple[Hook, bytes]] = []
        for hook, place in concerned:
            if await self._is_called(hook, place, shown):
                wanted.append((hook, shown.text(place)))
        if len(wanted) == 1:
            await self._call(request, *wanted[0], 0)
        elif wanted:
            await self._call_all(request, wanted)

    async def _call_all(
        self, request: AdmissionRequest, wanted: Sequence[tuple[Hook, bytes]]
    ) -> None:
        """Call all at once; the first error in the order of time counts, once all have answered."""
        calls = [
            asyncio.ensure_future(self._call(request, hook, text, number))
            for number, (hook, text) in enumerate(wanted)
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
            name = f"{_FAILED_OPEN.format('validating')}/round_0_index_{number}"
            request.annotations[name] = hook.name
