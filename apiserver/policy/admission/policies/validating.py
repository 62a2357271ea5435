"""ValidatingAdmissionPolicies: expressions that must be true of written objects.

    policies, bindings, parameters ──► match conditions ──► validations ──► Deny, Warn, Audit

Only the first denial is returned; all warnings and audit annotations are.
"""

from collections.abc import Awaitable, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Final, NamedTuple

import orjson

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apiserver.policy.admission.exemption import POLICIES, is_exempt
from kvstack.apiserver.policy.admission.manifests import Manifests
from kvstack.apiserver.policy.admission.policies.bound import BoundPolicies
from kvstack.apiserver.policy.admission.policies.evaluation import (
    RequestObjects,
    Scene,
    scene_bindings,
)
from kvstack.apiserver.policy.admission.policies.metrics import ALLOW, DENY, PolicyChecks
from kvstack.apiserver.policy.admission.policies.parameters import (
    FindKind,
)
from kvstack.apiserver.policy.admission.policies.store import (
    VALIDATING,
    Binding,
    Concerned,
    Policy,
)
from kvstack.apiserver.policy.admission.request import AdmissionRequest
from kvstack.apiserver.policy.expressions.answers import Answers
from kvstack.apiserver.policy.expressions.evaluation import (
    BINDING_MAX,
    Budget,
    OutOfBudgetError,
    Result,
)
from kvstack.apiserver.policy.expressions.match_conditions import match
from kvstack.apiserver.policy.interfaces import Authorizer, LiveObjects, ObjectView
from kvstack.cel.admission import BOOLEANS, TEXTS, TEXTS_OR_NULL

_MESSAGE_MAX: Final = 5 * 1024
_ANNOTATION_MAX: Final = 10 * 1024
_FAILURES_MAX: Final = 50
_FAILURES: Final = "validation.policy.admission.k8s.io/validation_failure"
_CODES: Final = {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413}
_INVALID: Final = "Invalid"


class _Denial(NamedTuple):
    """A validation that failed, or could not be evaluated."""

    position: int
    message: str
    reason: str = ""
    is_annotation: bool = False
    """Whether it is about an audit annotation."""
    error: str = ""
    """Why it could not be evaluated; empty: it is false."""


class _Findings(NamedTuple):
    """Results of a policy's expressions."""

    denials: list[_Denial]
    annotations: list[tuple[str, str]]
    ignored: list[str]
    """Failures that are ignored."""


class _Verdict:
    """Results of all policies for a request."""

    def __init__(self, request: AdmissionRequest, checks: PolicyChecks) -> None:
        self._request = request
        self._checks = checks
        self._refusal: ApiError | None = None
        self._failures: list[Object] = []
        self._annotations: dict[str, list[str]] = {}

    def deny(self, policy: Policy, binding: Binding | None, message: str, reason: str = "") -> None:
        if self._refusal is not None:
            return
        where = "" if binding is None else f" with binding '{binding.name}'"
        text = f"ValidatingAdmissionPolicy '{policy.name}'{where} denied request: {message}"
        error = self._request.forbidden(text)
        reason = reason or _INVALID
        error.status["reason"] = reason
        error.status["code"] = _CODES.get(reason, 422)
        error.status.setdefault("details", {})["causes"] = [{"message": text}]
        self._refusal = ApiError(error.status)

    def misconfigured(self, policy: Policy, binding: Binding | None, error: object) -> None:
        if not policy.ignores_failure:
            what = "policy" if binding is None else "binding"
            self.deny(policy, binding, f"failed to configure {what}: {error}")

    def add(self, policy: Policy, binding: Binding, findings: _Findings, began_ns: int) -> None:
        actions = binding.spec.get("validationActions") or ()
        count = self._checks.add
        for error in findings.ignored:
            count(policy.name, binding.name, error, began_ns, ALLOW)
        for each in findings.denials:
            if each.is_annotation:
                self.deny(policy, binding, each.message)
                count(policy.name, binding.name, each.error, began_ns, DENY)
                continue
            for action in actions:
                self._enforce(action, policy, binding, each, actions)
                count(policy.name, binding.name, each.error, began_ns, action.lower())
        for name, value in findings.annotations:
            values = self._annotations.setdefault(f"{policy.name}/{name}", [])
            if value not in values:
                values.append(value)

    def _enforce(
        self,
        action: str,
        policy: Policy,
        binding: Binding,
        denial: _Denial,
        actions: Sequence[str],
    ) -> None:
        if action == "Deny":
            self.deny(policy, binding, denial.message, denial.reason)
        elif action == "Warn":
            self._request.warnings.append(
                f"Validation failed for ValidatingAdmissionPolicy '{policy.name}' with binding"
                f" '{binding.name}': {denial.message}"
            )
        elif action == "Audit":
            self._failures.append(
                {
                    "message": denial.message,
                    "policy": policy.name,
                    "binding": binding.name,
                    "expressionIndex": denial.position,
                    "validationActions": list(actions),
                }
            )

    def close(self) -> None:
        """Add the audit annotations; raises ApiError."""
        annotations = self._request.annotations
        for name, values in self._annotations.items():
            annotations[name] = ", ".join(values)
        if self._failures:
            annotations[_FAILURES] = orjson.dumps(self._failures[:_FAILURES_MAX]).decode()
        if self._refusal is not None:
            raise self._refusal


class ValidatingAdmissionPolicy:
    """Enforces validating policies."""

    name = "ValidatingAdmissionPolicy"

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
        self._policies: Final = BoundPolicies(view, live, find, VALIDATING, manifests)
        self._has_static: Final = manifests is not None and self.name in manifests.plugins
        self._authorizer: Final = authorizer

    def handles(self, _operation: str, resource: GroupResource, _subresource: str) -> bool:
        """Return whether policies may apply to a resource."""
        return not is_exempt(resource, POLICIES, has_static=self._has_static)

    def validate(self, request: AdmissionRequest) -> Awaitable[None] | None:
        """Run the policies whose rules match; raises ApiError."""
        concerned = self._policies.concerned(request)
        return self._ask(request, concerned) if concerned else None

    async def _ask(self, request: AdmissionRequest, concerned: Sequence[Concerned]) -> None:
        verdict = _Verdict(request, self._checks)
        request_objects = RequestObjects(request)
        answers = Answers(self._authorizer, request.user)
        async with aclosing(self._policies.bound(request, concerned)) as bound:
            async for each in bound:
                policy, binding, versioned = each.policy, each.binding, each.versioned
                if each.error is not None:
                    verdict.misconfigured(policy, binding, each.error)
                    continue
                try:
                    objects = await request_objects.objects(versioned)
                except ApiError as error:
                    text = f"failed to convert object version: {error}"
                    verdict.misconfigured(policy, binding, text)
                    continue
                namespace = await self._policies.namespaces.of(request)
                for param in each.params:
                    bindings = scene_bindings(
                        request, versioned, objects, param, namespace, answers
                    )
                    began_ns = self._checks.now_ns()
                    found = await answers.settled(partial(_findings, policy, bindings))
                    verdict.add(policy, binding, found, began_ns)
        verdict.close()


def _findings(policy: Policy, bindings: dict[str, Any]) -> _Findings:
    """Run the expressions of a policy; raises PendingCheckError."""
    conditions = policy.spec.get("matchConditions") or ()
    if conditions:
        without = {**bindings, "namespaceObject": None}
        matched = match(conditions, without, has_params=policy.declared.has_params)
        if matched.error:
            return _failed(policy, matched.error)
        if not matched.is_match:
            return _Findings([], [], [])
    budget = Budget(BINDING_MAX)
    ignored: list[str] = []
    try:
        denials = list(_denials(policy, Scene(policy, dict(bindings), budget), ignored))
        scene = Scene(policy, dict(bindings), Budget(BINDING_MAX))
        annotations = list(_annotations(policy, scene, denials))
    except OutOfBudgetError as error:
        return _failed(policy, str(error))
    return _Findings(denials, annotations, ignored)


def _failed(policy: Policy, message: str) -> _Findings:
    if policy.ignores_failure:
        return _Findings([], [], [message])
    return _Findings([_Denial(0, message, error=message)], [], [])


def _denials(policy: Policy, scene: Scene, ignored: list[str]) -> Iterator[_Denial]:
    validations = policy.spec.get("validations") or ()
    results = [
        (each, scene.evaluate(each.get("expression", "").strip(), BOOLEANS)) for each in validations
    ]
    for position, (validation, result) in enumerate(results):
        if result.error:
            if policy.ignores_failure:
                ignored.append(result.error)
            else:
                yield _Denial(position, result.error, error=result.error)
        elif result.value is not True:
            try:
                message = _message(validation, scene)
            except OutOfBudgetError as error:
                text = f"failed messageExpression: {error}"
                if policy.ignores_failure:
                    ignored.append(text)
                else:
                    yield _Denial(position, text, error=text)
                continue
            yield _Denial(position, message, validation.get("reason") or "")


def _message(validation: Object, scene: Scene) -> str:
    text = validation.get("messageExpression", "").strip()
    message = ""
    if text:
        found = scene.evaluate(text, TEXTS, has_authorizer=False)
        message = _usable(found)
    if not message:
        message = validation.get("message", "").strip()
    return message or f"failed expression: {validation.get('expression', '').strip()}"


def _usable(found: Result) -> str:
    if found.error or not isinstance(found.value, str):
        return ""
    message = found.value.strip()
    return "" if len(message.encode()) > _MESSAGE_MAX or "\n" in message else message


def _annotations(policy: Policy, scene: Scene, denials: list[_Denial]) -> Iterator[tuple[str, str]]:
    for each in policy.spec.get("auditAnnotations") or ():
        text = each.get("valueExpression", "").strip()
        found = scene.evaluate(text, TEXTS_OR_NULL, has_authorizer=False)
        if found.error:
            if not policy.ignores_failure:
                denials.append(_Denial(0, found.error, is_annotation=True, error=found.error))
        elif found.value is not None:
            value = str(found.value).strip()
            if value:
                yield each.get("key", ""), value[:_ANNOTATION_MAX]
