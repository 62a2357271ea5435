"""Match conditions of webhooks and policies.

    found = match(conditions, bindings, has_params=False)   → Match(is_match, failed, error)

If any condition is false the request does not match, whatever else failed. `RequestConditions` is
for webhooks, see `webhooks.selection.Conditions`.
"""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.go_text import aggregate
from kvstack.apiserver.policy.admission.request import AdmissionRequest, VersionedResource
from kvstack.apiserver.policy.admission.webhooks.selection import ConditionError
from kvstack.apiserver.policy.expressions.answers import Answers
from kvstack.apiserver.policy.expressions.bindings import request_bindings, requested_resource
from kvstack.apiserver.policy.expressions.evaluation import (
    CONDITIONS_MAX,
    Budget,
    OutOfBudgetError,
)
from kvstack.apiserver.policy.interfaces import Authorizer
from kvstack.cel.admission import BOOLEANS, Declared, compile_admission
from kvstack.cel.library.authorizers import PendingCheckError

_PLAIN: Final = Declared(is_stored=True)
_WITH_PARAMS: Final = Declared(is_stored=True, has_params=True)


class Match(NamedTuple):
    """The result of match conditions."""

    is_match: bool
    failed: str = ""
    """The name of a false condition."""
    error: str = ""
    """The error, if no condition is false."""


def match(
    conditions: Sequence[Object], bindings: Mapping[str, Any], *, has_params: bool = False
) -> Match:
    """Return whether all conditions are true; raises PendingCheckError."""
    declared = _WITH_PARAMS if has_params else _PLAIN
    budget = Budget(CONDITIONS_MAX)
    errors: list[str] = []
    for condition in conditions:
        text = condition.get("expression", "").strip()
        try:
            result = budget.evaluate(compile_admission(declared, text, BOOLEANS), text, bindings)
        except OutOfBudgetError as error:
            return Match(is_match=False, error=str(error))
        if result.error:
            errors.append(result.error)
        elif result.value is False:
            return Match(is_match=False, failed=condition.get("name", ""))
    return Match(is_match=not errors, error=aggregate(errors) if errors else "")


class RequestConditions:
    """Evaluates the match conditions of webhooks."""

    def __init__(self, authorizer: Authorizer) -> None:
        """authorizer: for the expressions' checks."""
        self._authorizer: Final = authorizer

    def hold(
        self,
        conditions: Sequence[Object],
        request: AdmissionRequest,
        new: Object | None,
        old: Object | None,
    ) -> bool | Awaitable[bool]:
        """Return whether all hold; raises ConditionError. new, old: as the webhook sees them."""
        answers = Answers(self._authorizer, request.user)
        bindings = request_bindings(request, _versioned(request, new or old), new, old, answers)
        try:
            return _is_match(match(conditions, bindings))
        except PendingCheckError as error:
            return self._wait(error, answers, conditions, bindings)

    async def _wait(
        self,
        error: PendingCheckError,
        answers: Answers,
        conditions: Sequence[Object],
        bindings: Mapping[str, Any],
    ) -> bool:
        await answers.wait(error)
        return _is_match(await answers.settled(lambda: match(conditions, bindings)))


def _is_match(found: Match) -> bool:
    if found.error:
        raise ConditionError(found.error)
    return found.is_match


def _versioned(request: AdmissionRequest, obj: Object | None) -> VersionedResource:
    """Return the version in which an object is shown."""
    own = requested_resource(request)
    api_version = (obj or {}).get("apiVersion")
    for versioned in request.versions.served if request.versions is not None else ():
        if versioned.kind.api_version == api_version:
            return versioned
    return own
