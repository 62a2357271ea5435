"""Plugins that restrict who may approve, sign and attest certificates, and their subjects.

CertificateApproval, CertificateSigning, ClusterTrustBundleAttest, CertificateSubjectRestriction: a
user needs the verb `approve`, `sign` or `attest` on the signer, or on all of its domain (`x.io/*`).
"""

import base64
import binascii
from collections.abc import Awaitable
from typing import Final

from cryptography import x509
from cryptography.x509.oid import NameOID

from kvstack.apimachinery.attributes import PRIVILEGED, Attributes
from kvstack.apimachinery.objects.core.group_resources import SIGNING_REQUESTS, TRUST_BUNDLES
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apimachinery.well_known import CLIENT_SIGNER
from kvstack.apiserver.policy.admission.plugin import Listed, calls
from kvstack.apiserver.policy.admission.request import CREATE, UPDATE, AdmissionRequest
from kvstack.apiserver.policy.authorization.chain import decided
from kvstack.apiserver.policy.interfaces import Authorizer
from kvstack.apiserver.policy.ownership_changes import changes_only_ownership

_TRUST_BUNDLE: Final = "io.k8s.api.certificates.v1.ClusterTrustBundle"


class CertificateApproval(Listed):
    """Lets only approvers of a signer approve and deny requests to it."""

    name = "CertificateApproval"
    calls = calls((UPDATE,), SIGNING_REQUESTS, "approval")

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer: Final = authorizer

    def validate(self, request: AdmissionRequest) -> Awaitable[None]:
        """Check the user."""
        # The signer is that of the stored request, whatever the new one says.
        signer = _signer(request.old or {})
        message = f"user not permitted to approve requests with signerName {quote(signer)}"
        return _check(self._authorizer, request, "approve", signer, message)


class CertificateSigning(Listed):
    """Lets only signers of a name write certificates."""

    name = "CertificateSigning"
    calls = calls((UPDATE,), SIGNING_REQUESTS, "status")

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer: Final = authorizer

    def validate(self, request: AdmissionRequest) -> Awaitable[None] | None:
        """Check the user, if the certificate or conditions change."""
        old, new = (each.get("status") or {} for each in (request.old or {}, request.new))
        if all((old.get(name) or None) == (new.get(name) or None) for name in _SIGNED):
            return None
        signer = _signer(request.old or {})
        message = f"user not permitted to sign requests with signerName {quote(signer)}"
        return _check(self._authorizer, request, "sign", signer, message)


_SIGNED: Final = ("certificate", "conditions")


class ClusterTrustBundleAttest(Listed):
    """Lets only attesters of a signer write its trust bundle."""

    name = "ClusterTrustBundleAttest"
    calls = calls((CREATE, UPDATE), TRUST_BUNDLES)

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer: Final = authorizer

    def validate(self, request: AdmissionRequest) -> Awaitable[None] | None:
        """Check the user, if the bundle has a signer."""
        signer = _signer(request.new)
        if not signer:
            return None
        if request.old is not None and changes_only_ownership(
            request.new, request.old, _TRUST_BUNDLE
        ):
            return None
        message = f"user not permitted to attest for signerName {quote(signer)}"
        return _check(self._authorizer, request, "attest", signer, message)


class CertificateSubjectRestriction(Listed):
    """Refuses requests for client certificates of the privileged group."""

    name = "CertificateSubjectRestriction"
    calls = calls((CREATE,), SIGNING_REQUESTS)

    def validate(self, request: AdmissionRequest) -> None:
        """Check the organizations of the subject."""
        if _signer(request.new) != CLIENT_SIGNER:
            return
        try:
            pem = base64.b64decode(request.new["spec"].get("request") or "")
            subject = x509.load_pem_x509_csr(pem).subject
        except (ValueError, binascii.Error) as error:
            raise request.forbidden(f"failed to parse CSR: {error}") from None
        organizations = subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
        if any(each.value == PRIVILEGED for each in organizations):
            raise request.forbidden(
                f"use of {CLIENT_SIGNER} signer with system:masters group is not allowed"
            )


def _signer(obj: Object) -> str:
    return (obj.get("spec") or {}).get("signerName") or ""


async def _check(
    authorizer: Authorizer, request: AdmissionRequest, verb: str, signer: str, message: str
) -> None:
    domain = signer.partition("/")[0]
    for name in (signer, f"{domain}/*"):
        attributes = Attributes(
            request.user,
            verb,
            group="certificates.k8s.io",
            version="*",
            resource="signers",
            name=name,
        )
        if (await decided(authorizer, attributes)).allowed:
            return
    raise request.forbidden(message)
