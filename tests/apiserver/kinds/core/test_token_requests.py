"""What tokens of ServiceAccounts may be asked for."""

from collections.abc import Callable
from typing import Any

import pytest

from kvstack.apimachinery.objects.status import ApiError
from kvstack.apiserver.kinds.core.token_requests import (
    Bound,
    Term,
    bound,
    check,
    check_bound,
    check_name,
    default,
    prepare,
    term,
)
from tests.apiserver.kinds.hooks import NOW

ACCOUNT = {"metadata": {"name": "sa", "namespace": "ns", "uid": "u1"}}
API = ["https://kubernetes.default.svc"]


def request(**spec: Any) -> dict[str, Any]:
    """Return a prepared request."""
    made: dict[str, Any] = {"metadata": {}, "spec": spec, "status": {"token": "t"}}
    default(made)
    prepare(made, ACCOUNT, API, NOW)
    return made


def refusal(operation: Callable[..., object], *arguments: Any) -> str:
    """Return what is raised."""
    with pytest.raises(ApiError) as error:
        operation(*arguments)
    return f"{error.value.code} {error.value.message}"


def test_prepared_request() -> None:
    """It is one for the account, with defaults and without a status."""
    assert request() == {
        "metadata": {"name": "sa", "namespace": "ns", "uid": "u1", "creationTimestamp": NOW},
        "spec": {"audiences": API, "expirationSeconds": 3600},
        "status": {},
    }
    assert request(audiences=[""])["spec"]["audiences"] == [""]


def test_other_account() -> None:
    """Name and UID of the body must be those of the account."""
    check_name({}, "sa")
    check_name({"metadata": {"name": "sa"}}, "sa")
    assert refusal(check_name, {"metadata": {"name": "other"}}, "sa") == (
        '422 TokenRequest.authentication.k8s.io "sa" is invalid: metadata.name: Invalid value:'
        ' "other": must match the service account name if specified'
    )
    given = {"metadata": {"uid": "x"}, "spec": {}}
    assert refusal(prepare, given, ACCOUNT, API, NOW) == (
        '409 Operation cannot be fulfilled on TokenRequest.authentication.k8s.io "sa": the UID in'
        " the token request (x) does not match the UID of the service account (u1)"
    )


WEBHOOK = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "MutatingWebhookConfiguration",
    "name": "w",
}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"expirationSeconds": 599},
            "expirationSeconds: Invalid value: 599: may not specify a duration less than 10"
            " minutes",
        ),
        (
            {"expirationSeconds": 2**32 + 1},
            "expirationSeconds: Invalid value: 4294967297:"
            " may not specify a duration larger than 2^32 seconds",
        ),
        (
            {"attestations": {"a": ["b"]}},
            'attestations: Invalid value: {"a":["b"]}:'
            " attestations may only be specified with a webhook bound object reference",
        ),
        (
            {"boundObjectRef": WEBHOOK},
            "attestations: Invalid value: null:"
            " webhook bound requests require exactly one admissionReviewAPIGroups attestation",
        ),
        (
            {"boundObjectRef": WEBHOOK, "attestations": {"a": ["b"]}},
            'attestations[a]: Unsupported value: "a": supported values: "admissionReviewAPIGroups"',
        ),
        (
            {"boundObjectRef": WEBHOOK, "attestations": {"admissionReviewAPIGroups": []}},
            "attestations[admissionReviewAPIGroups]: Invalid value: null:"
            " must specify a single value",
        ),
        (
            {"boundObjectRef": WEBHOOK, "attestations": {"admissionReviewAPIGroups": [""]}},
            'attestations[admissionReviewAPIGroups][0]: Invalid value: "":'
            " may not be an empty string",
        ),
        (
            {
                "audiences": ["a", "b"],
                "boundObjectRef": WEBHOOK,
                "attestations": {"admissionReviewAPIGroups": ["apps"]},
            },
            'audiences: Invalid value: ["a","b"]: must be length 1 when bound to a webhook config',
        ),
    ],
)
def test_refused_requests(spec: dict[str, Any], expected: str) -> None:
    """The message names no object."""
    assert refusal(check, request(**spec)) == (
        f'422 TokenRequest.authentication.k8s.io "" is invalid: spec.{expected}'
    )


@pytest.mark.parametrize("group", ["*", "apps"])
def test_accepted_requests(group: str) -> None:
    """The shortest and the longest; and attestations of one group."""
    check(request(expirationSeconds=600))
    check(request(expirationSeconds=2**32))
    check(request(boundObjectRef=WEBHOOK, attestations={"admissionReviewAPIGroups": [group]}))


@pytest.mark.parametrize("version", ["v1", "", "/v1", "v2", "a/b/c"])
def test_bound_object(version: str) -> None:
    """A Pod, a Secret or a Node of the core group, of any version."""
    assert bound(request()) is None
    for kind, resource in (("Pod", "pods"), ("Secret", "secrets"), ("Node", "nodes")):
        reference = {"apiVersion": version, "kind": kind, "name": "x", "uid": "y"}
        assert bound(request(boundObjectRef=reference)) == Bound(kind, resource, "x", "y")


@pytest.mark.parametrize(
    ("version", "kind", "expected"),
    [
        ("v1", "ConfigMap", "/v1, Kind=ConfigMap"),
        ("apps/v1", "Pod", "apps/v1, Kind=Pod"),
        ("a/b/c", "X", "/, Kind=X"),
        (
            WEBHOOK["apiVersion"],
            WEBHOOK["kind"],
            "admissionregistration.k8s.io/v1, Kind=MutatingWebhookConfiguration"
            " (feature gate APIServerWebhookAuthenticationToken is disabled)",
        ),
    ],
)
def test_objects_no_token_is_bound_to(version: str, kind: str, expected: str) -> None:
    """They are told as they are named."""
    given = request(boundObjectRef={"apiVersion": version, "kind": kind, "name": "x"})
    assert refusal(bound, given) == f"400 cannot bind token to object of type {expected}"


def test_bound_object_is_the_right_one() -> None:
    """By its UID; a pod runs as the account."""
    pod = {"metadata": {"uid": "p1"}, "spec": {"serviceAccountName": "sa"}}
    check_bound(Bound("Pod", "pods", "x", ""), pod, "sa")
    check_bound(Bound("Secret", "secrets", "x", "s1"), {"metadata": {"uid": "s1"}}, "sa")
    assert refusal(check_bound, Bound("Pod", "pods", "x", ""), pod, "other") == (
        '400 cannot bind token for serviceaccount "other" to pod running with different'
        " serviceaccount name."
    )
    assert refusal(check_bound, Bound("Pod", "pods", "x", "p2"), pod, "sa") == (
        '409 Operation cannot be fulfilled on Pod "x": the UID in the bound object reference (p2)'
        " does not match the UID in record. The object might have been deleted and then recreated"
    )


@pytest.mark.parametrize(
    ("seconds", "members", "expected"),
    [
        (3600, {}, Term(3600, 3600, 0, "")),
        (3607, {}, Term(3607, 31536000, 3607, "")),
        (3607, {"is_pod_bound": False}, Term(3607, 3607, 0, "")),
        (3607, {"api_audiences": ["other"]}, Term(3607, 3607, 0, "")),
        (3607, {"extends": False}, Term(3607, 3607, 0, "")),
        (
            7200,
            {"longest_seconds": 3607},
            Term(
                3607,
                31536000,
                3607,
                "requested expiration of 7200 seconds shortened to 3607 seconds",
            ),
        ),
        (3600, {"longest_seconds": 3600}, Term(3600, 3600, 0, "")),
    ],
)
def test_term(seconds: int, members: dict[str, Any], expected: Term) -> None:
    """What injected volumes ask for lasts a year, with a note after the hour."""
    given = request(expirationSeconds=seconds)
    settings: dict[str, Any] = {"is_pod_bound": True, "api_audiences": API, **members}
    assert term(given, **settings) == expected
    assert given["spec"]["expirationSeconds"] == expected.status_seconds
