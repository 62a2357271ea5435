"""Match resources of policies and bindings: namespaces, objects and rules."""

from typing import Any, Final

from kvstack.apimachinery.objects.field_errors import child, required
from kvstack.apimachinery.objects.labels import validate_object
from kvstack.apiserver.kinds.admissionregistration.resource_rules import (
    check_named_rule,
    default_rules,
)
from kvstack.apiserver.kinds.admissionregistration.webhooks import MATCH_POLICIES
from kvstack.apiserver.kinds.rules import Errors, all_of, each, not_nil, one_of

_SELECTORS: Final = ("namespaceSelector", "objectSelector")

_check_policy: Final = all_of(not_nil("matchPolicy"), one_of("matchPolicy", MATCH_POLICIES))
_check_rules: Final = each("resourceRules", check_named_rule)
_check_exclusions: Final = each("excludeResourceRules", check_named_rule)


def default_match_resources(match: dict[str, Any] | None) -> None:
    """Set the defaults, which match everything."""
    if match is None:
        return
    if match.get("matchPolicy") is None:
        match["matchPolicy"] = "Equivalent"
    for name in _SELECTORS:
        if match.get(name) is None:
            match[name] = {}
    default_rules(match.get("resourceRules"))
    default_rules(match.get("excludeResourceRules"))


def check_match_resources(match: dict[str, Any], path: str, errors: Errors) -> None:
    """Check selectors and rules."""
    _check_policy(match, path, errors)
    for name in _SELECTORS:
        selector = match.get(name)
        if selector is None:
            errors.append(required(child(path, name)))
        errors.extend(validate_object(child(path, name), selector))
    _check_rules(match, path, errors)
    _check_exclusions(match, path, errors)
