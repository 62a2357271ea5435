"""Authorization checks of CEL expressions, awaited between evaluations.

    answers = Answers(authorizer, user)
    value = await answers.settled(lambda: program.evaluate({"authorizer": answers.value()}))

An expression cannot wait. If the authorizer has to make a call, the evaluation ends with
`PendingCheckError`; the answer is awaited and kept, and the evaluation repeated.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from kvstack.apimachinery.attributes import (
    Attributes,
    User,
    service_account_groups,
    service_account_name,
)
from kvstack.apimachinery.objects.fields import FieldSelector, FieldSelectorError
from kvstack.apimachinery.objects.fields import parse as parse_fields
from kvstack.apimachinery.objects.labels import Selector, SelectorError
from kvstack.apimachinery.objects.labels import parse as parse_labels
from kvstack.apiserver.policy.interfaces import Authorizer, Decision
from kvstack.cel.library.authorizers import (
    Answer,
    Check,
    PendingCheckError,
    Question,
    authorizer,
    resource_authorizer,
)

_T = TypeVar("_T")


class Answers:
    """Checks for one user; keeps the answers that had to be awaited."""

    def __init__(self, authorizer_: Authorizer, user: User) -> None:
        self._authorizer: Final = authorizer_
        self._user: Final = user
        self._known: dict[Question, Answer] = {}
        self._waiting: dict[Question, Awaitable[Decision]] = {}

    def value(self) -> Check:
        """Return the value of `authorizer`."""
        return authorizer(self._ask)

    def resource_value(self, question: Question) -> Check:
        """Return the value of `authorizer.requestResource`."""
        return resource_authorizer(self._ask, question)

    def _ask(self, question: Question) -> Answer:
        known = self._known.get(question)
        if known is not None:
            return known
        decision = self._authorizer.authorize(self._attributes(question))
        if isinstance(decision, Decision):
            return _answer(decision)
        self._waiting[question] = decision
        raise PendingCheckError(question)

    def _attributes(self, question: Question) -> Attributes:
        user = self._user
        if question.service_account is not None:
            namespace, name = question.service_account
            user = User(
                service_account_name(namespace, name), groups=service_account_groups(namespace)
            )
        if question.path:
            return Attributes.of_path(user, question.verb, question.path)
        return Attributes(
            user,
            question.verb,
            group=question.group,
            version="*",
            resource=question.resource,
            subresource=question.subresource,
            namespace=question.namespace,
            name=question.name,
            field_selector=_field_selector(question.field_selector),
            label_selector=_label_selector(question.label_selector),
        )

    async def wait(self, error: PendingCheckError) -> None:
        """Wait for the answer that an evaluation needs."""
        decision = await self._waiting.pop(error.question)
        self._known[error.question] = _answer(decision)

    async def settled(self, evaluate: Callable[[], _T]) -> _T:
        """Return the value of an evaluation once all its checks are answered."""
        while True:
            try:
                return evaluate()
            except PendingCheckError as error:
                await self.wait(error)


def _answer(decision: Decision) -> Answer:
    return Answer(decision.allowed, decision.reason, decision.error)


def _field_selector(text: str) -> FieldSelector | None:
    try:
        return parse_fields(text) if text else None
    except FieldSelectorError:
        return None  # authorizers that read selectors then see none


def _label_selector(text: str) -> Selector | None:
    try:
        return parse_labels(text) if text else None
    except SelectorError:
        return None
