"""Compiled rules of roles.

    compile_rule({"verbs": ["get"], "apiGroups": [""], "resources": ["pods/log", "*/scale"]})
        .allows_resource("get", "", "pods/log", "log")   → True

`*` matches every verb, group or resource, subresources included; `*/scale` that subresource of any
resource. The name of a resource does not match its subresources.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

Source = Mapping[str, Any]
"""A rule as in the role."""

ALL: Final = "*"
_ANY_RESOURCE_OF: Final = "*/"


class Rule:
    """A compiled, immutable rule."""

    __slots__ = (
        "_any_group",
        "_any_resource",
        "_any_url",
        "_any_verb",
        "_groups",
        "_resources",
        "_subresources",
        "_url_prefixes",
        "_urls",
        "_verbs",
        "names",
        "source",
    )

    def __init__(self, source: Source) -> None:
        self.source: Final = source
        self.names: Final = frozenset(_texts(source, "resourceNames"))
        """The resourceNames; empty: all objects."""
        self._verbs: Final = frozenset(_texts(source, "verbs"))
        self._groups: Final = frozenset(_texts(source, "apiGroups"))
        self._resources: Final = frozenset(_texts(source, "resources"))
        self._urls: Final = frozenset(_texts(source, "nonResourceURLs"))
        self._any_verb: Final = ALL in self._verbs
        self._any_group: Final = ALL in self._groups
        self._any_resource: Final = ALL in self._resources
        self._any_url: Final = ALL in self._urls
        self._subresources: Final = frozenset(
            each[len(_ANY_RESOURCE_OF) :]
            for each in self._resources
            if each.startswith(_ANY_RESOURCE_OF)
        )
        self._url_prefixes: Final = tuple(
            each.rstrip(ALL) for each in self._urls if each.endswith(ALL)
        )

    def allows_resource(self, verb: str, group: str, resource: str, subresource: str) -> bool:
        """Return whether it allows a request for the objects in `names`.

        resource: with its subresource, `pods/log`; subresource: alone, or "".
        """
        return (
            (self._any_verb or verb in self._verbs)
            and (self._any_group or group in self._groups)
            and (
                self._any_resource
                or resource in self._resources
                or (subresource != "" and subresource in self._subresources)
            )
        )

    def allows_path(self, verb: str, path: str) -> bool:
        """Return whether it allows a request for a non-resource path."""
        return (self._any_verb or verb in self._verbs) and (
            self._any_url
            or path in self._urls
            or (bool(self._url_prefixes) and path.startswith(self._url_prefixes))
        )


def compile_rules(role: Mapping[str, Any]) -> tuple[Rule, ...]:
    """Return the rules of a Role or ClusterRole."""
    return tuple(Rule(each) for each in role.get("rules") or ())


def _texts(source: Source, member: str) -> Iterable[str]:
    texts: Iterable[str] = source.get(member) or ()
    return texts
