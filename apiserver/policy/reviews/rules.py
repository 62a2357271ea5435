"""SelfSubjectRulesReview: the rules of a user in a namespace."""

from collections.abc import Iterable
from typing import Final

from kvstack.apimachinery.attributes import User
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.go_text import aggregate
from kvstack.apiserver.policy.authorization.user_rules import RuleSource

_OF_RESOURCES: Final = ("verbs", "apiGroups", "resources", "resourceNames")
_OF_PATHS: Final = ("verbs", "nonResourceURLs")


def rules_status(sources: Iterable[RuleSource], user: User, namespace: str) -> Object:
    """Return the status of a review: the rules of all authorizers."""
    resource_rules: list[Object] = []
    path_rules: list[Object] = []
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
    status: Object = {
        "resourceRules": resource_rules,
        "nonResourceRules": path_rules,
        "incomplete": is_incomplete,
    }
    if errors:
        status["evaluationError"] = aggregate(errors)
    return status


def _part(rule: Object, members: Iterable[str]) -> Object:
    return {name: rule[name] for name in members if rule.get(name)}
