"""What the control plane's signers require of certificate signing requests.

problem(request, signer, usages)   → "" or why the signer does not sign
"""

import base64
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from cryptography import x509
from cryptography.x509.oid import NameOID

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text import pem
from kvstack.apimachinery.well_known import (
    CLIENT_SIGNER,
    KUBELET_CLIENT_SIGNER,
    KUBELET_SERVING_SIGNER,
    LEGACY_SIGNER,
)
from kvstack.component.certs.x509_requests import read_request

Request: TypeAlias = x509.CertificateSigningRequest


_NODES: Final = "system:nodes"
NODE_PREFIX: Final = "system:node:"
"""The prefix of the user names of nodes."""
_SIGNATURE: Final = "digital signature"
_ENCIPHERMENT: Final = "key encipherment"
_CLIENT_AUTH: Final = "client auth"
_SERVER_AUTH: Final = "server auth"


def parsed(obj: Object) -> Request | None:
    """Return the request of a CertificateSigningRequest; None: it cannot be read."""
    block = next(pem.blocks(base64.b64decode(obj["spec"]["request"])), None)
    return None if block is None else read_request(block.content)


def common_name(request: Request) -> str:
    """Return the subject's common name."""
    return next(iter(_subject(request, NameOID.COMMON_NAME)), "")


def problem(request: Request, signer: str, usages: Iterable[str]) -> str:
    """Return why a signer does not sign a request; empty: it does."""
    check = _CHECKS[signer]
    return check(request, frozenset(usages))


def alternative_names(request: Request) -> x509.SubjectAlternativeName | None:
    """Return the subject's other names."""
    try:
        found = request.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return None
    return found.value


def _subject(request: Request, kind: x509.ObjectIdentifier) -> list[str]:
    return [str(each.value) for each in request.subject.get_attributes_for_oid(kind)]


def _has(request: Request, kind: type[Any]) -> bool:
    names = alternative_names(request)
    return names is not None and bool(names.get_values_for_type(kind))


def _name_problem(request: Request) -> str:
    if common_name(request).startswith(NODE_PREFIX):
        return ""
    return "subject common name does not begin with system:node: "


def _usage_problem(usages: frozenset[str], auth: str) -> str:
    least = {_SIGNATURE, auth}
    most = {*least, _ENCIPHERMENT}
    if usages in (least, most):
        return ""
    return f"usages did not match [{' '.join(sorted(most))}]"


def _kubelet_client_problem(request: Request, usages: frozenset[str]) -> str:
    if _subject(request, NameOID.ORGANIZATION_NAME) != [_NODES]:
        return "subject organization is not system:nodes"
    for kind, problem in (
        (x509.DNSName, "DNS subjectAltNames are not allowed"),
        (x509.RFC822Name, "email subjectAltNames are not allowed"),
        (x509.IPAddress, "IP subjectAltNames are not allowed"),
        (x509.UniformResourceIdentifier, "URI subjectAltNames are not allowed"),
    ):
        if _has(request, kind):
            return problem
    return _name_problem(request) or _usage_problem(usages, _CLIENT_AUTH)


def _kubelet_serving_problem(request: Request, usages: frozenset[str]) -> str:
    if _subject(request, NameOID.ORGANIZATION_NAME) != [_NODES]:
        return "subject organization is not system:nodes"
    if not _has(request, x509.DNSName) and not _has(request, x509.IPAddress):
        return "DNS or IP subjectAltName is required"
    if _has(request, x509.RFC822Name):
        return "email subjectAltNames are not allowed"
    if _has(request, x509.UniformResourceIdentifier):
        return "URI subjectAltNames are not allowed"
    return _usage_problem(usages, _SERVER_AUTH) or _name_problem(request)


def _client_problem(_request: Request, usages: frozenset[str]) -> str:
    for usage in sorted(usages - {_SIGNATURE, _ENCIPHERMENT, _CLIENT_AUTH}):
        return f"invalid usage for client certificate: {usage}"
    if _CLIENT_AUTH not in usages:
        return f"missing required usage for client certificate: {_CLIENT_AUTH}"
    return ""


_CHECKS: Final[dict[str, Callable[[Request, frozenset[str]], str]]] = {
    KUBELET_CLIENT_SIGNER: _kubelet_client_problem,
    KUBELET_SERVING_SIGNER: _kubelet_serving_problem,
    CLIENT_SIGNER: _client_problem,
    LEGACY_SIGNER: lambda _request, _usages: "",
}
SIGNERS: Final = tuple(_CHECKS)
