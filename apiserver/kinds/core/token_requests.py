"""TokenRequests of ServiceAccounts; they are signed elsewhere.

    check_name → default → prepare → validate → [validating admission] → bound → check_bound → term

A token may be bound to a Pod, a Secret or a Node, and is invalid once that is gone. Webhook
configurations as bound objects are off by default.
"""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.field_errors import FieldError, index, invalid, key, not_supported
from kvstack.apimachinery.objects.groups import GroupKind, GroupResource, GroupVersionKind
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import check_dns_subdomain

DEFAULT_SECONDS: Final = 3600
INJECTED_SECONDS: Final = 3607
"""The expiry that the default pod volume requests; such tokens live longer, see `term`."""
YEAR_SECONDS: Final = 365 * 24 * 3600

_KIND: Final = GroupKind("authentication.k8s.io", "TokenRequest")
_SECONDS_MIN: Final = 600
_SECONDS_MAX: Final = 2**32
_RESOURCES: Final = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}
_WEBHOOKS: Final = frozenset({"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"})
_WEBHOOKS_VERSION: Final = "admissionregistration.k8s.io/v1"
_ATTESTATION: Final = "admissionReviewAPIGroups"


class Bound(NamedTuple):
    """The object a token is to be bound to."""

    kind: str
    """`Pod`, `Secret` or `Node`; the first two in the namespace of the ServiceAccount."""
    resource: str
    name: str
    uid: str
    """The UID it must have; empty: any."""


class Term(NamedTuple):
    """The lifetime of a token."""

    status_seconds: int
    """The lifetime in the answer."""
    seconds: int
    """The lifetime in the token."""
    warn_after_seconds: int
    """After how many seconds its use is recorded; 0: never."""
    warning: str
    """Warning for the client; may be empty."""


def check_name(request: Object, name: str) -> None:
    """Check that a name in the body is that of the URL; raises ApiError."""
    given = (request.get("metadata") or {}).get("name", "")
    if given and given != name:
        detail = "must match the service account name if specified"
        raise status.invalid(_KIND, name, [invalid("metadata.name", given, detail)])


def default(request: Object) -> None:
    """Set the default expiry."""
    spec = request.setdefault("spec", {})
    if spec.get("expirationSeconds") is None:
        spec["expirationSeconds"] = DEFAULT_SECONDS


def prepare(request: Object, account: Object, audiences: Sequence[str], now: str) -> None:
    """Complete a request for the account; raises ApiError if it is for another one of that name.

    audiences: those of the API server, for a request that names none; now: RFC 3339 in seconds.
    """
    metadata, of_account = request.setdefault("metadata", {}), account["metadata"]
    uid, own_uid = metadata.get("uid", ""), of_account["uid"]
    if uid and uid != own_uid:
        detail = (
            f"the UID in the token request ({uid}) does not match the UID of the service account"
            f" ({own_uid})"
        )
        resource = GroupResource(_KIND.group, _KIND.kind)
        raise status.conflict(resource, of_account["name"], detail)
    if not request["spec"].get("audiences"):
        request["spec"]["audiences"] = list(audiences)
    for each in ("name", "namespace", "uid"):
        metadata[each] = of_account[each]
    metadata["creationTimestamp"] = now
    request["status"] = {}


def check(request: Object) -> None:
    """Validate a prepared request; raises ApiError without an object name."""
    errors = validate(request)
    if errors:
        raise status.invalid(_KIND, "", errors)


def validate(request: Object) -> list[FieldError]:
    """Return the errors of a request."""
    spec: Object = request["spec"]
    errors: list[FieldError] = []
    path, seconds = "spec.expirationSeconds", spec["expirationSeconds"]
    if seconds < _SECONDS_MIN:
        errors.append(invalid(path, seconds, "may not specify a duration less than 10 minutes"))
    if seconds > _SECONDS_MAX:
        errors.append(invalid(path, seconds, "may not specify a duration larger than 2^32 seconds"))
    attestations: dict[str, list[str]] = spec.get("attestations") or {}
    path = "spec.attestations"
    if _is_webhook(spec.get("boundObjectRef") or {}):
        audiences = spec.get("audiences") or []
        if len(audiences) != 1:
            detail = "must be length 1 when bound to a webhook config"
            errors.append(invalid("spec.audiences", audiences, detail))
        return errors + _attestation_errors(path, attestations)
    if attestations:
        detail = "attestations may only be specified with a webhook bound object reference"
        return [invalid(path, attestations, detail)]
    return errors


def bound(request: Object) -> Bound | None:
    """Return the object to bind the token to, if any; raises ApiError if it is invalid."""
    reference: Object | None = request["spec"].get("boundObjectRef")
    if reference is None:
        return None
    kind = _kind_of(reference)
    if not kind.group and kind.kind in _RESOURCES:
        name, uid = reference.get("name", ""), reference.get("uid", "")
        return Bound(kind.kind, _RESOURCES[kind.kind], name, uid)
    off = (
        " (feature gate APIServerWebhookAuthenticationToken is disabled)"
        if _is_webhook(reference)
        else ""
    )
    raise status.bad_request(f"cannot bind token to object of type {kind}{off}")


def check_bound(target: Bound, obj: Object, account: str) -> None:
    """Check the object that a token for the account is bound to; raises ApiError."""
    if target.kind == "Pod" and obj["spec"].get("serviceAccountName", "") != account:
        raise status.bad_request(
            f'cannot bind token for serviceaccount "{account}" to pod running with different'
            " serviceaccount name."
        )
    if target.uid and target.uid != obj["metadata"]["uid"]:
        detail = (
            f"the UID in the bound object reference ({target.uid}) does not match the UID in"
            " record. The object might have been deleted and then recreated"
        )
        raise status.conflict(GroupResource("", target.kind), target.name, detail)


def term(
    request: Object,
    *,
    is_pod_bound: bool,
    api_audiences: Collection[str],
    longest_seconds: int = 0,
    extended_seconds: int = YEAR_SECONDS,
    extends: bool = True,
) -> Term:
    """Return the lifetime of the token, and set it in the request.

    A token with exactly the expiry of the default pod volume, for the API server alone, lives
    longer than its status says, for clients that never reload it; longest_seconds 0: no limit.
    """
    spec: Object = request["spec"]
    status_seconds: int = spec["expirationSeconds"]
    warning = ""
    if 0 < longest_seconds < status_seconds:
        warning = (
            f"requested expiration of {status_seconds} seconds shortened to"
            f" {longest_seconds} seconds"
        )
        status_seconds = spec["expirationSeconds"] = longest_seconds
    is_injected = status_seconds == INJECTED_SECONDS and is_pod_bound
    if extends and is_injected and set(spec["audiences"]) <= set(api_audiences):
        return Term(status_seconds, extended_seconds, status_seconds, warning)
    return Term(status_seconds, status_seconds, 0, warning)


def _kind_of(reference: Object) -> GroupVersionKind:
    """Return the kind of a reference; an invalid version counts as none."""
    parts: list[str] = reference.get("apiVersion", "").split("/")
    group, version = ("", *parts)[-2:] if len(parts) <= 2 else ("", "")
    return GroupVersionKind(group, version, reference.get("kind", ""))


def _is_webhook(reference: Object) -> bool:
    return reference.get("kind") in _WEBHOOKS and reference.get("apiVersion") == _WEBHOOKS_VERSION


def _attestation_errors(path: str, attestations: dict[str, list[str]]) -> list[FieldError]:
    if len(attestations) != 1:
        detail = "webhook bound requests require exactly one admissionReviewAPIGroups attestation"
        return [invalid(path, attestations or None, detail)]
    ((name, values),) = attestations.items()
    path = key(path, name)
    if name != _ATTESTATION:
        return [not_supported(path, name, (_ATTESTATION,))]
    if len(values) != 1:
        return [invalid(path, values or None, "must specify a single value")]
    path, group = index(path, 0), values[0]
    if not group:
        return [invalid(path, group, "may not be an empty string")]
    problems = [] if group == "*" else check_dns_subdomain(group)
    return [invalid(path, group, f"must specify a valid API Group: {each}") for each in problems]
