"""ClusterTrustBundles: CA certificates for workloads."""

from typing import Any, Final

from cryptography import x509

from kvstack.apimachinery.objects.field_checks import immutable
from kvstack.apimachinery.objects.field_errors import FieldError, child, invalid, too_long
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text import pem
from kvstack.apimachinery.objects.text.go_text import go_plain
from kvstack.apiserver.kinds.signer_names import (
    check_signer_name,
    check_trust_bundle_name,
)
from kvstack.apiserver.kinds.strategy import Context, Strategy
from kvstack.component.certs.ca_bundles import CERTIFICATE
from kvstack.component.certs.x509_requests import read_certificate

_BYTES_MAX: Final = 1024 * 1024
_BUNDLE: Final = "spec.trustBundle"
_SIGNER: Final = "spec.signerName"
_NO_VALUE: Final = "<value omitted>"


def _default(obj: Object) -> None:
    obj.setdefault("spec", {})


def _validate(obj: Object, _context: Context) -> list[FieldError]:
    return _named_errors(obj) + _bundle_errors(obj["spec"].get("trustBundle", ""))


def _validate_update(new: Object, old: Object, _context: Context) -> list[FieldError]:
    errors = _named_errors(new)
    spec, before = new["spec"], old["spec"]
    if spec.get("trustBundle", "") != before.get("trustBundle", ""):
        errors += _bundle_errors(spec.get("trustBundle", ""))
    return errors + immutable(_SIGNER, spec.get("signerName", ""), before.get("signerName", ""))


def _named_errors(obj: Object) -> list[FieldError]:
    """Return the errors of the names of the bundle and its signer."""
    metadata, signer = obj["metadata"], obj["spec"].get("signerName", "")
    errors = [
        invalid(child("metadata", field), name, wrong)
        for field in ("generateName", "name")
        if (name := metadata.get(field))
        for wrong in check_trust_bundle_name(name, signer)
    ]
    if signer:
        check_signer_name(errors, _SIGNER, signer)
    return errors


def _bundle_errors(text: str) -> list[FieldError]:
    data = text.encode()
    if len(data) > _BYTES_MAX:
        return [too_long(_BUNDLE, _BYTES_MAX)]
    positions: dict[bytes, list[int]] = {}
    problems: list[str] = []
    for position, block in enumerate(pem.blocks(data)):
        problem = _block_problem(block)
        if problem:
            problems.append(f"entry {position} {problem}")
        positions.setdefault(block.content, []).append(position)
    if not problems:
        problems = [
            f"duplicate trust anchor (indices {go_plain(list(each))})"
            for each in positions.values()
            if len(each) > 1
        ]
        if not positions:
            problems = ["at least one trust anchor must be provided"]
    return [invalid(_BUNDLE, _NO_VALUE, each) for each in problems]


def _block_problem(block: pem.Block) -> str:
    if block.kind != CERTIFICATE:
        return f"has bad block type: {block.kind}"
    if block.headers:
        return "has PEM block headers"
    certificate = read_certificate(block.content)
    if certificate is None:
        return "does not parse as X.509"
    return "" if _is_authority(certificate) else "does not have the CA bit set"


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    except (x509.ExtensionNotFound, ValueError):
        return False
    return constraints.value.ca


def _any_name(_name: str, _is_prefix: bool) -> list[str]:  # noqa: FBT001  # a CheckName
    return []


def _selectable(obj: Object) -> dict[str, str]:
    return {_SIGNER: obj["spec"].get("signerName", "")}


def _cells(obj: Object, _now: float) -> list[Any]:
    return [obj["metadata"]["name"], obj["spec"].get("signerName") or "<none>"]


TRUST_BUNDLES: Final = Strategy(
    default=_default,
    validate=_validate,
    validate_update=_validate_update,
    check_name=_any_name,
    allows_unconditional_update=False,
    selectable=_selectable,
    cells=_cells,
)
