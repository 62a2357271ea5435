"""The webhook authorizer, which sends SubjectAccessReviews.

    attributes ──► conditions ──► cached? ──► POST ──► allowed, denied or no opinion

Answers are cached by the whole review: those that allow for five minutes, others for thirty
seconds, unless the configuration says otherwise. Very large reviews are not cached, since clients
control them. The configuration says what happens if the webhook fails.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol

import orjson

from kvstack.apimachinery.attributes import Attributes, User
from kvstack.apimachinery.objects import labels
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.labels import Selector
from kvstack.apimachinery.objects.text.json_text import exact
from kvstack.apiserver.policy.authorization.user_rules import UserRules
from kvstack.apiserver.policy.interfaces import NO_OPINION, Decision
from kvstack.apiserver.policy.remembering import Remembered
from kvstack.apiserver.policy.remote.connection import RemoteError
from kvstack.apiserver.policy.remote.webhook import result_of
from kvstack.component.clock import Clock
from kvstack.component.units import SECOND_NS

REMEMBERED_MAX: Final = 8192
QUESTION_MAX: Final = 10_000
"""Limit of client-controlled characters in a cached review."""

_OPERATORS: Final = {True: "In", False: "NotIn"}
_LABEL_OPERATORS: Final = {
    labels.IN: "In",
    labels.EQUALS: "In",
    labels.DOUBLE_EQUALS: "In",
    labels.NOT_IN: "NotIn",
    labels.NOT_EQUALS: "NotIn",
    labels.EXISTS: "Exists",
    labels.DOES_NOT_EXIST: "DoesNotExist",
}


class Reviewer(Protocol):
    """Answers reviews; see `remote.webhook.Webhook`."""

    async def review(self, review: Object) -> Object:
        """Return the status of the answered review; raises RemoteError."""
        ...


class Conditions(Protocol):
    """Whether the webhook is to be called."""

    def match(self, spec: Object) -> bool:
        """Evaluate the spec of a SubjectAccessReview of v1; raises ConditionError."""
        ...


class ConditionError(Exception):
    """A condition cannot be evaluated, and none is false."""


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """Settings of one webhook."""

    name: str
    version: str = "v1"
    """Version of the review: v1 or v1beta1."""
    allowed_ns: int = 300 * SECOND_NS
    """How long an answer that allows is cached; 0: not at all."""
    other_ns: int = 30 * SECOND_NS
    denies_on_error: bool = False


class WebhookAuthorizer:
    """Calls one webhook."""

    def __init__(
        self,
        settings: WebhookSettings,
        reviewer: Reviewer,
        clock: Clock,
        conditions: Conditions | None = None,
        failed_open: Callable[[str, str], None] = lambda _name, _result: None,
    ) -> None:
        """conditions: when to call it; None: always.

        failed_open: called with the name and `timeout` or `error` when a failure is left to other
        authorizers.
        """
        self._failed_open: Final = failed_open
        self.name: Final = settings.name
        self._settings: Final = settings
        self._reviewer: Final = reviewer
        self._conditions: Final = conditions
        self._answers: Final[Remembered[bytes, Decision]] = Remembered(REMEMBERED_MAX, clock)

    def authorize(self, attributes: Attributes) -> Decision | Awaitable[Decision]:
        """Return the webhook's decision, possibly a cached one."""
        spec = review_spec(attributes)
        if self._conditions is not None:
            try:
                if not self._conditions.match(spec):
                    return NO_OPINION
            except ConditionError as error:
                return self._failed(str(error))
        key = orjson.dumps(spec, option=orjson.OPT_SORT_KEYS)
        known = self._answers.get(key)
        return self._ask(attributes, spec, key) if known is None else known

    def user_rules(self, _user: User, _namespace: str) -> UserRules:
        """Return that its rules are unknown."""
        return UserRules((), ("webhook authorizer does not support user rule resolution",), True)

    async def _ask(self, attributes: Attributes, spec: Object, key: bytes) -> Decision:
        version = self._settings.version
        review = {
            "kind": "SubjectAccessReview",
            "apiVersion": f"authorization.k8s.io/{version}",
            "metadata": {},
            "spec": _v1beta1(spec) if version == "v1beta1" else spec,
            "status": {"allowed": False},
        }
        try:
            status = await self._reviewer.review(review)
        except RemoteError as error:
            if not self._settings.denies_on_error:
                self._failed_open(self.name, result_of(error))
            return self._failed(str(error))
        decision = _decision(status)
        if _size(attributes) < QUESTION_MAX:
            settings = self._settings
            lasts_ns = settings.allowed_ns if status.get("allowed") is True else settings.other_ns
            self._answers.put(exact(key), decision, lasts_ns)
        return decision

    def _failed(self, error: str) -> Decision:
        return Decision(allowed=False, denied=self._settings.denies_on_error, error=error)


def review_spec(attributes: Attributes) -> Object:
    """Return the spec of a SubjectAccessReview of v1; empty members are left out."""
    user = attributes.user
    spec: Object = {}
    if attributes.is_resource:
        spec["resourceAttributes"] = _resource_attributes(attributes)
    else:
        asked = {"path": attributes.path, "verb": attributes.verb}
        spec["nonResourceAttributes"] = {name: text for name, text in asked.items() if text}
    info = user.to_object()
    name = info.pop("username", "")
    return {**spec, **({"user": name} if name else {}), **info}


def _resource_attributes(attributes: Attributes) -> Object:
    resource_attributes: Object = {
        "namespace": attributes.namespace,
        "verb": attributes.verb,
        "group": attributes.group,
        "version": attributes.version,
        "resource": attributes.resource,
        "subresource": attributes.subresource,
        "name": attributes.name,
    }
    resource_attributes = {name: text for name, text in resource_attributes.items() if text}
    by_field, by_label = attributes.field_selector, attributes.label_selector
    if by_field is not None and by_field.requirements:
        wanted = [
            {"key": each.field, "operator": _OPERATORS[each.is_equal], "values": [each.value]}
            for each in by_field.requirements
        ]
        resource_attributes["fieldSelector"] = {"requirements": wanted}
    if by_label is not None and (requirements := _label_requirements(by_label)):
        resource_attributes["labelSelector"] = {"requirements": requirements}
    return resource_attributes


def _label_requirements(selector: Selector) -> list[Object]:
    # Unsupported requirements are left out, which makes the review broader.
    return [
        {
            "key": each.key,
            "operator": _LABEL_OPERATORS[each.operator],
            **({"values": list(each.values)} if each.values else {}),
        }
        for each in selector.requirements
        if each.operator in _LABEL_OPERATORS
    ]


def _v1beta1(spec: Object) -> Object:
    """Return the spec with the names of v1beta1."""
    return {("group" if name == "groups" else name): value for name, value in spec.items()}


def _decision(status: Object) -> Decision:
    is_allowed, is_denied = status.get("allowed") is True, status.get("denied") is True
    reason = status.get("reason")
    reason = reason if isinstance(reason, str) else ""
    if is_allowed and is_denied:
        error = "webhook subject access review returned both allow and deny response"
        return Decision(allowed=False, reason=reason, denied=True, error=error)
    if is_allowed or is_denied:
        return Decision(is_allowed, reason, is_denied)
    return Decision(allowed=False, reason=reason)


def _size(attributes: Attributes) -> int:
    """Return how many characters of a review its client controls."""
    return sum(
        map(
            len,
            (
                attributes.namespace,
                attributes.verb,
                attributes.group,
                attributes.version,
                attributes.resource,
                attributes.subresource,
                attributes.name,
                attributes.path,
            ),
        )
    )
