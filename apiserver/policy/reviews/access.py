"""SubjectAccessReview and its variants.

    spec: {user, groups, resourceAttributes: {verb, group, resource, …}}
    → status: {allowed, reason}

`SelfSubjectAccessReview` is about the requester, `LocalSubjectAccessReview` about one namespace.
Invalid selectors are left out, which makes the review broader.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kvstack.apimachinery.attributes import Attributes, User
from kvstack.apimachinery.objects import fields, labels
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.policy.authorization.chain import decided
from kvstack.apiserver.policy.interfaces import Authorizer

_IGNORED: Final = "ignored"
_PARTLY: Final = "partially ignored"
_EQUALITY: Final = {"In": True, "NotIn": False}


class Question(NamedTuple):
    """The access that a review asks about."""

    attributes: Attributes
    errors: tuple[str, ...] = ()
    """Errors of invalid selectors."""


def user_of(spec: Mapping[str, Any]) -> User:
    """Return the user of a SubjectAccessReview."""
    extra = {name: tuple(values or ()) for name, values in (spec.get("extra") or {}).items()}
    groups = tuple(spec.get("groups") or ())
    return User(spec.get("user", ""), spec.get("uid", ""), groups, extra)


def question_of(spec: Mapping[str, Any], user: User) -> Question:
    """Return the access that a validated review asks about."""
    of_path = spec.get("nonResourceAttributes")
    if of_path is not None:
        return Question(Attributes.of_path(user, of_path.get("verb", ""), of_path.get("path", "")))
    resource_attributes: Mapping[str, Any] = spec["resourceAttributes"]
    field_selector, field_error = _field_selector(resource_attributes.get("fieldSelector"))
    label_selector, label_error = _label_selector(resource_attributes.get("labelSelector"))
    attributes = Attributes(
        user,
        resource_attributes.get("verb", ""),
        resource_attributes.get("group", ""),
        resource_attributes.get("version") or "*",
        resource_attributes.get("resource", ""),
        resource_attributes.get("subresource", ""),
        resource_attributes.get("namespace", ""),
        resource_attributes.get("name", ""),
        field_selector=field_selector,
        label_selector=label_selector,
    )
    errors = (("fieldSelector", field_error), ("labelSelector", label_error))
    return Question(
        attributes,
        tuple(
            f"spec.resourceAttributes.{name} {error} due to parse error"
            for name, error in errors
            if error
        ),
    )


async def answer(authorizer: Authorizer, question: Question) -> Object:
    """Return the status of the review."""
    decision = await decided(authorizer, question.attributes)
    status: Object = {"allowed": decision.allowed}
    if decision.denied:
        status["denied"] = True
    if decision.reason:
        status["reason"] = decision.reason
    errors = [decision.error, *question.errors] if decision.error else question.errors
    if errors:
        status["evaluationError"] = "; ".join(errors)
    return status


def _field_selector(selector: Mapping[str, Any] | None) -> tuple[fields.FieldSelector | None, str]:
    """Return a selector and the errors of its invalid requirements."""
    if selector is None:
        return None, ""
    if raw := selector.get("rawSelector"):
        try:
            return fields.parse(raw), ""
        except fields.FieldSelectorError:
            return None, _IGNORED
    requirements = selector.get("requirements") or ()
    read = [
        fields.Requirement(each["key"], _EQUALITY[each["operator"]], each["values"][0])
        for each in requirements
        if each.get("operator") in _EQUALITY and len(each.get("values") or ()) == 1
    ]
    return fields.FieldSelector(read) if read else None, _unread(len(read), len(requirements))


def _label_selector(selector: Mapping[str, Any] | None) -> tuple[labels.Selector | None, str]:
    """Return a selector and the errors of its invalid requirements."""
    if selector is None:
        return None, ""
    if raw := selector.get("rawSelector"):
        try:
            return labels.parse(raw), ""
        except labels.SelectorError:
            return None, _IGNORED
    requirements = selector.get("requirements") or ()
    read: list[labels.Requirement] = []
    for each in requirements:
        try:
            read += labels.from_object({"matchExpressions": [each]}).requirements
        except labels.SelectorError:
            continue
    return labels.Selector(read) if read else None, _unread(len(read), len(requirements))


def _unread(read: int, whole: int) -> str:
    if read == whole:
        return ""
    return _PARTLY if read else _IGNORED
