"""What PodCertificateRequests may be, and how they are answered."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from typing_extensions import override

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.kinds.access import AccessRequest, FullAccess
from kvstack.apiserver.kinds.certificates.pod_requests import POD_CERTIFICATE_REQUESTS
from tests.apiserver.kinds.certificates.keys import (
    EC,
    ED25519,
    SMALL_EC,
    certificate,
    request_of,
    text,
)
from tests.apiserver.kinds.hooks import (
    NOW,
    cells_of,
    change_refusals,
    changed,
    prepared_object,
    refusals,
)

PCRS = POD_CERTIFICATE_REQUESTS
STATUS = PCRS.subresources["status"]
STUB = {"stubPKCS10Request": text(request_of(EC))}
RSA_PUBLIC = rsa.RSAPublicNumbers(65537, (1 << 2047) + 9).public_key()


def pod_request(**spec: Any) -> Object:
    """Return a request; `spec` says how the key is told."""
    given = {
        "signerName": "e.com/s",
        "podName": "p",
        "podUID": "pu",
        "serviceAccountName": "sa",
        "serviceAccountUID": "su",
        "nodeName": "n",
        "nodeUID": "nu",
    }
    return {"metadata": {"name": "r"}, "spec": given | (spec or STUB)}


def public(key: Any) -> str:
    """Return a public key as a request has it."""
    return text(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


def signed(key: Any, signature: bytes) -> Object:
    """Return a request that tells a key and proves that it is the kubelet's."""
    return pod_request(pkixPublicKey=public(key), proofOfPossession=text(signature))


def test_defaults() -> None:
    """A day."""
    assert prepared_object(PCRS, pod_request())["spec"]["maxExpirationSeconds"] == 86400


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (STUB, []),
        ({"stubPKCS10Request": text(request_of(ED25519))}, []),
        ({"podUID": ""}, ['spec.podUID: Invalid value: "": must not be empty',
                          "spec: Invalid value: exactly one of (stubPKCS10Request) or"
                          " (pkixPublicKey, proofOfPossession) must be set"]),
        ({**STUB, "nodeUID": "x" * 129, "nodeName": "A"},
         ["spec.nodeName: Invalid value: \"A\": a lowercase RFC 1123 subdomain must",
          "spec.nodeUID: Too long: may not be more than 128 bytes"]),
        ({**STUB, "maxExpirationSeconds": 86401, "signerName": "kubernetes.io/x"},
         ["spec.maxExpirationSeconds: Invalid value: 86401: must be in the range [3600, 86400]"]),
        ({**STUB, "maxExpirationSeconds": 86401}, []),
        ({**STUB, "unverifiedUserAnnotations": {"a": "b"}},
         ["spec.unverifiedUserAnnotations: Invalid value: "]),
        ({"stubPKCS10Request": "YQ=="},
         ["spec.stubPKCS10Request: Invalid value: must be a valid PKCS#10 CSR"]),
        ({"stubPKCS10Request": text(request_of(SMALL_EC))},
         ['spec.stubPKCS10Request: Invalid value: "curve P-224": elliptic public keys must use'
          ' curve'
          " P256, P384, or P521"]),
        ({"stubPKCS10Request": text(b"x" * 10241)},
         ["spec.stubPKCS10Request: Too long: may not be more than 10240 bytes"]),
        ({"pkixPublicKey": "YQ==", "proofOfPossession": "YQ=="},
         ['spec.pkixPublicKey: Invalid value: "YQ==": must be a valid PKIX-serialized public key']),
        ({"pkixPublicKey": public(RSA_PUBLIC), "proofOfPossession": "YQ=="},
         ['spec.pkixPublicKey: Invalid value: "2048-bit modulus": RSA keys must have modulus size'
          " 3072 or 4096"]),
    ],
)  # fmt: skip
def test_rules(spec: dict[str, Any], expected: list[str]) -> None:
    """A key is told in one of two ways."""
    found = refusals(PCRS, pod_request(**spec))
    assert [each[: len(wanted)] for each, wanted in zip(found, expected, strict=True)] == expected


def test_proof_of_possession() -> None:
    """The UID of the pod, signed."""
    proof = EC.sign(b"pu", ec.ECDSA(hashes.SHA256()))
    assert refusals(PCRS, signed(EC.public_key(), proof)) == []
    assert refusals(PCRS, signed(ED25519.public_key(), ED25519.sign(b"pu"))) == []
    for key, wrong in ((EC, ED25519.sign(b"pu")), (ED25519, ED25519.sign(b"other"))):
        assert refusals(PCRS, signed(key.public_key(), wrong)) == [
            "spec.proofOfPossession: Invalid value: could not verify proof-of-possession signature"
        ]


def test_spec_is_immutable() -> None:
    """Metadata may change."""
    (message,) = change_refusals(PCRS, pod_request(podUID="x"), pod_request())
    assert message.startswith('spec: Invalid value: {"SignerName":"e.com/s",')
    assert message.endswith(": field is immutable")


def answered(*kinds: str, **status: Any) -> Object:
    """Return a request with conditions."""
    conditions = [
        {"type": kind, "status": "True", "reason": "R", "message": "m", "lastTransitionTime": NOW}
        for kind in kinds
    ]
    return {**pod_request(), "status": {"conditions": conditions, **status}}


def issued(chain: bytes | None = None, **times: str) -> Object:
    """Return a request whose certificate was issued for two hours."""
    given = {
        "notBefore": NOW,
        "notAfter": "2026-01-02T05:04:05Z",
        "beginRefreshAt": "2026-01-02T04:04:05Z",
    }
    text_of_chain = (certificate() if chain is None else chain).decode()
    return answered("Issued", certificateChain=text_of_chain, **given | times)


def answer_refusals(new: Object, old: Object | None = None, **members: Any) -> list[str]:
    """Return what is wrong with an answer."""
    return change_refusals(STATUS, new, old or pod_request(), **members)


def test_answers() -> None:
    """Issued, denied or failed, once."""
    assert answer_refusals(issued()) == []
    assert answer_refusals(answered("Denied")) == []
    assert changed(STATUS, {**issued(), "spec": {}}, pod_request())["spec"]["podName"] == "p"
    assert answer_refusals(answered("Failed"), answered("Denied")) == [
        "status: Invalid value: immutable after PodCertificateRequest is issued, denied, or failed"
    ]
    assert answer_refusals(answered("Denied", certificateChain="x")) == [
        "status: Invalid value: non-condition status fields must be empty when denying or failing"
        " the PodCertificateRequest"
    ]
    assert answer_refusals(answered(certificateChain="x")) == [
        'status: Invalid value: status is immutable unless transitioning to "Issued", "Denied", or'
        ' "Failed"'
    ]
    assert answer_refusals(answered("Denied", "Failed"))[0] == (
        'status.conditions.[1].type: Invalid value: "Failed": There may be at most one condition'
        ' with type "Issued", "Denied", or "Failed"'
    )
    assert answer_refusals(answered("x")) == [
        'status.conditions.[0].type: Unsupported value: "x": supported values: "Issued", "Denied",'
        ' "Failed"'
    ]


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        (issued(b""), "issued certificate chain must contain at least one certificate"),
        (issued(b"-----BEGIN X-----\n-----END X-----\n"),
         "issued certificate chain must consist entirely of CERTIFICATE PEM blocks"),
        (issued(certificate(ED25519)), "leaf certificate was not issued to the requested public"
                                       " key"),
        (issued(certificate() + b"-----BEGIN X-----\n-----END X-----\n"),
         "issued certificate chain must consist entirely of CERTFICATE PEM blocks"),
        (issued(certificate(names=[x509.DNSName("a..b")])),
         "leaf certificate's DNSName should not contain '..'"),
        (issued(certificate(hours=25),
                notAfter="2026-01-03T04:04:05Z"),
         "leaf certificate lifetime must be <= spec.maxExpirationSeconds (86400)"),
        (issued(notBefore=""), "must be present and consistent with the issued certificate"),
        (issued(notBefore="2026-01-02T03:04:06Z"),
         "must be set to the NotBefore time encoded in the leaf certificate"),
        (issued(notAfter=NOW), "must be set to the NotAfter time encoded in the leaf certificate"),
        (issued(beginRefreshAt="2026-01-02T03:14:04Z"),
         "must be at least 10 minutes after status.notBefore"),
        (issued(beginRefreshAt="2026-01-02T04:54:06Z"),
         "must be at least 10 minutes before status.notAfter"),
    ],
)  # fmt: skip
def test_issued_certificates(new: Object, expected: str) -> None:
    """They are for the key, and their times are told as they are."""
    (message,) = answer_refusals(deepcopy(new))
    assert message.endswith(f": {expected}")


def test_time_of_issue() -> None:
    """Now, or nearly."""
    (message,) = answer_refusals(issued(), now="2026-01-02T03:09:05Z")
    assert message.endswith("must be set to within 5 minutes of kube-apiserver's current time")


class Signers(FullAccess):
    """Allows signing for some signers."""

    def __init__(self, names: Sequence[str]) -> None:
        """Take their names."""
        self.names = names

    @override
    def is_allowed(self, request: AccessRequest) -> bool:
        """Return whether one is asked for."""
        assert (request.verb, request.group, request.resource) == (
            "sign",
            "certificates.k8s.io",
            "signers",
        )
        return request.name in self.names


def test_who_signs() -> None:
    """Those who may sign for the signer, or all of its domain."""
    assert answer_refusals(issued(), access=Signers(["e.com/s"])) == []
    assert answer_refusals(issued(), access=Signers(["e.com/*"])) == []
    assert answer_refusals(issued(), access=Signers([]), user="u") == [
        'spec.signerName: Forbidden: User "u" is not permitted to "sign" for signer "e.com/s"'
    ]


def test_cells() -> None:
    """For whom, and how it stands."""
    cells = ["r", "p", "sa", "n", "e.com/s", "Denied", "<none>"]
    assert cells_of(PCRS, answered("Denied")) == cells
