"""PodCertificateRequests: a kubelet requests a certificate for a pod, a signer answers once."""

from typing import Any, Final

from kvstack.apimachinery.objects import field_checks
from kvstack.apimachinery.objects.field_checks import domain_prefixed_key
from kvstack.apimachinery.objects.field_errors import (
    OMITTED,
    FieldError,
    child,
    forbidden,
    invalid,
    not_supported,
    too_long,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.metadata import ANNOTATIONS_BYTES_MAX
from kvstack.apimachinery.objects.names import IMMUTABLE, name_is_dns_subdomain
from kvstack.apimachinery.objects.text.go_text import JsonText, quote
from kvstack.apimachinery.schema.scalars import decode_base64
from kvstack.apiserver.kinds.access import AccessRequest
from kvstack.apiserver.kinds.cells import pairs_text
from kvstack.apiserver.kinds.certificates.issued import issued_errors
from kvstack.apiserver.kinds.equality import same
from kvstack.apiserver.kinds.internal_values import internal_value
from kvstack.apiserver.kinds.rules import Errors, add_invalid
from kvstack.apiserver.kinds.signer_names import check_signer_name, is_kubernetes_signer
from kvstack.apiserver.kinds.status_metadata import (
    begin_without_status,
    keep_all_but_status,
    keep_status,
)
from kvstack.apiserver.kinds.strategy import Context, Strategy, with_status
from kvstack.component.certs.x509_requests import (
    BadKeyError,
    check_key,
    has_good_signature,
    is_signed,
    read_key,
    read_request,
)

ISSUED: Final = "Issued"
DENIED: Final = "Denied"
FAILED: Final = "Failed"

_TYPES: Final = "io.k8s.api.certificates.v1"
_SPEC: Final = f"{_TYPES}.PodCertificateRequestSpec"
_STATUS: Final = f"{_TYPES}.PodCertificateRequestStatus"
_STATES: Final = (ISSUED, DENIED, FAILED)
_DEFAULT_SECONDS: Final = 86400
_HOUR: Final = 3600
_DAY: Final = 24 * _HOUR
_UID_MAX: Final = 128
_BYTES_MAX: Final = 10 * 1024
_NAMED: Final = (
    ("podName", "podUID"),
    ("serviceAccountName", "serviceAccountUID"),
    ("nodeName", "nodeUID"),
)
_REQUEST: Final = "spec.stubPKCS10Request"
_KEY: Final = "spec.pkixPublicKey"
_PROOF: Final = "spec.proofOfPossession"


def _default(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    obj.setdefault("status", {})
    if spec.get("maxExpirationSeconds") is None:
        spec["maxExpirationSeconds"] = _DEFAULT_SECONDS


def _validate(obj: Object, _context: Context) -> list[FieldError]:
    errors: Errors = []
    spec = obj["spec"]
    signer = spec.get("signerName", "")
    check_signer_name(errors, "spec.signerName", signer)
    annotations = spec.get("unverifiedUserAnnotations")
    if annotations:
        errors += _annotation_errors(annotations, "spec.unverifiedUserAnnotations")
    for name, uid in _NAMED:
        value = spec.get(name, "")
        add_invalid(errors, child("spec", name), value, name_is_dns_subdomain(value, False))
        _check_uid(spec.get(uid, ""), child("spec", uid), errors)
    seconds = spec["maxExpirationSeconds"]
    maximum = _DAY if is_kubernetes_signer(signer) else 91 * _DAY
    if not _HOUR <= seconds <= maximum:
        detail = f"must be in the range [{_HOUR}, {maximum}]"
        errors.append(invalid("spec.maxExpirationSeconds", seconds, detail))
    return errors + _key_errors(spec)


def _annotation_errors(annotations: dict[str, str], path: str) -> list[FieldError]:
    errors = [each for name in annotations for each in domain_prefixed_key(path, name.lower())]
    size = sum(len(name.encode()) + len(value.encode()) for name, value in annotations.items())
    if size > ANNOTATIONS_BYTES_MAX:
        errors.append(too_long(path, ANNOTATIONS_BYTES_MAX))
    return errors


def _check_uid(uid: str, path: str, errors: Errors) -> None:
    if not uid:
        errors.append(invalid(path, uid, "must not be empty"))
    if len(uid.encode()) > _UID_MAX:
        errors.append(too_long(path, _UID_MAX))


def _key_errors(spec: Object) -> list[FieldError]:
    request, key, proof = (
        decode_base64(spec.get(name) or "")
        for name in ("stubPKCS10Request", "pkixPublicKey", "proofOfPossession")
    )
    if request and not key and not proof:
        return _stub_errors(request)
    if not request and key and proof:
        return _proof_errors(spec, key, proof)
    detail = "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set"
    return [invalid("spec", OMITTED, detail)]


def _stub_errors(data: bytes) -> list[FieldError]:
    if len(data) > _BYTES_MAX:
        return [too_long(_REQUEST, _BYTES_MAX)]
    request = read_request(data)
    if request is None:
        return [invalid(_REQUEST, OMITTED, "must be a valid PKCS#10 CSR")]
    try:
        check_key(request.public_key(), "P256, P384, or P521")
    except BadKeyError as fault:
        value = OMITTED if fault.value is None else fault.value
        return [invalid(_REQUEST, value, fault.detail)]
    if not has_good_signature(request):
        return [invalid(_REQUEST, OMITTED, "invalid signature")]
    return []


def _proof_errors(spec: Object, data: bytes, proof: bytes) -> list[FieldError]:
    for path, value in ((_KEY, data), (_PROOF, proof)):
        if len(value) > _BYTES_MAX:
            return [too_long(path, _BYTES_MAX)]
    printed_key, key = JsonText(spec["pkixPublicKey"]), read_key(data)
    if key is None:
        return [invalid(_KEY, printed_key, "must be a valid PKIX-serialized public key")]
    try:
        check_key(key, "P256 or P384")
    except BadKeyError as fault:
        return [invalid(_KEY, printed_key if fault.value is None else fault.value, fault.detail)]
    if not is_signed(key, proof, spec.get("podUID", "").encode()):
        return [invalid(_PROOF, OMITTED, "could not verify proof-of-possession signature")]
    return []


def _validate_update(new: Object, old: Object, _context: Context) -> list[FieldError]:
    if same(new["spec"], old["spec"], _SPEC):
        return []
    return [invalid("spec", internal_value(new["spec"], _SPEC), IMMUTABLE)]


def _validate_status(new: Object, old: Object, context: Context) -> list[FieldError]:
    status = new["status"]
    conditions = status.get("conditions") or []
    errors = _condition_errors(conditions)
    errors += field_checks.conditions("status.conditions", conditions)
    if not errors:
        errors = _change_errors(new, old, context)
    if errors or same(status, old["status"], _STATUS) or _may_sign(old, context):
        return errors
    signer = old["spec"].get("signerName", "")
    detail = f'User {quote(context.user)} is not permitted to "sign" for signer {quote(signer)}'
    return [forbidden("spec.signerName", detail)]


def _condition_errors(conditions: list[Object]) -> list[FieldError]:
    errors: Errors = []
    known_count = 0
    for position, condition in enumerate(conditions):
        # Upstream spells these paths so.
        path = f"status.conditions.[{position}]"
        kind, status = condition.get("type", ""), condition.get("status", "")
        if kind not in _STATES:
            errors.append(not_supported(child(path, "type"), kind, _STATES))
            continue
        known_count += 1
        if known_count > 1:
            detail = 'There may be at most one condition with type "Issued", "Denied", or "Failed"'
            errors.append(invalid(child(path, "type"), kind, detail))
        if status != "True":
            errors.append(not_supported(child(path, "status"), JsonText(status), ("True",)))
    return errors


def _change_errors(new: Object, old: Object, context: Context) -> list[FieldError]:
    """Return the errors of a change of the state."""
    status, before = new["status"], old["status"]
    state = _state(new)
    if _state(old):
        expected = before
        detail = "immutable after PodCertificateRequest is issued, denied, or failed"
    elif state == ISSUED:
        return issued_errors(new, old, context.now)
    elif state:
        expected = {"conditions": status.get("conditions")}
        detail = (
            "non-condition status fields must be empty when denying or failing the"
            " PodCertificateRequest"
        )
    else:
        expected = before
        detail = 'status is immutable unless transitioning to "Issued", "Denied", or "Failed"'
    return [] if same(status, expected, _STATUS) else [invalid("status", OMITTED, detail)]


def _state(obj: Object) -> str:
    """Return the state of a request, empty: pending."""
    for condition in (obj.get("status") or {}).get("conditions") or ():
        kind: str = condition.get("type", "")
        if kind in _STATES and condition.get("status") == "True":
            return kind
    return ""


def _may_sign(obj: Object, context: Context) -> bool:
    signer: str = obj["spec"].get("signerName", "")
    names = (signer, f"{signer.partition('/')[0]}/*")
    return any(
        context.access.is_allowed(
            AccessRequest("sign", "certificates.k8s.io", "*", "signers", name=name)
        )
        for name in names
    )


def _selectable(obj: Object) -> dict[str, str]:
    names = ("signerName", "podName", "nodeName")
    return {f"spec.{name}": obj["spec"].get(name, "") for name in names}


def _cells(obj: Object, _now: float) -> list[Any]:
    spec = obj["spec"]
    names = ("podName", "serviceAccountName", "nodeName", "signerName")
    return [
        obj["metadata"]["name"],
        *(spec.get(name, "") for name in names),
        _state(obj) or "Pending",
        pairs_text(spec.get("unverifiedUserAnnotations")),
    ]


POD_CERTIFICATE_REQUESTS: Final = with_status(
    Strategy(
        default=_default,
        prepare_create=begin_without_status,
        prepare_update=keep_status,
        validate=_validate,
        validate_update=_validate_update,
        allows_unconditional_update=False,
        selectable=_selectable,
        cells=_cells,
    ),
    prepare_update=keep_all_but_status,
    validate_update=_validate_status,
    reset_fields=(("metadata",), ("spec",)),
)
