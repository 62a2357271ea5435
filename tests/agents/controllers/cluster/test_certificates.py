"""Requests for certificates: approved, signed, refused, removed."""

import base64
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kvstack.agents.client.built_in import CERTIFICATE_SIGNING_REQUESTS, NODES
from kvstack.agents.controllers.cluster.certificates.controllers import Approver, Cleaner, Signer
from kvstack.agents.controllers.options import SignerOptions
from kvstack.agents.reconcile.plan import Action, Again, Create, Delete, Retry, Update
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.well_known import (
    CLIENT_SIGNER,
    KUBELET_CLIENT_SIGNER,
    KUBELET_SERVING_SIGNER,
    LEGACY_SIGNER,
)
from tests.agents.support.plans import Answer, drive, view_of

NOW_S = 1_700_000_000.0
NOW = datetime.fromtimestamp(NOW_S, UTC)
CLIENT_USAGES = ("digital signature", "client auth")
SERVER_USAGES = ("digital signature", "server auth")


def request(
    *,
    name: str = "system:node:n1",
    organization: str = "system:nodes",
    dns: str = "",
    signer: str = KUBELET_CLIENT_SIGNER,
    usages: tuple[str, ...] = CLIENT_USAGES,
    username: str = "system:node:n1",
    **status: Any,
) -> Object:
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    if dns:
        names = x509.SubjectAlternativeName([x509.DNSName(dns)])
        builder = builder.add_extension(names, critical=False)
    signed = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    pem = signed.public_bytes(serialization.Encoding.PEM)
    spec = {
        "request": base64.b64encode(pem).decode(),
        "signerName": signer,
        "usages": list(usages),
        "username": username,
        "expirationSeconds": 3600,
    }
    meta = {"name": "r", "uid": "u", "creationTimestamp": "2023-11-14T22:13:20Z"}
    return {"metadata": meta, "spec": spec, "status": status}


def authority() -> SignerOptions:
    key = ec.generate_private_key(ec.SECP384R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ca")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW - timedelta(days=1))
        .not_valid_after(NOW + timedelta(days=1))
        .sign(key, hashes.SHA384())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return SignerOptions(certificate.public_bytes(serialization.Encoding.PEM), private)


APPROVED = [{"type": "Approved", "status": "True"}]


def approve(
    obj: Object, allowed: str, nodes: Iterable[Object] = ()
) -> tuple[list[str], Any, list[Object]]:
    """Return the permissions asked for, what the plan returned, and the conditions written."""
    asked: list[str] = []

    def answer(action: Action) -> Answer:
        if isinstance(action, Create):
            subresource = action.obj["spec"]["resourceAttributes"]["subresource"]
            asked.append(subresource)
            return {"status": {"allowed": subresource == allowed}}
        return {}

    view = view_of({CERTIFICATE_SIGNING_REQUESTS: [obj], NODES: nodes})
    actions, again = drive(Approver().reconcile("r", view, NOW_S), answer)
    written = [each.obj["status"]["conditions"] for each in actions if isinstance(each, Update)]
    return asked, again, [condition for found in written for condition in found]


def test_a_kubelet_is_approved() -> None:
    asked, _, [condition] = approve(request(), "nodeclient")
    assert asked == ["selfnodeclient", "nodeclient"]
    assert condition["message"] == (
        "Auto approving kubelet client certificate after SubjectAccessReview."
    )
    asked, _, [condition] = approve(request(), "selfnodeclient")
    assert asked == ["selfnodeclient"]


def node_is(status: str) -> Object:
    """Return the node of the requests."""
    conditions = [{"type": "Ready", "status": status}]
    return {"metadata": {"name": "n1"}, "status": {"conditions": conditions}}


def test_a_token_to_join_makes_nobody_a_node_that_is_ready() -> None:
    """Else it would give the Secrets of that node's pods."""
    stranger = request(username="system:bootstrap:abcdef")
    asked, again, written = approve(stranger, "nodeclient", [node_is("True")])
    assert (asked, written) == ([], [])
    assert isinstance(again, Again)
    for nodes in ([node_is("False")], [node_is("Unknown")], []):
        asked, _, [condition] = approve(stranger, "nodeclient", nodes)
        assert asked == ["nodeclient"]
        assert condition["type"] == "Approved"
    asked, _, [condition] = approve(request(), "selfnodeclient", [node_is("True")])
    assert asked == ["selfnodeclient"]  # its own renewal


def test_who_may_not_waits() -> None:
    _, again, written = approve(request(), "")
    assert isinstance(again, Retry)
    assert written == []


@pytest.mark.parametrize(
    "given",
    [
        {"dns": "example.com"},
        {"organization": "others"},
        {"name": "system:admin"},
        {"usages": SERVER_USAGES},
        {"signer": CLIENT_SIGNER},
        {"conditions": APPROVED},
    ],
)
def test_others_are_left_alone(given: Object) -> None:
    assert approve(request(**given), "nodeclient") == ([], None, [])


def sign(obj: Object, signer: str) -> Object:
    controller = Signer({signer: authority()}, 7200.0)
    view = view_of({CERTIFICATE_SIGNING_REQUESTS: [obj]})
    [written], _ = drive(controller.reconcile("r", view, NOW_S))
    assert isinstance(written, Update)
    assert written.subresource == "status"
    status: Object = written.obj["status"]
    return status


def test_a_certificate() -> None:
    obj = request(
        signer=KUBELET_SERVING_SIGNER,
        usages=SERVER_USAGES,
        dns="n1.example.com",
        conditions=APPROVED,
    )
    pem = base64.b64decode(sign(obj, KUBELET_SERVING_SIGNER)["certificate"])
    found = x509.load_pem_x509_certificate(pem)
    assert found.not_valid_before_utc == NOW - timedelta(minutes=5)
    assert found.not_valid_after_utc == NOW + timedelta(hours=1)
    extensions = found.extensions
    usage = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert extensions.get_extension_for_class(x509.KeyUsage).value.digital_signature
    assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["n1.example.com"]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"organization": "others"}, "subject organization is not system:nodes"),
        ({"dns": "a.b"}, "DNS subjectAltNames are not allowed"),
        ({"usages": SERVER_USAGES}, "usages did not match [client auth digital signature"),
    ],
)
def test_what_is_not_signed_fails(given: Object, text: str) -> None:
    [_, failed] = sign(request(**given, conditions=APPROVED), KUBELET_CLIENT_SIGNER)["conditions"]
    assert (failed["type"], failed["reason"]) == ("Failed", "SignerValidationFailure")
    assert failed["message"].startswith(text)


@pytest.mark.parametrize(
    ("conditions", "age_s", "goes"),
    [
        ([], 86400, False),
        ([], 86401, True),
        ([("Denied", 3599)], 4000, False),
        ([("Denied", 3601)], 4000, True),
        ([("Failed", 3601)], 4000, True),
        ([("Approved", 86399)], 90000, False),
        ([("Approved", 86401)], 90000, True),
    ],
)
def test_old_requests_go(conditions: list[tuple[str, int]], age_s: int, *, goes: bool) -> None:
    def text(seconds_ago: int) -> str:
        moment = datetime.fromtimestamp(NOW_S - seconds_ago, UTC)
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

    found = [{"type": kind, "lastUpdateTime": text(ago)} for kind, ago in conditions]
    obj = request(conditions=found)
    obj["metadata"]["creationTimestamp"] = text(age_s)
    view = view_of({CERTIFICATE_SIGNING_REQUESTS: [obj]})
    asked, _ = drive(Cleaner().reconcile("all", view, NOW_S))
    assert [isinstance(each, Delete) for each in asked] == ([True] if goes else [])


DIGITAL_ONLY = ("digital signature",)


@pytest.mark.parametrize(
    ("signer", "given", "text"),
    [
        (
            KUBELET_SERVING_SIGNER,
            {"organization": "others", "dns": "a.b", "usages": SERVER_USAGES},
            "subject organization is not system:nodes",
        ),
        (KUBELET_SERVING_SIGNER, {"usages": SERVER_USAGES}, "DNS or IP subjectAltName is required"),
        (KUBELET_SERVING_SIGNER, {"dns": "a.b"}, "usages did not match"),
        (
            KUBELET_SERVING_SIGNER,
            {"dns": "a.b", "name": "n1", "usages": SERVER_USAGES},
            "subject common name does not begin with system:node: ",
        ),
        (
            CLIENT_SIGNER,
            {"usages": SERVER_USAGES},
            "invalid usage for client certificate: server auth",
        ),
        (
            CLIENT_SIGNER,
            {"usages": DIGITAL_ONLY},
            "missing required usage for client certificate: client auth",
        ),
    ],
)
def test_what_each_signer_demands(signer: str, given: Object, text: str) -> None:
    [_, failed] = sign(request(signer=signer, **given, conditions=APPROVED), signer)["conditions"]
    assert failed["message"].startswith(text)


@pytest.mark.parametrize("signer", [CLIENT_SIGNER, LEGACY_SIGNER])
def test_other_signers_care_less_for_the_subject(signer: str) -> None:
    obj = request(signer=signer, name="bob", organization="people", conditions=APPROVED)
    assert "certificate" in sign(obj, signer)


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"conditions": [*APPROVED, {"type": "Denied", "status": "True"}]},
        {"conditions": [*APPROVED, {"type": "Failed", "status": "True"}]},
        {"conditions": APPROVED, "certificate": "x"},
    ],
)
def test_what_is_not_approved_or_has_ended_is_not_signed(status: Object) -> None:
    controller = Signer({KUBELET_CLIENT_SIGNER: authority()}, 7200.0)
    view = view_of({CERTIFICATE_SIGNING_REQUESTS: [request(**status)]})
    assert drive(controller.reconcile("r", view, NOW_S)) == ([], None)


@pytest.mark.parametrize(
    ("expected_s", "most_s", "lasts_s"),
    [
        (None, 7200.0, 7200),
        (10000, 7200.0, 7200),
        (60, 7200.0, 600),
        (3600, 7200.0, 3600),
        (40000, 50000.0, 40000 - 300),
        (200000, 300000.0, 86400),
    ],
)
def test_how_long_a_certificate_lasts(expected_s: int | None, most_s: float, lasts_s: int) -> None:
    """A long one is dated back, and ends with its authority at the latest."""
    obj = request(conditions=APPROVED)
    obj["spec"]["expirationSeconds"] = expected_s
    controller = Signer({KUBELET_CLIENT_SIGNER: authority()}, most_s)
    view = view_of({CERTIFICATE_SIGNING_REQUESTS: [obj]})
    [written], _ = drive(controller.reconcile("r", view, NOW_S))
    assert isinstance(written, Update)
    pem = base64.b64decode(written.obj["status"]["certificate"])
    found = x509.load_pem_x509_certificate(pem)
    assert found.not_valid_after_utc == NOW + timedelta(seconds=lasts_s)


def test_a_request_whose_certificate_has_ended_goes() -> None:
    signed = sign(request(conditions=APPROVED), KUBELET_CLIENT_SIGNER)
    recent = {"type": "Approved", "lastUpdateTime": "2023-11-14T23:13:00Z"}
    obj = request(conditions=[recent], certificate=signed["certificate"])
    view = view_of({CERTIFICATE_SIGNING_REQUESTS: [obj]})
    asked, _ = drive(Cleaner().reconcile("all", view, NOW_S + 3599))
    assert asked == []
    asked, again = drive(Cleaner().reconcile("all", view, NOW_S + 3601))
    assert [type(each) for each in asked] == [Delete]
    assert again == Again(3600.0, is_routine=True)
