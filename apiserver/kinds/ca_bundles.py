"""Whether the certificates in PEM that a client is to trust can be read."""

import base64
import binascii

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

from kvstack.apiserver.objects.text import pem

CERTIFICATE = "CERTIFICATE"

_INTRODUCTION = "unable to load root certificates: "


def bundle_problem(text: str) -> str:
    """Return why there is no certificate in a bundle, empty if there is; `text` is base64."""
    try:
        data = base64.b64decode(text)
    except binascii.Error:
        return f"{_INTRODUCTION}unable to parse bytes as PEM block"
    blocks = list(pem.blocks(data))
    certificates = [
        each.content for each in blocks if each.kind == CERTIFICATE and not each.headers
    ]
    if any(is_certificate(each) for each in certificates):
        return ""
    if certificates:
        return f"{_INTRODUCTION}failed to parse certificate: x509: malformed certificate"
    if data and not blocks:
        return f"{_INTRODUCTION}unable to parse bytes as PEM block"
    return f"{_INTRODUCTION}no valid certificate authority data seen"


def is_certificate(data: bytes) -> bool:
    """Return whether bytes in DER are a certificate."""
    try:
        x509.load_der_x509_certificate(data)
    except (ValueError, UnsupportedAlgorithm):
        return False
    return True
