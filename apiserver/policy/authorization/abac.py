"""The mode ABAC: a file of policies, one JSON object per line.

    {"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy",
     "spec": {"user": "bob", "namespace": "a", "resource": "pods", "readonly": true}}

A policy without apiVersion and kind is of the old form: its members are those of the spec, it
covers all API groups, and without a user or group it applies to everybody. `*` means every
authenticated user. Empty lines and comments (`#`) are ignored. The file is read once.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import orjson

from kvstack.apimachinery.attributes import AUTHENTICATED, Attributes, User
from kvstack.apiserver.policy.authorization.chain import ALLOWED
from kvstack.apiserver.policy.authorization.user_rules import UserRules
from kvstack.apiserver.policy.interfaces import Decision

GROUP: Final = "abac.authorization.kubernetes.io"

_ALL: Final = "*"
_READS: Final = frozenset(("get", "list", "watch"))
_VERSIONS: Final = (f"{GROUP}/v1beta1", f"{GROUP}/v0")
_TEXTS: Final = {
    "user": "user",
    "group": "group",
    "namespace": "namespace",
    "resource": "resource",
    "api_group": "apiGroup",
    "path": "nonResourcePath",
}
_NOT_MATCHED: Final = Decision(allowed=False, reason="No policy matched.")


class BadPolicyError(ValueError):
    """A line is not a policy."""


class Policy(NamedTuple):
    """A policy; for resources and paths `*` means any, empty none."""

    user: str = ""
    group: str = ""
    namespace: str = ""
    resource: str = ""
    api_group: str = ""
    path: str = ""
    is_readonly: bool = False

    def is_about(self, user: User) -> bool:
        """Return whether it applies to a user: to both user and group, if it names both."""
        if not self.user and not self.group:
            return False
        return (not self.user or self.user == user.name) and (
            not self.group or self.group in user.groups
        )

    def covers(self, attributes: Attributes) -> bool:
        """Return whether it covers the request."""
        if self.is_readonly and attributes.verb not in _READS:
            return False
        if attributes.is_resource:
            return (
                self.namespace in {_ALL, attributes.namespace}
                and self.resource in {_ALL, attributes.resource}
                and self.api_group in {_ALL, attributes.group}
            )
        path = self.path
        return path in {_ALL, attributes.path} or (
            path.endswith(_ALL) and attributes.path.startswith(path.rstrip(_ALL))
        )


class AbacAuthorizer:
    """Allows what a policy covers; otherwise it has no opinion."""

    name = "abac"

    def __init__(self, policies: Iterable[Policy]) -> None:
        self._policies: Final = tuple(policies)

    def authorize(self, attributes: Attributes) -> Decision:
        """Return whether any policy allows it."""
        for each in self._policies:
            if each.is_about(attributes.user) and each.covers(attributes):
                return ALLOWED
        return _NOT_MATCHED

    def user_rules(self, user: User, namespace: str) -> UserRules:
        """Return the policies of a user in a namespace as rules."""
        rules: list[dict[str, Any]] = []
        for policy in self._policies:
            if not policy.is_about(user) or policy.namespace not in {_ALL, namespace}:
                continue
            verbs = ["get", "list", "watch"] if policy.is_readonly else [_ALL]
            if policy.resource:
                resources = [policy.resource]
                rules.append(
                    {"verbs": verbs, "apiGroups": [policy.api_group], "resources": resources}
                )
            if policy.path:
                rules.append({"verbs": verbs, "nonResourceURLs": [policy.path]})
        return UserRules(rules)


def read_policies(data: bytes, path: str) -> list[Policy]:
    """Return the policies of a file; ValueError names the file and the invalid line."""
    policies: list[Policy] = []
    for number, line in enumerate(data.split(b"\n"), 1):
        text = line.strip()
        if not text or text.startswith(b"#"):
            continue
        try:
            policies.append(_policy(orjson.loads(text)))
        except ValueError as error:
            shown = text.decode("utf-8", "replace")
            raise ValueError(
                f"error reading policy file {path}, line {number}: {shown}: {error}"
            ) from None
    return policies


def _policy(value: object) -> Policy:
    if not isinstance(value, dict):
        raise BadPolicyError("a policy is an object")
    version = value.get("apiVersion") or ""
    if not version and not value.get("kind"):
        return _old_policy(value)
    if version not in _VERSIONS or value.get("kind") != "Policy":
        raise BadPolicyError(f'no kind "{value.get("kind")}" is registered for version "{version}"')
    if version == _VERSIONS[1]:
        return _old_policy(value)
    spec = value.get("spec") or {}
    if not isinstance(spec, dict):
        raise BadPolicyError("spec is an object")
    return _of_members(spec)


def _old_policy(value: dict[str, Any]) -> Policy:
    policy = _of_members(value)
    if not policy.user and not policy.group:
        policy = policy._replace(group=AUTHENTICATED)
    is_everything = not policy.namespace and not policy.resource
    return policy._replace(
        namespace=policy.namespace or _ALL,
        resource=policy.resource or _ALL,
        api_group=_ALL,
        path=_ALL if is_everything else "",
    )


def _of_members(value: dict[str, Any]) -> Policy:
    texts = {member: value.get(name) or "" for member, name in _TEXTS.items()}
    readonly = value.get("readonly") or False
    if not all(isinstance(each, str) for each in texts.values()) or not isinstance(readonly, bool):
        raise BadPolicyError("a member is of the wrong type")
    policy = Policy(**texts, is_readonly=readonly)
    # `*` means every authenticated user.
    if _ALL in {policy.user, policy.group}:
        return policy._replace(user="", group=AUTHENTICATED)
    return policy
