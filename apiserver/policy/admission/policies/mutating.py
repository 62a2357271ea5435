"""MutatingAdmissionPolicies: expressions that change written objects.

    policies, bindings, parameters ──► match conditions ──► mutations, one after another

Each sees the changes of those before it. If anything was changed all mutating plugins are called
once more; policies with the reinvocation policy IfNeeded that ran before the change then run again.
"""

from collections.abc import Awaitable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.text import json_text
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apiserver.policy.admission.exemption import POLICIES, is_exempt
from kvstack.apiserver.policy.admission.manifests import Manifests
from kvstack.apiserver.policy.admission.policies.bound import BoundPolicies
from kvstack.apiserver.policy.admission.policies.evaluation import (
    RequestObjects,
    Scene,
    scene_bindings,
)
from kvstack.apiserver.policy.admission.policies.metrics import PolicyChecks
from kvstack.apiserver.policy.admission.policies.parameters import (
    FindKind,
)
from kvstack.apiserver.policy.admission.policies.patches import PatchError, applied, patched
from kvstack.apiserver.policy.admission.policies.store import (
    MUTATING,
    Binding,
    Concerned,
    Policy,
)
from kvstack.apiserver.policy.admission.request import (
    DELETE,
    AdmissionRequest,
    VersionedResource,
)
from kvstack.apiserver.policy.expressions.answers import Answers
from kvstack.apiserver.policy.expressions.evaluation import (
    BINDING_MAX,
    Budget,
    OutOfBudgetError,
    Result,
)
from kvstack.apiserver.policy.expressions.match_conditions import match
from kvstack.apiserver.policy.interfaces import Authorizer, LiveObjects, ObjectView
from kvstack.cel.admission import OBJECTS, PATCH_LISTS

_IF_NEEDED: Final = "IfNeeded"
_INVALID: Final = "Invalid"


@dataclass(slots=True)
class _Rounds:
    """State that the first round leaves to the second."""

    ran: set[tuple[str, ...]] = field(default_factory=set)
    """Policies with IfNeeded that ran since the last change."""
    again: set[tuple[str, ...]] = field(default_factory=set)
    """Policies to run again."""
    left: Object | None = None
    """The object after the last policy."""

    def require(self) -> None:
        """Schedule what ran before a change to run again."""
        self.again |= self.ran
        self.ran.clear()


class _Refusals:
    """Collected failures."""

    def __init__(self, request: AdmissionRequest) -> None:
        self._request = request
        self._texts: list[str] = []
        self._reason = ""

    def add(self, policy: Policy, binding: Binding | None, error: object, reason: str = "") -> None:
        if policy.ignores_failure:
            return
        if binding is None:
            text = f"policy {quote(policy.name)} denied request: {error}"
        else:
            text = f"policy '{policy.name}' with binding '{binding.name}' denied request: {error}"
        if not self._texts:
            self._reason = reason
        self._texts.append(text)

    def close(self) -> None:
        """Refuse the request if anything failed."""
        if not self._texts:
            return
        error = self._request.forbidden("admission request denied by policy")
        error.status["message"] = self._texts[0]
        if self._reason:
            error.status["reason"] = self._reason
        causes = [{"message": each} for each in self._texts]
        error.status.setdefault("details", {})["causes"] = causes
        raise ApiError(error.status)


class MutatingAdmissionPolicy:
    """Applies mutating policies."""

    name = "MutatingAdmissionPolicy"

    def __init__(
        self,
        view: ObjectView,
        live: LiveObjects,
        authorizer: Authorizer,
        find: FindKind,
        checks: PolicyChecks,
        manifests: Manifests | None = None,
    ) -> None:
        """find: the resources of parameter kinds."""
        self._checks: Final = checks
        self._policies: Final = BoundPolicies(view, live, find, MUTATING, manifests)
        self._has_static: Final = manifests is not None and self.name in manifests.plugins
        self._authorizer: Final = authorizer

    def handles(self, operation: str, resource: GroupResource, _subresource: str) -> bool:
        """Return whether policies may apply to a resource."""
        return operation != DELETE and not is_exempt(
            resource, POLICIES, has_static=self._has_static
        )

    def mutate(self, request: AdmissionRequest) -> Awaitable[None] | None:
        """Run the policies whose rules match; raises ApiError."""
        concerned = self._policies.concerned(request)
        return self._ask(request, concerned) if concerned else None

    async def _ask(self, request: AdmissionRequest, concerned: Sequence[Concerned]) -> None:
        rounds: _Rounds = request.kept.setdefault(self.name, _Rounds())
        if request.is_second_round and not json_text.equal(rounds.left, request.object):
            rounds.require()
        refusals = _Refusals(request)
        request_objects = RequestObjects(request)
        answers = Answers(self._authorizer, request.user)
        async with aclosing(self._policies.bound(request, concerned)) as found:
            async for bound in found:
                if bound.error is not None:
                    message = f"failed to configure binding: {bound.error}"
                    refusals.add(bound.policy, bound.binding, message)
                    continue
                namespace = await self._policies.namespaces.of(request)
                for param in bound.params:
                    run = _Run(
                        bound.policy,
                        bound.binding,
                        bound.versioned,
                        param,
                        namespace,
                        request_objects,
                        answers,
                        self._checks,
                    )
                    await run.all(rounds, refusals)
        rounds.left = json_text.copied(request.object)
        refusals.close()


@dataclass(slots=True)
class _Run:
    """One policy with one binding and one parameter."""

    policy: Policy
    binding: Binding
    versioned: VersionedResource
    param: Object | None
    namespace: Object | None
    shown: RequestObjects
    answers: Answers
    checks: PolicyChecks

    async def all(self, rounds: _Rounds, refusals: _Refusals) -> None:
        """Run the mutations; raises ApiError."""
        policy, request = self.policy, self.shown.request
        bindings = await self._bindings()
        conditions = policy.spec.get("matchConditions") or ()
        if conditions:
            without = {**bindings, "namespaceObject": None}
            matched = await self.answers.settled(
                lambda: match(conditions, without, has_params=policy.declared.has_params)
            )
            if matched.error:
                refusals.add(policy, self.binding, matched.error, _INVALID)
            if matched.error or not matched.is_match:
                return
        metadata = (self.param or {}).get("metadata") or {}
        found = (metadata.get("namespace", ""), metadata.get("name", ""))
        key = (policy.name, self.binding.name, *found)
        if request.is_second_round and key not in rounds.again:
            return
        for mutation in policy.spec.get("mutations") or ():
            if request.object is None:
                continue
            began_ns = self.checks.now_ns()
            try:
                is_changed = await self._mutate(mutation)
            except (PatchError, OutOfBudgetError) as error:
                self.checks.add(policy.name, self.binding.name, str(error), began_ns)
                refusals.add(policy, self.binding, error, _INVALID)
                continue
            self.checks.add(policy.name, self.binding.name, "", began_ns)
            if is_changed:
                rounds.require()
                request.wants_second_round = True
        if policy.spec.get("reinvocationPolicy") == _IF_NEEDED:
            rounds.ran.add(key)

    async def _bindings(self) -> dict[str, Any]:
        objects = await self.shown.objects(self.versioned)
        return scene_bindings(
            self.shown.request, self.versioned, objects, self.param, self.namespace, self.answers
        )

    async def _mutate(self, mutation: Object) -> bool:
        """Apply a mutation; return whether it changed anything. Raises PatchError, ApiError."""
        is_apply = mutation.get("patchType") == "ApplyConfiguration"
        member = "applyConfiguration" if is_apply else "jsonPatch"
        text = (mutation.get(member) or {}).get("expression", "").strip()
        bindings = await self._bindings()

        def evaluate() -> Result:
            scene = Scene(self.policy, dict(bindings), Budget(BINDING_MAX))
            return scene.evaluate(text, OBJECTS if is_apply else PATCH_LISTS, has_patches=True)

        result = await self.answers.settled(evaluate)
        if result.error:
            raise PatchError(result.error)
        live = bindings["object"]
        if is_apply:
            changed = applied(live, result.value, self.shown.type_of(self.versioned))
        else:
            changed = patched(live, result.value)
        return await self.shown.change(changed, self.versioned)
