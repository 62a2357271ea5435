"""ValidatingWebhookConfigurations and MutatingWebhookConfigurations.

Existing faults may stay: duplicate names, side effects, unknown versions and selectors with invalid
values are refused only if the stored configuration has none of them.
"""

from typing import Any, Final, NamedTuple

from kvstack.apimachinery.objects.field_checks import fully_qualified_name
from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    duplicate,
    index,
    invalid,
    not_supported,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.labels import validate_object
from kvstack.apimachinery.objects.names import check_dns1035_label
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apimachinery.objects.times import age
from kvstack.apimachinery.schema.load import enum_values
from kvstack.apiserver.kinds.admissionregistration.match_conditions import check_match_conditions
from kvstack.apiserver.kinds.admissionregistration.reserved_names import (
    reserved_name_errors,
    reserved_name_warnings,
)
from kvstack.apiserver.kinds.admissionregistration.resource_rules import (
    check_rule,
    default_rules,
    excluded_warnings,
)
from kvstack.apiserver.kinds.generation import set_first_generation
from kvstack.apiserver.kinds.rules import Errors, add_invalid, all_of, each, in_range, one_of
from kvstack.apiserver.kinds.strategy import Context, Strategy
from kvstack.apiserver.kinds.webhook_clients import check_client, default_client

_TYPES: Final = "io.k8s.api.admissionregistration.v1"
FAILURE_POLICIES: Final = enum_values(f"{_TYPES}.ValidatingWebhook", "failurePolicy")
MATCH_POLICIES: Final = enum_values(f"{_TYPES}.ValidatingWebhook", "matchPolicy")
REINVOCATION_POLICIES: Final = enum_values(f"{_TYPES}.MutatingWebhook", "reinvocationPolicy")

_TIMEOUT_SECONDS: Final = 10
_SELECTORS: Final = ("namespaceSelector", "objectSelector")
_VERSIONS: Final = ("v1", "v1beta1")
_NO_SIDE_EFFECTS: Final = ("None", "NoneOnDryRun")
_SIDE_EFFECTS: Final = enum_values(f"{_TYPES}.ValidatingWebhook", "sideEffects")


class _Allowed(NamedTuple):
    """Faults that are tolerated because the stored object has them."""

    side_effects: bool = False
    unknown_versions: bool = False
    repeated_names: bool = False
    invalid_values: bool = False


def _default_validating(obj: Object) -> None:
    for webhook in obj.get("webhooks") or ():
        _default(webhook)


def _default_mutating(obj: Object) -> None:
    for webhook in obj.get("webhooks") or ():
        _default(webhook)
        if webhook.get("reinvocationPolicy") is None:
            webhook["reinvocationPolicy"] = "Never"


def _default(webhook: Object) -> None:
    default_client(webhook.get("clientConfig"))
    default_rules(webhook.get("rules"))
    for name, value in (
        ("failurePolicy", "Fail"),
        ("matchPolicy", "Equivalent"),
        ("timeoutSeconds", _TIMEOUT_SECONDS),
    ):
        if webhook.get(name) is None:
            webhook[name] = value
    for name in _SELECTORS:
        if webhook.get(name) is None:
            webhook[name] = {}


def _prepare_update(new: Object, old: Object, _context: Context) -> None:
    if (new.get("webhooks") or []) != (old.get("webhooks") or []):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _validate(obj: Object, context: Context) -> list[FieldError]:
    errors = _errors(obj, None, context)
    return errors + reserved_name_errors(obj)


def _validate_update(new: Object, old: Object, context: Context) -> list[FieldError]:
    return _errors(new, old, context)


def _errors(obj: Object, old: Object | None, context: Context) -> list[FieldError]:
    errors: Errors = []
    webhooks = obj.get("webhooks") or []
    before = (old or {}).get("webhooks") or []
    allowed = _Allowed() if old is None else _allowed_before(before)
    is_matched_as_before = old is not None and (
        [each.get("matchConditions") for each in webhooks]
        == [each.get("matchConditions") for each in before]
    )
    stored = [each for webhook in before for each in webhook.get("matchConditions") or ()]
    names: set[str] = set()
    for position, webhook in enumerate(webhooks):
        path = index("webhooks", position)
        _check_webhook(webhook, path, errors, allowed)
        if not is_matched_as_before:
            conditions = webhook.get("matchConditions") or []
            conditions_path = child(path, "matchConditions")
            check_match_conditions(conditions, conditions_path, errors, context, stored=stored)
        _check_versions(webhook, child(path, "admissionReviewVersions"), errors, allowed)
        name = webhook.get("name", "")
        if name in names and not allowed.repeated_names:
            errors.append(duplicate(child(path, "name"), name))
        names |= {name} if name else set()
    return errors


_check_choices: Final = all_of(
    each("rules", check_rule),
    one_of("failurePolicy", FAILURE_POLICIES),
    one_of("matchPolicy", MATCH_POLICIES),
)
_check_timeout: Final = in_range(
    "timeoutSeconds", 1, 30, "the timeout value must be between 1 and 30 seconds"
)
_check_reinvocation: Final = one_of("reinvocationPolicy", REINVOCATION_POLICIES)


def _check_webhook(webhook: Object, path: str, errors: Errors, allowed: _Allowed) -> None:
    errors.extend(fully_qualified_name(child(path, "name"), webhook.get("name", "")))
    _check_choices(webhook, path, errors)
    _check_side_effects(webhook.get("sideEffects"), child(path, "sideEffects"), errors, allowed)
    _check_timeout(webhook, path, errors)
    for name in _SELECTORS:
        errors.extend(
            validate_object(
                child(path, name), webhook.get(name), allow_invalid_values=allowed.invalid_values
            )
        )
    _check_reinvocation(webhook, path, errors)
    check_client(webhook.get("clientConfig") or {}, child(path, "clientConfig"), errors)


def _check_side_effects(value: str | None, path: str, errors: Errors, allowed: _Allowed) -> None:
    choices = _SIDE_EFFECTS if allowed.side_effects else _NO_SIDE_EFFECTS
    if value is None:
        errors.append(required(path, f"must specify one of {', '.join(choices)}"))
    elif value not in choices:
        errors.append(not_supported(path, JsonText(value), choices))


def _check_versions(webhook: Object, path: str, errors: Errors, allowed: _Allowed) -> None:
    versions: list[str] = webhook.get("admissionReviewVersions") or []
    supported = ", ".join(_VERSIONS)
    if not versions:
        errors.append(required(path, f"must specify one of {supported}"))
        return
    seen: set[str] = set()
    for position, version in enumerate(versions):
        where = index(path, position)
        if version in seen:
            errors.append(invalid(where, version, "duplicate version"))
            continue
        seen.add(version)
        add_invalid(errors, where, version, check_dns1035_label(version))
    if not allowed.unknown_versions and seen.isdisjoint(_VERSIONS):
        errors.append(invalid(path, versions, f"must include at least one of {supported}"))


def _allowed_before(webhooks: list[Object]) -> _Allowed:
    names = [each.get("name", "") for each in webhooks]
    reviews = [each.get("admissionReviewVersions") or () for each in webhooks]
    return _Allowed(
        side_effects=any(each.get("sideEffects") not in _NO_SIDE_EFFECTS for each in webhooks),
        unknown_versions=any(each and not set(each) & set(_VERSIONS) for each in reviews),
        repeated_names=len(set(names)) < len(names),
        invalid_values=any(
            validate_object("", each.get(name)) for each in webhooks for name in _SELECTORS
        ),
    )


def _warnings(obj: Object, _context: Context) -> list[str]:
    return list(excluded_warnings(obj.get("webhooks") or ()))


def _update_warnings(new: Object, _old: Object, context: Context) -> list[str]:
    return [*reserved_name_warnings(new), *_warnings(new, context)]


def _cells(obj: Object, now: float) -> list[Any]:
    metadata = obj["metadata"]
    created = metadata.get("creationTimestamp")
    return [metadata["name"], len(obj.get("webhooks") or ()), age(created, now)]


def _strategy(*, is_mutating: bool) -> Strategy:
    return Strategy(
        allows_any_finalizer=True,
        default=_default_mutating if is_mutating else _default_validating,
        prepare_create=set_first_generation,
        prepare_update=_prepare_update,
        validate=_validate,
        validate_update=_validate_update,
        warnings=_warnings,
        update_warnings=_update_warnings,
        allows_unconditional_update=False,
        has_generation=True,
        cells=_cells,
    )


VALIDATING_WEBHOOK_CONFIGURATIONS: Final = _strategy(is_mutating=False)
MUTATING_WEBHOOK_CONFIGURATIONS: Final = _strategy(is_mutating=True)
