"""Validation of scheduling constraints: affinity, spread, tolerations, gates, resource claims.

    affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0] =
        {"labelSelector": …, "topologyKey": "kubernetes.io/hostname", "matchLabelKeys": ["version"]}

On creation the server adds the values of `matchLabelKeys` to the selector, so a key may be in both
once.
"""

from collections.abc import Sequence
from typing import Final

from kvstack.apimachinery.objects import labels
from kvstack.apimachinery.objects.core.tolerations import (
    NO_EXECUTE,
    NO_SCHEDULE,
    PREFER_NO_SCHEDULE,
)
from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    duplicate,
    forbidden,
    index,
    invalid,
    not_supported,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import (
    check_decimal_integer,
    check_dns_label,
    check_label_key,
    check_label_value,
    name_is_dns_label,
    name_is_dns_subdomain,
)
from kvstack.apimachinery.objects.text.go_numbers import NumberError, parse_int
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apimachinery.schema.load import enum_in_order, enum_values
from kvstack.apiserver.kinds.internal_values import internal_value
from kvstack.apiserver.kinds.pods.node_selectors import (
    check_node_selector,
    check_node_selector_term,
)
from kvstack.apiserver.kinds.pods.scope import SpecScope
from kvstack.apiserver.kinds.rules import (
    Errors,
    Rule,
    add_invalid,
    all_of,
    check_positive,
    one_of,
)

_SPREAD: Final = "io.k8s.api.core.v1.TopologySpreadConstraint"
REQUIRED_TERMS: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED_TERMS: Final = "preferredDuringSchedulingIgnoredDuringExecution"
TAINT_EFFECTS: Final = enum_in_order(
    "io.k8s.api.core.v1.Taint", "effect", NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE
)
TOLERATION_OPERATORS: Final = enum_in_order(
    "io.k8s.api.core.v1.Toleration", "operator", "Equal", "Exists", "Lt", "Gt"
)
_WITHOUT_COMPARING: Final = TOLERATION_OPERATORS[:2]
"""Those that are named where the feature of the others is not the problem."""
SPREAD_ACTIONS: Final = enum_values(_SPREAD, "whenUnsatisfiable")

_BAD_WEIGHT: Final = "must be in the range 1-100"
_INCLUSION_POLICIES: Final = enum_values(_SPREAD, "nodeAffinityPolicy")
_NO_SELECTOR: Final = "must not be specified when labelSelector is not set"
_IN_SELECTOR: Final = "exists in both matchLabelKeys and labelSelector"


def check_affinity(scope: SpecScope) -> None:
    """Check node affinity, pod affinity and anti-affinity."""
    affinity = scope.spec.get("affinity")
    if affinity is None:
        return
    path = child(scope.path, "affinity")
    node_affinity = affinity.get("nodeAffinity")
    if node_affinity is not None:
        _check_node_affinity(scope, node_affinity, child(path, "nodeAffinity"))
    for name in ("podAffinity", "podAntiAffinity"):
        pod_affinity = affinity.get(name)
        if pod_affinity is not None:
            _check_pod_affinity(scope, pod_affinity, child(path, name))


def check_tolerations(scope: SpecScope) -> None:
    """Check the tolerations."""
    tolerations = scope.spec.get("tolerations")
    if tolerations:
        path = child(scope.path, "tolerations")
        check_toleration_list(
            scope.errors,
            tolerations,
            path,
            allows_comparing=scope.tolerances.comparing_tolerations,
        )


def check_toleration_list(
    errors: Errors, tolerations: Sequence[Object], path: str, *, allows_comparing: bool = False
) -> None:
    """Check tolerations of a pod or a RuntimeClass."""
    for position, toleration in enumerate(tolerations):
        item_path = index(path, position)
        key, operator = toleration.get("key", ""), toleration.get("operator", "")
        effect = toleration.get("effect", "")
        if key:
            if wrong := check_label_key(key):
                add_invalid(errors, child(item_path, "key"), key, wrong)
        elif operator != "Exists":
            message = (
                "operator must be Exists when `key` is empty, which means"
                ' "match all values and all keys"'
            )
            errors.append(invalid(child(item_path, "operator"), JsonText(operator), message))
        if toleration.get("tolerationSeconds") is not None and effect != NO_EXECUTE:
            message = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            errors.append(invalid(child(item_path, "effect"), JsonText(effect), message))
        _check_toleration_value(errors, toleration, item_path, allows_comparing)
        if effect and effect not in TAINT_EFFECTS:
            effect_path = child(item_path, "effect")
            errors.append(not_supported(effect_path, JsonText(effect), TAINT_EFFECTS))


def check_spread(scope: SpecScope) -> None:
    """Check the topology spread constraints."""
    constraints = scope.spec.get("topologySpreadConstraints")
    if not constraints:
        return
    path = child(scope.path, "topologySpreadConstraints")
    for position, constraint in enumerate(constraints):
        later = constraints[position + 1 :]
        _check_spread_constraint(scope, constraint, later, index(path, position))


def check_gates(scope: SpecScope) -> None:
    """Check scheduling gates and readiness gates."""
    errors = scope.errors
    path = child(scope.path, "readinessGates")
    for position, gate in enumerate(scope.spec.get("readinessGates") or ()):
        name = gate.get("conditionType", "")
        name_path = child(index(path, position), "conditionType")
        add_invalid(errors, name_path, name, check_label_key(name))
    path = child(scope.path, "schedulingGates")
    names: set[str] = set()
    for position, gate in enumerate(scope.spec.get("schedulingGates") or ()):
        name = gate.get("name", "")
        add_invalid(errors, index(path, position), name, check_label_key(name))
        if name in names:
            errors.append(duplicate(index(path, position), name))
        names.add(name)


def check_resource_claims(scope: SpecScope) -> None:
    """Check the resource claims; record their names in the scope."""
    claims = scope.spec.get("resourceClaims")
    if not claims:
        return
    scope.claims = {each["name"] for each in claims if each.get("name")}
    path = child(scope.path, "resourceClaims")
    names: set[str] = set()
    for position, claim in enumerate(claims):
        if scope.is_mirror:
            message = "static pods do not support resource claims"
            scope.errors.append(forbidden("", message))
        else:
            _check_claim(scope.errors, claim, names, index(path, position))


def check_scheduling_group(scope: SpecScope) -> None:
    """Check the scheduling group, if the pod is in one."""
    group = scope.spec.get("schedulingGroup")
    if group is None:
        return
    path = child(scope.path, "schedulingGroup")
    name = group.get("podGroupName")
    if name is None:
        message = "must specify one of: `podGroupName`"
        scope.errors.append(invalid(child(path, "podGroupName"), None, message))
    else:
        wrong = name_is_dns_subdomain(name, False)
        add_invalid(scope.errors, child(path, "podGroupName"), name, wrong)


def label_key_errors(
    path: str, match: Sequence[str], mismatch: Sequence[str], selector: Object | None
) -> list[FieldError]:
    """Return the errors of label keys whose values come from the pod; `path`: of their owner."""
    match_path = child(path, "matchLabelKeys")
    errors = _own_key_errors(match_path, match, selector)
    errors += _own_key_errors(child(path, "mismatchLabelKeys"), mismatch, selector)
    if selector is not None and match:
        positions = {key: position for position, key in enumerate(match)}
        seen = set(selector.get("matchLabels") or ())
        for expression in selector.get("matchExpressions") or ():
            key = expression.get("key", "")
            if key in positions and key in seen:
                errors.append(invalid(index(path, positions[key]), key, _IN_SELECTOR))
            seen.add(key)
    errors.extend(
        invalid(index(match_path, position), key, "exists in both matchLabelKeys and"
                " mismatchLabelKeys")
        for position, key in enumerate(match)
        if key in mismatch
    )  # fmt: skip
    return errors


def older_label_key_errors(
    path: str, keys: Sequence[str], selector: Object | None
) -> list[FieldError]:
    """Return the errors of label keys by the rule before their values were merged."""
    if not keys:
        return []
    errors: list[FieldError] = []
    seen_keys: set[str] = set()
    if selector is None:
        errors.append(forbidden(path, _NO_SELECTOR))
    else:
        seen_keys.update(selector.get("matchLabels") or ())
        seen_keys.update(each.get("key", "") for each in selector.get("matchExpressions") or ())
    for position, key in enumerate(keys):
        add_invalid(errors, index(path, position), key, check_label_key(key))
        if key in seen_keys:
            errors.append(invalid(index(path, position), key, _IN_SELECTOR))
    return errors


def _own_key_errors(path: str, keys: Sequence[str], selector: Object | None) -> list[FieldError]:
    if not keys:
        return []
    if selector is None:
        return [forbidden(path, _NO_SELECTOR)]
    errors: list[FieldError] = []
    for position, key in enumerate(keys):
        add_invalid(errors, index(path, position), key, check_label_key(key))
    return errors


def _check_node_affinity(scope: SpecScope, affinity: Object, path: str) -> None:
    errors = scope.errors
    needed = affinity.get(REQUIRED_TERMS)
    if needed is not None:
        allows = scope.tolerances.node_affinity_values
        needed_path = child(path, REQUIRED_TERMS)
        check_node_selector(needed, needed_path, errors, allows_bad_values=allows)
    preferred_path = child(path, PREFERRED_TERMS)
    for position, term in enumerate(affinity.get(PREFERRED_TERMS) or ()):
        term_path = index(preferred_path, position)
        _check_weight(errors, term, term_path)
        preference = term.get("preference") or {}
        preference_path = child(term_path, "preference")
        # A preference that no node satisfies is harmless.
        check_node_selector_term(preference, preference_path, errors, allows_bad_values=True)


def _check_pod_affinity(scope: SpecScope, affinity: Object, path: str) -> None:
    required_path = child(path, REQUIRED_TERMS)
    for position, term in enumerate(affinity.get(REQUIRED_TERMS) or ()):
        _check_pod_term(scope, term, index(required_path, position))
    preferred_path = child(path, PREFERRED_TERMS)
    for position, weighted in enumerate(affinity.get(PREFERRED_TERMS) or ()):
        item_path = index(preferred_path, position)
        _check_weight(scope.errors, weighted, item_path)
        term = weighted.get("podAffinityTerm") or {}
        _check_pod_term(scope, term, child(item_path, "podAffinityTerm"))


def _check_pod_term(scope: SpecScope, term: Object, path: str) -> None:
    errors = scope.errors
    allows = scope.tolerances.selector_values
    selector = term.get("labelSelector")
    for name in ("labelSelector", "namespaceSelector"):
        selector_path = child(path, name)
        errors += labels.validate_object(selector_path, term.get(name), allow_invalid_values=allows)
    for namespace in term.get("namespaces") or ():
        wrong = name_is_dns_label(namespace, False)
        add_invalid(errors, child(path, "namespace"), namespace, wrong)
    match, mismatch = term.get("matchLabelKeys") or (), term.get("mismatchLabelKeys") or ()
    if match or mismatch:
        errors += label_key_errors(path, match, mismatch, selector)
    key_path = child(path, "topologyKey")
    key = term.get("topologyKey", "")
    if not key:
        errors.append(required(key_path, "can not be empty"))
    add_invalid(errors, key_path, key, check_label_key(key))


def _check_weight(errors: Errors, term: Object, path: str) -> None:
    weight = term.get("weight", 0)
    if not 1 <= weight <= 100:
        errors.append(invalid(child(path, "weight"), weight, _BAD_WEIGHT))


def _check_toleration_value(
    errors: Errors,
    toleration: Object,
    path: str,
    allows_comparing: bool,  # noqa: FBT001
) -> None:
    operator, value = toleration.get("operator", ""), toleration.get("value", "")
    operator_path = child(path, "operator")
    if operator in {"", "Equal"}:
        wrong = check_label_value(value)
        if wrong:
            errors.append(invalid(operator_path, value, ";".join(wrong)))
    elif operator == "Exists":
        if value:
            message = "value must be empty when `operator` is 'Exists'"
            errors.append(invalid(operator_path, value, message))
    elif operator not in {"Lt", "Gt"}:
        errors.append(not_supported(operator_path, JsonText(operator), _WITHOUT_COMPARING))
    elif not allows_comparing:
        errors.append(not_supported(operator_path, JsonText(operator), TOLERATION_OPERATORS))
    else:
        value_path = child(path, "value")
        add_invalid(errors, value_path, value, check_decimal_integer(value))
        try:
            parse_int(value, 64)
        except NumberError as error:
            errors.append(invalid(value_path, value, str(error)))


def _check_spread_constraint(
    scope: SpecScope, constraint: Object, later: Sequence[Object], path: str
) -> None:
    errors = scope.errors
    check_positive(errors, child(path, "maxSkew"), constraint.get("maxSkew", 0))
    key, action = constraint.get("topologyKey", ""), constraint.get("whenUnsatisfiable", "")
    if not key:
        errors.append(required(child(path, "topologyKey"), "can not be empty"))
    if action not in SPREAD_ACTIONS:
        action_path = child(path, "whenUnsatisfiable")
        errors.append(not_supported(action_path, JsonText(action), SPREAD_ACTIONS))
    pairs = [(each.get("topologyKey", ""), each.get("whenUnsatisfiable", "")) for each in later]
    if (key, action) in pairs:
        pair_path = child(path, "{topologyKey, whenUnsatisfiable}")
        errors.append(duplicate(pair_path, f"{{{key}, {action}}}"))
    domains = constraint.get("minDomains")
    if domains is not None:
        check_positive(errors, child(path, "minDomains"), domains)
        if action != "DoNotSchedule":
            message = "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not " + action
            errors.append(invalid(child(path, "minDomains"), domains, message))
    _inclusion(constraint, path, errors)
    _check_spread_labels(scope, constraint, path)


def _check_spread_labels(scope: SpecScope, constraint: Object, path: str) -> None:
    errors = scope.errors
    keys, selector = constraint.get("matchLabelKeys") or (), constraint.get("labelSelector")
    if keys:
        if scope.tolerances.spread_label_keys:
            errors += older_label_key_errors(child(path, "matchLabelKeys"), keys, selector)
        else:
            errors += label_key_errors(path, keys, (), selector)
    if not scope.tolerances.spread_selectors:
        errors += labels.validate_object(child(path, "labelSelector"), selector)


def _check_claim(errors: Errors, claim: Object, names: set[str], path: str) -> None:
    name = claim.get("name", "")
    name_path = child(path, "name")
    if not name:
        errors.append(required(name_path))
    elif name in names:
        errors.append(duplicate(name_path, name))
    else:
        add_invalid(errors, name_path, name, check_dns_label(name))
        names.add(name)
    sources = ("resourceClaimName", "resourceClaimTemplateName")
    set_sources = [each for each in sources if claim.get(each) is not None]
    if len(set_sources) != 1:
        printed = internal_value(claim, "io.k8s.api.core.v1.PodResourceClaim")
        message = (
            "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            if set_sources
            else "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
        )
        errors.append(invalid(path, printed, message))
    for field in set_sources:
        value = claim[field]
        add_invalid(errors, child(path, field), value, name_is_dns_subdomain(value, False))


_inclusion: Final[Rule] = all_of(
    one_of("nodeAffinityPolicy", _INCLUSION_POLICIES),
    one_of("nodeTaintsPolicy", _INCLUSION_POLICIES),
)
