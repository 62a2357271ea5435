"""SelfSubjectRulesReview: the rules of a user in a namespace."""

from collections.abc import Iterable
from typing import Any, Final

from kvstack.apimachinery.attributes import User
from kvstack.apimachinery.objects.text.go_text import aggregate
from kvstack.apiserver.policy.authorization.user_rules import RuleSource

Obj = dict[str, Any]

_OF_RESOURCES: Final = ("verbs", "apiGroups", "resources", "resourceNames")
_OF_PATHS: Final = ("verbs", "nonResourceURLs")


def rules_status(sources: Iterable[RuleSource], user: User, namespace: str) -> Obj:
    """Return the status of a review: the rules of all authorizers."""
    resource_rules: list[Obj] = []
    path_rules: list[Obj] = []
    errors: list[str] = []
    is_incomplete = False
    for source in sources:
        user_rules = source.user_rules(user, namespace)
        resource_rules += [
            _part(each, _OF_RESOURCES) for each in user_rules.rules if each.get("resources")
        ]
        path_rules += [
            _part(each, _OF_PATHS) for each in user_rules.rules if each.get("nonResourceURLs")
        ]
        errors += user_rules.errors
        is_incomplete |= user_rules.is_incomplete
    status: Obj = {
        "resourceRules": resource_rules,
        "nonResourceRules": path_rules,
        "incomplete": is_incomplete,
    }
    if errors:
        status["evaluationError"] = aggregate(errors)
    return status


def _part(rule: Obj, members: Iterable[str]) -> Obj:
    return {name: rule[name] for name in members if rule.get(name)}
