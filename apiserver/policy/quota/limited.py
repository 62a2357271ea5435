"""Limited resources, which may only be used if a quota covers them.

LimitedResource(pods, match_contains=("requests.cpu",))     no quota counts requests.cpu in the
                                                            namespace: no pod may request it
LimitedResource(pods, match_scopes=({"scopeName": "PriorityClass", "operator": "In", …},))
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kvstack.apimachinery.objects import resources
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.quota.scopes import Scope
from kvstack.apimachinery.quota.usage import Measure


class LimitedResource(NamedTuple):
    """The parts of one resource that require a quota."""

    resource: GroupResource
    match_contains: tuple[str, ...] = ()
    """Names of quota resources that contain one of these are limited."""
    match_scopes: tuple[Scope, ...] = ()
    """Objects in one of these scopes are limited."""


def limited_names(limited: Iterable[LimitedResource], use: Mapping[str, str]) -> set[str]:
    """Return the limited resources that an object uses."""
    return {
        name
        for each in limited
        for name, amount in use.items()
        if any(part in name for part in each.match_contains)
        if not resources.is_zero({name: amount})
    }


def uncovered_scopes(
    limited: Iterable[LimitedResource], measure: Measure, obj: Object, covered: Sequence[Scope]
) -> list[Scope]:
    """Return the limited scopes of an object that no quota covers."""
    names = {each.get("scopeName") for each in covered if measure.is_in(each, obj)}
    return [
        scope
        for each in limited
        for scope in each.match_scopes
        if measure.is_in(scope, obj) and scope.get("scopeName") not in names
    ]


def shown_scopes(scopes: Iterable[Scope]) -> str:
    """Return scopes as upstream prints them: `[{PriorityClass In [high]}]`."""
    texts = (
        f"{{{each.get('scopeName')} {each.get('operator')} [{' '.join(each.get('values') or ())}]}}"
        for each in scopes
    )
    return f"[{' '.join(texts)}]"
