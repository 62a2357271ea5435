"""Matching of admission requests by rules and selectors.

    hit = rules.resource_for("CREATE", served, "")     the version of the resource that a rule names
    is_of_namespace(selector, request, labels)
    is_of_object(selector, request)

Shared by webhooks and policies with expressions. A rule is first compared with the resource of the
request; with the match policy Equivalent the other versions of the resource count, too.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kvstack.apimachinery.objects.core.group_resources import NAMESPACES
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.labels import Selector
from kvstack.apiserver.policy.admission.request import (
    CREATE,
    UPDATE,
    AdmissionRequest,
    VersionedResource,
)

EQUIVALENT: Final = "Equivalent"
_ALL: Final = "*"
_NO_LABELS: Final[Mapping[str, str]] = {}


class Rules:
    """Compiled rules of one webhook or policy."""

    __slots__ = ("_is_equivalent", "_rules")

    def __init__(self, rules: Iterable[dict[str, Any]], match_policy: str) -> None:
        """rules: as in the object."""
        self._rules: Final = [_Rule(each) for each in rules]
        self._is_equivalent: Final = match_policy == EQUIVALENT

    def resource_for(
        self,
        operation: str,
        served: Sequence[VersionedResource],
        subresource: str,
        *,
        is_namespaced: bool,
    ) -> VersionedResource | None:
        """Return the version in which the object is shown; None: no rule matches.

        served: the versions of the resource, that of the request first.
        """
        rules = [each for each in self._rules if each.is_of(operation, is_namespaced=is_namespaced)]
        own = served[0]
        if any(each.names(own, subresource) for each in rules):
            return own
        if not self._is_equivalent:
            return None
        for rule in rules:
            for versioned in served[1:]:
                if rule.names(versioned, subresource):
                    return versioned
        return None


class _Rule:
    __slots__ = ("_groups", "_operations", "_resources", "_scope", "_versions")

    def __init__(self, rule: dict[str, Any]) -> None:
        self._operations = frozenset(rule.get("operations") or ())
        self._groups = frozenset(rule.get("apiGroups") or ())
        self._versions = frozenset(rule.get("apiVersions") or ())
        self._resources = [each.partition("/") for each in rule.get("resources") or ()]
        self._scope = rule.get("scope") or _ALL

    def is_of(self, operation: str, *, is_namespaced: bool) -> bool:
        if self._scope not in (_ALL, "Namespaced" if is_namespaced else "Cluster"):
            return False
        return not self._operations.isdisjoint((_ALL, operation))

    def names(self, versioned: VersionedResource, subresource: str) -> bool:
        if self._groups.isdisjoint((_ALL, versioned.group)):
            return False
        if self._versions.isdisjoint((_ALL, versioned.version)):
            return False
        return any(
            resource in (_ALL, versioned.resource) and below in (_ALL, subresource)
            for resource, _, below in self._resources
        )


def is_namespaced(request: AdmissionRequest) -> bool:
    """Return whether the scope Namespaced covers a request; it does not cover Namespaces."""
    return bool(request.namespace) and request.resource != NAMESPACES


def needs_namespace(selector: Selector, request: AdmissionRequest) -> bool:
    """Return whether a namespace selector applies; cluster-scoped objects always match."""
    if selector.is_everything:
        return False
    return bool(request.namespace) or request.resource == NAMESPACES


def own_labels(request: AdmissionRequest) -> Mapping[str, str] | None:
    """Return the labels of a Namespace that is being written; None: another kind of request."""
    is_own = request.resource == NAMESPACES and not request.subresource
    if not is_own or request.operation not in (CREATE, UPDATE):
        return None
    return labels_of(request.object)


def is_of_object(selector: Selector, request: AdmissionRequest) -> bool:
    """Return whether the selector matches the new or the old object."""
    if selector.is_everything:
        return True
    return any(
        each is not None and "metadata" in each and selector.matches(labels_of(each))
        for each in (request.object, request.old)
    )


def labels_of(obj: Object | None) -> Mapping[str, str]:
    """Return the labels of an object."""
    found: Mapping[str, str] | None = ((obj or {}).get("metadata") or {}).get("labels")
    return found or _NO_LABELS
