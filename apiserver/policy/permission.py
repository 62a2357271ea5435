"""Authorization attributes of a request, and its 403."""

from html import escape

from kvstack.apimachinery.attributes import Attributes, User
from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.fields import FieldSelector, FieldSelectorError
from kvstack.apimachinery.objects.fields import parse as parse_fields
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.labels import Selector, SelectorError
from kvstack.apimachinery.objects.labels import parse as parse_labels
from kvstack.apimachinery.objects.request_info import RequestInfo
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apiserver.policy.interfaces import Decision


def attributes_of(info: RequestInfo, user: User, verb: str = "") -> Attributes:
    """Return the attributes of a request; verb: replaces that of the request."""
    if not info.is_resource:
        return Attributes.of_path(user, verb or info.verb, info.path)
    return Attributes(
        user,
        verb or info.verb,
        info.group,
        info.version,
        info.resource,
        info.subresource,
        info.namespace,
        info.name,
        info.path,
        True,
        _fields(info.field_selector) if info.field_selector else None,
        _labels(info.label_selector) if info.label_selector else None,
    )


def denied(info: RequestInfo, user: User, decision: Decision, verb: str = "") -> ApiError:
    """Return the 403 of a request; verb: as above."""
    if not info.is_resource:
        return status.path_denied(user.name, verb or info.verb, info.path, decision.reason)
    return status.access_denied(
        user.name,
        verb or info.verb,
        GroupResource(info.group, info.resource),
        name=info.name,
        subresource=info.subresource,
        namespace=info.namespace,
        reason=decision.reason,
    )


def undecided(target: str, decision: Decision) -> str:
    """Return the error of a request that could not be decided."""
    return f"{escape(f'Internal Server Error: {quote(target)}: {decision.error}', quote=False)}\n"


def _fields(text: str) -> FieldSelector | None:
    try:
        return parse_fields(text)
    except FieldSelectorError:
        return None


def _labels(text: str) -> Selector | None:
    try:
        return parse_labels(text)
    except SelectorError:
        return None
