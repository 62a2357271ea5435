"""Handlers of all kinds of reviews.

body ──► checks ──► validating admission ──► status
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from kvstack.apimachinery.attributes import User
from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.field_errors import FieldError
from kvstack.apimachinery.objects.groups import GroupKind, GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.times import format_time
from kvstack.apiserver.policy.authentication.token_chain import TokenChain
from kvstack.apiserver.policy.authorization.user_rules import RuleSource
from kvstack.apiserver.policy.interfaces import Authorizer
from kvstack.apiserver.policy.reviews import access, tokens
from kvstack.apiserver.policy.reviews.checks import check_access_review
from kvstack.apiserver.policy.reviews.rules import rules_status
from kvstack.component.clock import Clock

Validate = Callable[[Object], Awaitable[None] | None]
"""Validating admission of a review."""

_AUTHENTICATION: Final = "authentication.k8s.io"
_AUTHORIZATION: Final = "authorization.k8s.io"


class Reviews:
    """Answers reviews."""

    def __init__(
        self,
        authorizer: Authorizer,
        rule_sources: Callable[[], Sequence[RuleSource]],
        tokens: TokenChain,
        api_audiences: Sequence[str],
        clock: Clock,
    ) -> None:
        """Answer by these means.

        rule_sources: returns the authorizers that list rules; api_audiences: for token reviews that
        name none.
        """
        self._authorizer: Final = authorizer
        self._rule_sources: Final = rule_sources
        self._tokens: Final = tokens
        self._audiences: Final = tuple(api_audiences)
        self._clock: Final = clock
        self._answers: Final = {
            GroupResource(_AUTHENTICATION, "tokenreviews"): self._token,
            GroupResource(_AUTHENTICATION, "selfsubjectreviews"): self._self,
            GroupResource(_AUTHORIZATION, "subjectaccessreviews"): self._access,
            GroupResource(_AUTHORIZATION, "localsubjectaccessreviews"): self._access,
            GroupResource(_AUTHORIZATION, "selfsubjectaccessreviews"): self._own_access,
            GroupResource(_AUTHORIZATION, "selfsubjectrulesreviews"): self._own_rules,
        }

    def handles(self, resource: GroupResource) -> bool:
        """Return whether a resource is a review."""
        return resource in self._answers

    async def create(
        self,
        resource: GroupResource,
        namespace: str,
        user: User,
        review: Object,
        validate: Validate,
    ) -> Object:
        """Return a review with its status; raises ApiError.

        namespace: of the URL; user: the requester; review: the decoded body, changed in place.
        """
        return await self._answers[resource](namespace, user, review, validate)

    async def _token(
        self, _namespace: str, _user: User, review: Object, validate: Validate
    ) -> Object:
        tokens.check_token_review(review)
        await _wait(validate(review))
        review["status"] = await tokens.token_status(self._tokens, review, self._audiences)
        return review

    async def _self(
        self, _namespace: str, user: User, review: Object, validate: Validate
    ) -> Object:
        await _wait(validate(review))
        now = format_time(self._clock.unix_ms() // 1000)
        answer = _of_kind(review, {"creationTimestamp": now})
        answer["status"] = {"userInfo": user.to_object()}
        return answer

    async def _access(
        self, namespace: str, _user: User, review: Object, validate: Validate
    ) -> Object:
        _refuse(check_access_review(review, is_about_self=False, namespace=namespace))
        return await self._answer(review, access.user_of(review["spec"]), validate)

    async def _own_access(
        self, _namespace: str, user: User, review: Object, validate: Validate
    ) -> Object:
        _refuse(check_access_review(review, is_about_self=True))
        return await self._answer(review, user, validate)

    async def _answer(self, review: Object, user: User, validate: Validate) -> Object:
        await _wait(validate(review))
        question = access.question_of(review["spec"], user)
        review["status"] = await access.answer(self._authorizer, question)
        return review

    async def _own_rules(
        self, _namespace: str, user: User, review: Object, validate: Validate
    ) -> Object:
        namespace = (review.get("spec") or {}).get("namespace")
        if not namespace:
            raise status.bad_request("no namespace on request")
        await _wait(validate(review))
        answer = _of_kind(review, {})
        answer["spec"] = {}
        answer["status"] = rules_status(self._rule_sources(), user, namespace)
        return answer


async def _wait(waiting: Awaitable[None] | None) -> None:
    if waiting is not None:
        await waiting


def _refuse(errors: list[FieldError]) -> None:
    if errors:
        # Upstream has lost the kind when it makes this error.
        raise status.invalid(GroupKind(_AUTHORIZATION, ""), "", errors)


def _of_kind(review: Object, metadata: Object) -> Object:
    return {
        "kind": review.get("kind", ""),
        "apiVersion": review.get("apiVersion", ""),
        "metadata": metadata,
    }
