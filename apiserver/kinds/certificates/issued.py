"""Checks of certificates that signers issue for pods: the chain and three times."""

from datetime import datetime
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes

from kvstack.apimachinery.objects.field_errors import (
    OMITTED,
    FieldError,
    child,
    invalid,
    required,
    too_long,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text import pem
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apimachinery.objects.text.string_formats import has_format
from kvstack.apimachinery.objects.times import parse_time
from kvstack.apimachinery.schema.scalars import decode_base64
from kvstack.apiserver.kinds.rules import Errors
from kvstack.component.certs.ca_bundles import CERTIFICATE
from kvstack.component.certs.x509_requests import (
    is_same_key,
    read_certificate,
    read_key,
    read_request,
)

_CHAIN: Final = "status.certificateChain"
_CHAIN_MAX: Final = 100 * 1024
_SECOND: Final = 10**9
_MINUTE: Final = 60
_CONSISTENT: Final = "must be present and consistent with the issued certificate"
_TIMES: Final = (
    ("notBefore", _CONSISTENT),
    ("notAfter", _CONSISTENT),
    ("beginRefreshAt", "must be present and in the range [notbefore+10min, notafter-10min]"),
)


def issued_errors(new: Object, old: Object, now: str) -> list[FieldError]:
    """Return the errors of an issued certificate and its fields."""
    status = new["status"]
    text: str = status.get("certificateChain", "")
    if len(text.encode()) > _CHAIN_MAX:
        return [too_long(_CHAIN, _CHAIN_MAX)]
    blocks = list(pem.blocks(text.encode()))
    if not blocks:
        detail = "issued certificate chain must contain at least one certificate"
        return [invalid(_CHAIN, text, detail)]
    if blocks[0].kind != CERTIFICATE:
        detail = "issued certificate chain must consist entirely of CERTIFICATE PEM blocks"
        return [invalid(_CHAIN, text, detail)]
    leaf = read_certificate(blocks[0].content)
    if leaf is None:
        return [invalid(_CHAIN, text, "leaf certificate does not parse as valid X.509")]
    errors = _name_errors(leaf)
    key = _requested_key(old["spec"])
    if isinstance(key, FieldError):
        return [*errors, key]
    if not is_same_key(key, leaf.public_key()):
        detail = "leaf certificate was not issued to the requested public key"
        return [*errors, invalid(_CHAIN, text, detail)]
    errors += [
        required(child("status", name), detail) for name, detail in _TIMES if not status.get(name)
    ]
    if errors:
        return errors
    wrong = _time_error(new, leaf, parse_time(now).seconds)
    if wrong is not None:
        return [wrong]
    return _rest_errors(blocks[1:], text)


def _name_errors(leaf: x509.Certificate) -> Errors:
    errors: Errors = []
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return errors
    prefix = "leaf certificate's DNSName should not"
    for name in names.get_values_for_type(x509.DNSName):
        if not name:
            detail = "leaf certificate should not contain empty DNSName"
            errors.append(invalid(_CHAIN, name, detail))
        if ".." in name:
            errors.append(invalid(_CHAIN, name, f"{prefix} contain '..'"))
        if name.startswith(".") or name.endswith("."):
            errors.append(invalid(_CHAIN, name, f"{prefix} start or end with '.'"))
    for address in names.get_values_for_type(x509.RFC822Name):
        if not has_format("email", address):
            detail = "leaf certificate should not contain invalid EmailAddress"
            errors.append(invalid(_CHAIN, address, detail))
    return errors


def _requested_key(spec: Object) -> PublicKeyTypes | FieldError:
    stub = decode_base64(spec.get("stubPKCS10Request") or "")
    if stub:
        request = read_request(stub)
        if request is None:
            detail = "must be a valid PKCS#10 CSR"
            return invalid("spec.stubPKCS10Request", OMITTED, detail)
        return request.public_key()
    key = read_key(decode_base64(spec.get("pkixPublicKey") or ""))
    if key is None:
        detail = "must be a valid PKIX-serialized public key"
        return invalid("spec.pkixPublicKey", OMITTED, detail)
    return key


def _time_error(new: Object, leaf: x509.Certificate, now: int) -> FieldError | None:
    """Return the first error about the times of a certificate."""
    status = new["status"]
    texts = {name: status[name] for name, _ in _TIMES}
    before, after, refresh = (parse_time(texts[name]).seconds for name, _ in _TIMES)
    starts, ends = _seconds(leaf.not_valid_before_utc), _seconds(leaf.not_valid_after_utc)
    lifetime, maximum = ends - starts, new["spec"]["maxExpirationSeconds"]

    def of_time(name: str, detail: str) -> FieldError:
        return invalid(child("status", name), JsonText(texts[name]), detail)

    if before != starts:
        detail = "must be set to the NotBefore time encoded in the leaf certificate"
        return of_time("notBefore", detail)
    if abs(before - now) >= 5 * _MINUTE:
        detail = "must be set to within 5 minutes of kube-apiserver's current time"
        return of_time("notBefore", detail)
    if after != ends:
        detail = "must be set to the NotAfter time encoded in the leaf certificate"
        return of_time("notAfter", detail)
    if lifetime < 60 * _MINUTE:
        detail = "leaf certificate lifetime must be >= 1 hour"
        return invalid(_CHAIN, lifetime * _SECOND, detail)
    if lifetime > maximum:
        detail = f"leaf certificate lifetime must be <= spec.maxExpirationSeconds ({maximum})"
        return invalid(_CHAIN, lifetime * _SECOND, detail)
    if refresh < before + 10 * _MINUTE:
        return of_time("beginRefreshAt", "must be at least 10 minutes after status.notBefore")
    if refresh > after - 10 * _MINUTE:
        return of_time("beginRefreshAt", "must be at least 10 minutes before status.notAfter")
    return None


def _seconds(time: datetime) -> int:
    return int(time.timestamp())


def _rest_errors(blocks: list[pem.Block], text: str) -> list[FieldError]:
    for block in blocks:
        if block.kind != CERTIFICATE:
            # Upstream spells it so here.
            detail = "issued certificate chain must consist entirely of CERTFICATE PEM blocks"
            return [invalid(_CHAIN, text, detail)]
        if read_certificate(block.content) is None:
            detail = "intermediate certificate does not parse as valid X.509"
            return [invalid(_CHAIN, text, detail)]
    return []
