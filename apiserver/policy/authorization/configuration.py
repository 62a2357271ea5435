"""The authorizers and their order: from an AuthorizationConfiguration or flags.

    apiVersion: apiserver.config.k8s.io/v1
    kind: AuthorizationConfiguration
    authorizers:
    - {type: Node, name: node}
    - type: Webhook
      name: outside
      webhook: {timeout: 3s, failurePolicy: Deny, subjectAccessReviewVersion: v1, …}

    read_authorizers(data)      → [AuthorizerChoice("Node", "node"), …]; raises DocumentError

All types but Webhook may occur once, with their own name in lower case.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from kvstack.apimachinery.objects import durations
from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    duplicate,
    index,
    invalid,
    not_supported,
    required,
    summary,
    too_many,
)
from kvstack.apimachinery.objects.names import check_dns_subdomain
from kvstack.apimachinery.objects.text import config_document
from kvstack.apimachinery.objects.text.config_document import Document, DocumentError
from kvstack.apimachinery.objects.text.go_text import aggregate
from kvstack.apiserver.policy.authorization.webhook import WebhookSettings
from kvstack.component.units import SECOND_NS

TYPES: Final = ("ABAC", "AlwaysAllow", "AlwaysDeny", "Node", "RBAC", "Webhook")
WEBHOOK: Final = "Webhook"
CONDITIONS_MAX: Final = 64
TIMEOUT_MAX_NS: Final = 30 * SECOND_NS

_KINDS: Final = {
    (f"apiserver.config.k8s.io/{version}", "AuthorizationConfiguration")
    for version in ("v1", "v1beta1", "v1alpha1")
}
_FILE: Final = "KubeConfigFile"
_IN_CLUSTER: Final = "InClusterConfig"

FileProblem = Callable[[str], str]
"""Returns why a file cannot be used; empty: it can."""


@dataclass(frozen=True, slots=True)
class WebhookChoice:
    """Settings of a webhook authorizer."""

    settings: WebhookSettings
    kubeconfig: str
    """A path."""
    timeout_ns: int = 30 * SECOND_NS
    conditions: tuple[str, ...] = ()
    """CEL expressions that must all be true for the webhook to be called."""


@dataclass(frozen=True, slots=True)
class AuthorizerChoice:
    """One authorizer."""

    type: str
    name: str
    webhook: WebhookChoice | None = None


def of_modes(modes: Collection[str], webhook: WebhookChoice | None) -> list[AuthorizerChoice]:
    """Return the authorizers of --authorization-mode; webhook: settings of other flags."""
    return [
        AuthorizerChoice(each, each.lower(), webhook if each == WEBHOOK else None) for each in modes
    ]


def read_authorizers(
    data: bytes, file_problem: FileProblem, needed: Collection[str] = ()
) -> list[AuthorizerChoice]:
    """Return the authorizers of a configuration; raises DocumentError with all errors.

    needed: types that must be present, since they were configured at start.
    """
    document = config_document.read(data, _KINDS)
    errors: list[FieldError] = []
    choices: list[AuthorizerChoice] = []
    entries = document.items("authorizers")
    document.close()
    if not entries:
        errors.append(required("authorizers", "at least one authorization mode must be defined"))
    for position, each in enumerate(entries):
        path = index("authorizers", position)
        choice = _choice(each, path, choices, file_problem, errors)
        each.close()
        if choice is not None:
            choices.append(choice)
    if errors:
        raise DocumentError(summary(errors))
    _check_names(choices, needed)
    return choices


def _check_names(choices: Collection[AuthorizerChoice], needed: Collection[str]) -> None:
    wrong = [
        f"expected name {each.type.lower()} for authorizer {each.type} instead of {each.name}"
        for each in choices
        if each.type != WEBHOOK and each.name != each.type.lower()
    ]
    missing = sorted(set(needed) - {each.type for each in choices})
    if missing:
        wrong.append(f"missing required types: [{' '.join(missing)}]")
    if wrong:
        raise DocumentError(aggregate(wrong))


def _choice(
    entry: Document,
    path: str,
    others: Collection[AuthorizerChoice],
    file_problem: FileProblem,
    errors: list[FieldError],
) -> AuthorizerChoice | None:
    """Return one authorizer; None: it is invalid, and `errors` say why."""
    type_, name, webhook = entry.text("type"), entry.text("name"), entry.item("webhook")
    if not type_:
        errors.append(required(child(path, "type")))
        return None
    if type_ not in TYPES:
        errors.append(not_supported(child(path, "type"), type_, TYPES))
        return None
    if type_ != WEBHOOK and any(each.type == type_ for each in others):
        errors.append(duplicate(child(path, "type"), type_))
        return None
    if not name:
        errors.append(required(child(path, "name")))
    elif any(each.name == name for each in others):
        errors.append(duplicate(child(path, "name"), name))
    elif problems := check_dns_subdomain(name):
        message = f"authorizer name is invalid: {', '.join(problems)}"
        errors.append(invalid(child(path, "name"), name, message))
    if type_ == WEBHOOK and webhook is None:
        errors.append(required(child(path, "webhook"), "required when type=Webhook"))
        return None
    if type_ != WEBHOOK and webhook is not None:
        message = "may only be specified when type=Webhook"
        errors.append(invalid(child(path, "webhook"), "non-null", message))
        return None
    if webhook is None:
        return AuthorizerChoice(type_, name)
    chosen = _webhook(webhook, path, name, file_problem, errors)
    webhook.close()
    return AuthorizerChoice(type_, name, chosen)


def _webhook(
    entry: Document, path: str, name: str, file_problem: FileProblem, errors: list[FieldError]
) -> WebhookChoice:
    # Upstream's paths of these fields lack the member `webhook`, too.
    timeout_ns = _timeout(entry, path, errors)
    allowed_ns = _lasts(entry, path, "authorizedTTL", "5m", errors)
    other_ns = _lasts(entry, path, "unauthorizedTTL", "30s", errors)
    version = _one_of(entry, path, "subjectAccessReviewVersion", ("v1", "v1beta1"), errors)
    policy = _one_of(entry, path, "failurePolicy", ("NoOpinion", "Deny"), errors)
    conditions = _conditions(entry, path, errors)
    settings = WebhookSettings(
        name,
        version,
        allowed_ns if entry.flag("cacheAuthorizedRequests", default=True) else 0,
        other_ns if entry.flag("cacheUnauthorizedRequests", default=True) else 0,
        denies_on_error=policy == "Deny",
    )
    kubeconfig = _kubeconfig(entry, path, file_problem, errors)
    return WebhookChoice(settings, kubeconfig, timeout_ns, conditions)


def _timeout(entry: Document, path: str, errors: list[FieldError]) -> int:
    timeout_ns = entry.duration_ns("timeout", "0s")
    where = child(path, "timeout")
    if not timeout_ns:
        errors.append(required(where))
    elif not 0 < timeout_ns <= TIMEOUT_MAX_NS:
        message = "must be > 0s and <= 30s"
        errors.append(invalid(where, durations.text(timeout_ns), message))
    return timeout_ns


def _lasts(entry: Document, path: str, name: str, default: str, errors: list[FieldError]) -> int:
    lasts_ns = entry.duration_ns(name, default) or durations.parse(default)
    if lasts_ns < 0:
        errors.append(invalid(child(path, name), durations.text(lasts_ns), "must be > 0s"))
    return lasts_ns


def _one_of(
    entry: Document, path: str, name: str, names_seen: Collection[str], errors: list[FieldError]
) -> str:
    value = entry.text(name)
    if not value:
        errors.append(required(child(path, name)))
    elif value not in names_seen:
        errors.append(not_supported(child(path, name), value, names_seen))
    return value


def _conditions(entry: Document, path: str, errors: list[FieldError]) -> tuple[str, ...]:
    conditions = entry.items("matchConditions")
    name = "matchConditionSubjectAccessReviewVersion"
    version = entry.text(name)
    if conditions and not version:
        message = "required if match conditions are specified"
        errors.append(required(child(path, name), message))
    elif version not in {"", "v1"}:
        errors.append(not_supported(child(path, name), version, ("v1",)))
    below = child(path, "matchConditions")
    if len(conditions) > CONDITIONS_MAX:
        errors.append(too_many(below, len(conditions), CONDITIONS_MAX))
        return ()
    expressions: list[str] = []
    for position, each in enumerate(conditions):
        text = each.text("expression")
        each.close()
        where = child(index(below, position), "expression")
        if not text.strip():
            errors.append(required(where))
        elif text in expressions:
            errors.append(duplicate(where, text))
        else:
            expressions.append(text)
    return tuple(expressions)


def _kubeconfig(
    entry: Document, path: str, file_problem: FileProblem, errors: list[FieldError]
) -> str:
    info = entry.item("connectionInfo") or Document({})
    type_, file = info.text("type"), info.text("kubeConfigFile")
    info.close()
    below = child(path, "connectionInfo")
    where = child(below, "kubeConfigFile")
    if not type_:
        errors.append(required(child(below, "type")))
    elif type_ == _IN_CLUSTER:
        message = "an API server cannot be its own authorizer"
        errors.append(invalid(child(below, "type"), type_, message))
    elif type_ != _FILE:
        errors.append(not_supported(child(below, "type"), type_, (_IN_CLUSTER, _FILE)))
    elif not file:
        errors.append(required(where))
    elif not PurePosixPath(file).is_absolute():
        errors.append(invalid(where, file, "must be an absolute path"))
    elif problem := file_problem(file):
        errors.append(invalid(where, file, problem))
    return file
