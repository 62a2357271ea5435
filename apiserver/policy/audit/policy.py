"""`--audit-policy-file`: the audit level of requests.

    omitStages: [RequestReceived]
    rules:
    - {level: None, users: ["system:kube-proxy"], verbs: [watch]}
    - {level: RequestResponse, resources: [{group: "", resources: [pods, "*/scale"]}]}
    - {level: Metadata}

    policy = read_policy(data)
    policy.of(attributes) → Recording(level, omit_stages, omit_managed_fields)

The first rule that matches counts; a request that no rule matches is not recorded.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kvstack.apimachinery.attributes import Attributes
from kvstack.apimachinery.objects.text import config_document
from kvstack.apimachinery.objects.text.config_document import Document, DocumentError
from kvstack.apimachinery.objects.text.go_text import quote

NONE: Final = 0
METADATA: Final = 1
REQUEST: Final = 2
REQUEST_RESPONSE: Final = 3
LEVELS: Final = ("None", "Metadata", "Request", "RequestResponse")
"""The names of the levels, by number."""

RECEIVED: Final = "RequestReceived"
STARTED: Final = "ResponseStarted"
COMPLETE: Final = "ResponseComplete"
PANIC: Final = "Panic"
STAGES: Final = (RECEIVED, STARTED, COMPLETE, PANIC)

_KINDS: Final = {("audit.k8s.io/v1", "Policy")}
_ALL: Final = "*"


class Recording(NamedTuple):
    """How a request is recorded."""

    level: int
    omit_stages: frozenset[str] = frozenset()
    omit_managed_fields: bool = False


class Resources(NamedTuple):
    """Resources of one group."""

    group: str
    resources: tuple[str, ...]
    names: tuple[str, ...]

    def matches(self, attributes: Attributes) -> bool:
        """Return whether a request concerns one of them."""
        if self.group not in (_ALL, attributes.group):
            return False
        if not self.resources:
            return True
        if self.names and attributes.name not in self.names:
            return False
        resource, below = attributes.resource, attributes.subresource
        whole = f"{resource}/{below}" if below else resource
        return any(
            each in (_ALL, whole, f"{resource}/*") or (below and each == f"*/{below}")
            for each in self.resources
        )


class Rule(NamedTuple):
    """One rule; an empty member matches everything."""

    recording: Recording
    users: frozenset[str]
    groups: frozenset[str]
    verbs: frozenset[str]
    namespaces: frozenset[str]
    resources: tuple[Resources, ...]
    paths: tuple[str, ...]

    def matches(self, attributes: Attributes) -> bool:
        """Return whether the rule matches a request."""
        user = attributes.user
        if self.users and (not user.name or user.name not in self.users):
            return False
        if self.groups and self.groups.isdisjoint(user.groups):
            return False
        if self.verbs and attributes.verb not in self.verbs:
            return False
        if self.namespaces or self.resources:
            return attributes.is_resource and self._matches_resource(attributes)
        if self.paths:
            return not attributes.is_resource and any(
                _is_path(attributes.path, each) for each in self.paths
            )
        return True

    def _matches_resource(self, attributes: Attributes) -> bool:
        if self.namespaces and attributes.namespace not in self.namespaces:
            return False
        return not self.resources or any(each.matches(attributes) for each in self.resources)


class Policy:
    """The rules in order."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules: Final = tuple(rules)

    def of(self, attributes: Attributes) -> Recording:
        """Return how a request is recorded."""
        for rule in self.rules:
            if rule.matches(attributes):
                return rule.recording
        return _NOT


_NOT: Final = Recording(NONE)


def _is_path(path: str, pattern: str) -> bool:
    if pattern in (_ALL, path):
        return True
    return pattern.endswith(_ALL) and path.startswith(pattern.rstrip(_ALL))


def read_policy(data: bytes) -> Policy:
    """Return the policy of a file; raises DocumentError."""
    document = config_document.read(data, _KINDS)
    document.plain("metadata")
    omitted = _stages(document)
    omits_fields = document.flag("omitManagedFields")
    found = [_rule(each, omitted, omits_fields=omits_fields) for each in document.items("rules")]
    document.close()
    if not found:
        raise DocumentError("loaded illegal policy with 0 rules")
    return Policy(found)


def _rule(item: Document, omitted: frozenset[str], *, omits_fields: bool) -> Rule:
    level = item.text("level")
    if level not in LEVELS:
        levels = ", ".join(quote(each) for each in LEVELS)
        wrong = f"Unsupported value: {quote(level)}: supported values: {levels}"
        raise DocumentError(f"{item.at('level')}: {wrong if level else 'Required value'}")
    recording = Recording(
        LEVELS.index(level),
        omitted | _stages(item),
        item.flag("omitManagedFields", default=omits_fields),
    )
    rule = Rule(
        recording,
        frozenset(item.texts("users")),
        frozenset(item.texts("userGroups")),
        frozenset(item.texts("verbs")),
        frozenset(item.texts("namespaces")),
        tuple(map(_resources, item.items("resources"))),
        _paths(item),
    )
    item.close()
    if rule.paths and (rule.resources or rule.namespaces):
        raise DocumentError(
            f"{item.at('nonResourceURLs')}: Invalid value: rules cannot apply to both regular"
            " resources and non-resource URLs"
        )
    return rule


def _stages(item: Document) -> frozenset[str]:
    stages = item.texts("omitStages")
    for position, each in enumerate(stages):
        if each not in STAGES:
            raise DocumentError(
                f"{item.at('omitStages')}[{position}]: Invalid value: {quote(each)}: allowed stages"
                f" are {','.join(STAGES)}"
            )
    return frozenset(stages)


def _resources(item: Document) -> Resources:
    resources = Resources(item.text("group"), item.texts("resources"), item.texts("resourceNames"))
    item.close()
    if resources.names and not resources.resources:
        raise DocumentError(
            f"{item.at('resourceNames')}: Invalid value: using resourceNames requires at least one"
            " resource"
        )
    return resources


def _paths(item: Document) -> tuple[str, ...]:
    paths = item.texts("nonResourceURLs")
    for position, each in enumerate(paths):
        path = f"{item.at('nonResourceURLs')}[{position}]: Invalid value: {quote(each)}"
        if each != _ALL and not each.startswith("/"):
            raise DocumentError(f"{path}: non-resource URL rules must begin with a '/' character")
        if _ALL in each[:-1]:
            raise DocumentError(
                f"{path}: non-resource URL wildcards '*' must be the final character of the rule"
            )
    return paths
