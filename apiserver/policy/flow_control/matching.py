"""Classification of requests by FlowSchemas, and into flows.

    schema = Schema(flow_schema)            compiled from the object
    schema.matches(user, info)
    schema.distinguisher(user, info)        "alice", a namespace, or nothing

Of all that match, the one with the lowest matchingPrecedence counts, then the first by name.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from kvstack.apimachinery.attributes import User, parse_service_account
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.request_info import RequestInfo

_ALL: Final = "*"


class _Rule(NamedTuple):
    """One rule: its subjects and requests."""

    subjects: tuple[Callable[[User], bool], ...]
    resources: tuple["_Resources", ...]
    paths: tuple["_Paths", ...]


class _Resources(NamedTuple):
    verbs: frozenset[str]
    groups: frozenset[str]
    resources: frozenset[str]
    cluster_scope: bool
    namespaces: frozenset[str]

    def matches(self, info: RequestInfo) -> bool:
        name = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
        if not (
            _has(self.verbs, info.verb)
            and _has(self.groups, info.group)
            and _has(self.resources, name)
        ):
            return False
        return _has(self.namespaces, info.namespace) if info.namespace else self.cluster_scope


class _Paths(NamedTuple):
    verbs: frozenset[str]
    paths: frozenset[str]
    prefixes: tuple[str, ...]

    def matches(self, info: RequestInfo) -> bool:
        if not _has(self.verbs, info.verb):
            return False
        path = info.path
        return path in self.paths or (bool(self.prefixes) and path.startswith(self.prefixes))


class Schema:
    """A compiled FlowSchema."""

    def __init__(self, obj: Object) -> None:
        """obj: a valid object."""
        metadata, spec = obj["metadata"], obj["spec"]
        self.name: Final[str] = metadata["name"]
        self.uid: Final[str] = metadata.get("uid", "")
        self.level: Final[str] = spec["priorityLevelConfiguration"]["name"]
        self.precedence: Final[int] = spec.get("matchingPrecedence", 0)
        self._by: Final[str] = (spec.get("distinguisherMethod") or {}).get("type", "")
        self._rules: Final = tuple(_rule(each) for each in spec.get("rules") or ())

    @property
    def order(self) -> tuple[int, str]:
        """The sort key of schemas."""
        return self.precedence, self.name

    def matches(self, user: User, info: RequestInfo) -> bool:
        """Return whether a request matches."""
        for rule in self._rules:
            if any(is_subject(user) for is_subject in rule.subjects):
                parts = rule.resources if info.is_resource else rule.paths
                if any(each.matches(info) for each in parts):
                    return True
        return False

    def distinguisher(self, user: User, info: RequestInfo) -> str:
        """Return the flow distinguisher of a request."""
        if self._by == "ByUser":
            return user.name
        return info.namespace if self._by == "ByNamespace" else ""


def _has(allowed: frozenset[str], value: str) -> bool:
    return value in allowed or _ALL in allowed


def _rule(rule: Object) -> _Rule:
    return _Rule(
        tuple(_subject(each) for each in rule.get("subjects") or ()),
        tuple(
            _Resources(
                _set(each.get("verbs")),
                _set(each.get("apiGroups")),
                _set(each.get("resources")),
                bool(each.get("clusterScope")),
                _set(each.get("namespaces")),
            )
            for each in rule.get("resourceRules") or ()
        ),
        tuple(_paths(each) for each in rule.get("nonResourceRules") or ()),
    )


def _set(values: Iterable[str] | None) -> frozenset[str]:
    return frozenset(values or ())


def _paths(rule: Object) -> _Paths:
    given = rule.get("nonResourceURLs") or ()
    return _Paths(
        _set(rule.get("verbs")),
        frozenset(each for each in given if not each.endswith(_ALL)),
        tuple(each.removesuffix(_ALL) for each in given if each.endswith(_ALL)),
    )


def _subject(subject: Object) -> Callable[[User], bool]:
    kind = subject.get("kind")
    if kind == "User":
        name = (subject.get("user") or {}).get("name")
        return lambda user: name in (_ALL, user.name)
    if kind == "Group":
        group = (subject.get("group") or {}).get("name")
        return lambda user: group == _ALL or group in user.groups
    account = subject.get("serviceAccount") or {}
    wanted = account.get("namespace"), account.get("name")

    def is_account(user: User) -> bool:
        found = parse_service_account(user.name)
        return found is not None and found[0] == wanted[0] and wanted[1] in (_ALL, found[1])

    return is_account
