"""What CertificateSigningRequests may be, who asks, and who may answer what."""

from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.kinds.certificates.signing_requests import SIGNING_REQUESTS
from tests.apiserver.kinds.certificates.keys import EC, ED25519, certificate, request_of, text
from tests.apiserver.kinds.hooks import (
    NOW,
    cells_of,
    change_refusals,
    changed,
    prepared_object,
    refusals,
)

REQUEST = text(request_of(EC, Encoding.PEM))
APPROVAL = SIGNING_REQUESTS.subresources["approval"]
STATUS = SIGNING_REQUESTS.subresources["status"]
ISSUED = text(certificate())


def signing_request(**spec: Any) -> Object:
    """Return a request."""
    given = {"request": REQUEST, "signerName": "example.com/s", "usages": ["client auth"]}
    return {"metadata": {"name": "r"}, "spec": given | spec}


def with_status(*kinds: str, status: str = "True", certificate: str = "") -> Object:
    """Return a request with conditions."""
    conditions = [{"type": kind, "status": status} for kind in kinds]
    found: Object = {"conditions": conditions} if conditions else {}
    if certificate:
        found["certificate"] = certificate
    return {**signing_request(), "status": found}


def test_who_asks() -> None:
    """The user of the request, whatever the object says; nothing is approved yet."""
    given = signing_request(username="root", groups=["a"], uid="1", extra={"a": ["b"]})
    given["status"] = {"conditions": [{"type": "Approved", "status": "True"}]}
    found = prepared_object(SIGNING_REQUESTS, given, user="eve", groups=["g"], extra={"k": ("v",)})
    assert found["spec"] == {
        **signing_request()["spec"],
        "username": "eve",
        "groups": ["g"],
        "extra": {"k": ["v"]},
    }
    assert found["status"] == {}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, []),
        ({"request": text(request_of(ED25519, Encoding.PEM))}, []),
        ({"request": ISSUED},
         [f'spec.request: Invalid value: "{ISSUED}": PEM block type must be CERTIFICATE REQUEST']),
        ({"usages": []}, ["spec.usages: Required value"]),
        ({"usages": ["any", "any"]}, ['spec.usages[1]: Duplicate value: "any"']),
        ({"signerName": "kubernetes.io/legacy-unknown"},
         ['spec.signerName: Invalid value: "kubernetes.io/legacy-unknown": the legacy signerName is'
          " not allowed via this API version"]),
        ({"expirationSeconds": 599},
         ["spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 600"
          " seconds (10 minutes)"]),
    ],
)  # fmt: skip
def test_requests(spec: dict[str, Any], expected: list[str]) -> None:
    """They are signed with their own key and say what the certificate is for."""
    assert refusals(SIGNING_REQUESTS, signing_request(**spec)) == expected


def test_bad_signature() -> None:
    """It is told in Go's words."""
    data = bytearray(request_of(EC))
    data[-1] ^= 1
    pem = b"-----BEGIN CERTIFICATE REQUEST-----\n%b\n-----END CERTIFICATE REQUEST-----\n"
    request = text(pem % text(bytes(data)).encode())
    (message,) = refusals(SIGNING_REQUESTS, signing_request(request=request))
    assert message.endswith(": x509: ECDSA verification failure")


def test_names() -> None:
    """They may be anything in a path; that is told when nothing else is wrong."""
    obj = signing_request()
    obj["metadata"]["name"] = "A/b"
    assert refusals(SIGNING_REQUESTS, obj) == [
        "metadata.name: Invalid value: \"A/b\": may not contain '/'"
    ]


def test_plain_changes() -> None:
    """Spec and status stay."""
    old = with_status("Approved", certificate=ISSUED)
    new = signing_request(usages=["any"])
    found = changed(SIGNING_REQUESTS, new, old)
    assert (found["spec"], found["status"]) == (old["spec"], old["status"])


def test_approval() -> None:
    """It sets conditions and their times, and nothing else."""
    old = with_status()
    new = with_status("Approved", certificate=ISSUED)
    found = changed(APPROVAL, new, old)
    times = {"lastUpdateTime": NOW, "lastTransitionTime": NOW}
    assert found["status"] == {"conditions": [{"type": "Approved", "status": "True", **times}]}
    assert change_refusals(APPROVAL, new, old) == []


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        (with_status("Approved", "Denied"), with_status(), [
            'status.conditions: Invalid value: "{conditions[{\\"type\\": \\"Approved\\"}],'
            ' conditions[{\\"type\\": \\"Denied\\"}]}": must specify at most one of:'
            ' `conditions[{"type": "Approved"}]`, `conditions[{"type": "Denied"}]`']),
        (with_status("Approved", "Denied"), with_status("Approved", "Denied"), []),
        (with_status(), with_status("Denied"),
         ['status.conditions: Forbidden: updates may not remove a condition of type "Denied"']),
        (with_status("Failed", status="False"), with_status(),
         ['status.conditions[0].status: Unsupported value: "False": supported values: "True"']),
        (with_status("", "x", "x"), with_status(), [
            "status.conditions[0].type: Required value",
            'status.conditions[2].type: Duplicate value: "x"',
        ]),
        (with_status("x", status=""), with_status(),
         ["status.conditions[0].status: Required value"]),
    ],
)  # fmt: skip
def test_conditions(new: Object, old: Object, expected: list[str]) -> None:
    """Requests are approved or denied, for good."""
    assert change_refusals(APPROVAL, new, old) == expected


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        (with_status(certificate=ISSUED), with_status(), []),
        (with_status("Failed"), with_status(), []),
        (with_status("Approved"), with_status(),
         ['status.conditions: Forbidden: updates may not add a condition of type "Approved"']),
        (with_status(certificate=text(certificate(hours=3))), with_status(certificate=ISSUED),
         ["status.certificate: Forbidden: updates may not modify existing certificate content"]),
        (with_status(certificate=text(b"x")), with_status(),
         ['status.certificate: Invalid value: "<certificate data>": must contain at least one'
          " CERTIFICATE PEM block"]),
        (with_status(certificate=REQUEST), with_status(),
         ['status.certificate: Invalid value: "<certificate data>": only CERTIFICATE PEM blocks are'
          ' allowed, found "CERTIFICATE REQUEST"']),
    ],
)  # fmt: skip
def test_issue(new: Object, old: Object, expected: list[str]) -> None:
    """A certificate is issued once; approval is not the signer's."""
    assert change_refusals(STATUS, new, old) == expected


def test_status_keeps_approval() -> None:
    """What approvers said stays as it was; times of what is the same stay."""
    old = with_status("Approved", "Failed")
    old["status"]["conditions"][0]["reason"] = "because"
    old["status"]["conditions"][1]["lastTransitionTime"] = "2020-01-01T00:00:00Z"
    found = changed(STATUS, with_status("Failed", "Approved"), old)
    failed, approved = found["status"]["conditions"]
    assert approved["reason"] == "because"
    assert failed["lastTransitionTime"] == "2020-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (with_status(), "Pending"),
        (with_status("Approved", certificate=ISSUED), "Approved,Issued"),
        (with_status("Denied", "Approved", "Failed"), "Denied,Failed"),
    ],
)
def test_cells(obj: Object, expected: str) -> None:
    """Who asks whom for how long, and how it stands."""
    obj["spec"] |= {"username": "u", "expirationSeconds": 3600}
    assert cells_of(SIGNING_REQUESTS, obj)[2:] == ["example.com/s", "u", "60m", expected]
