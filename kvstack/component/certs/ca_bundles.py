"""Checks of PEM bundles of certificates that a client should trust."""

import base64
import binascii

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

from kvstack.apimachinery.objects.text import pem

CERTIFICATE = "CERTIFICATE"

_INTRODUCTION = "unable to load root certificates: "


class BundleError(ValueError):
    """A bundle without any certificate; the text is that of Go's client."""


def bundle_problem(text: str) -> str:
    """Return why a bundle has no certificate, empty if it has one; `text` is base64."""
    try:
        certificates_of(base64.b64decode(text))
    except binascii.Error:
        return f"{_INTRODUCTION}unable to parse bytes as PEM block"
    except BundleError as error:
        return str(error)
    return ""


def certificates_of(data: bytes) -> list[bytes]:
    """Return the certificates of a bundle in DER, as Go finds them; raises BundleError.

    Blocks that are not certificates are skipped if there is a certificate.
    """
    blocks = list(pem.blocks(data))
    given = [each.content for each in blocks if each.kind == CERTIFICATE and not each.headers]
    certificates = [each for each in given if is_certificate(each)]
    if certificates:
        return certificates
    if given:
        text = "failed to parse certificate: x509: malformed certificate"
    elif data and not blocks:
        text = "unable to parse bytes as PEM block"
    else:
        text = "no valid certificate authority data seen"
    raise BundleError(_INTRODUCTION + text)


def is_certificate(data: bytes) -> bool:
    """Return whether bytes in DER are a certificate."""
    try:
        x509.load_der_x509_certificate(data)
    except (ValueError, UnsupportedAlgorithm):
        return False
    return True
