"""CertificateSigningRequests: the server sets the requester; approval and issuing are subresources.

    PUT …/name            keeps spec and status
    PUT …/name/approval   changes conditions
    PUT …/name/status     changes the certificate, and conditions that say nothing of approval

Existing faults of a stored request may stay.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    duplicate,
    forbidden,
    index,
    invalid,
    not_supported,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import check_path_segment
from kvstack.apimachinery.objects.text import pem
from kvstack.apimachinery.objects.text.go_text import JsonText, quote
from kvstack.apimachinery.objects.times import age, human_duration
from kvstack.apimachinery.schema.load import enum_values
from kvstack.apimachinery.schema.scalars import decode_base64
from kvstack.apimachinery.well_known import LEGACY_SIGNER
from kvstack.apiserver.kinds.internal_values import internal_diff
from kvstack.apiserver.kinds.rules import Errors
from kvstack.apiserver.kinds.signer_names import check_signer_name
from kvstack.apiserver.kinds.strategy import NO_TABLE, Context, Strategy
from kvstack.component.certs.ca_bundles import CERTIFICATE, is_certificate
from kvstack.component.certs.x509_requests import request_problem

APPROVED: Final = "Approved"
DENIED: Final = "Denied"
FAILED: Final = "Failed"
USAGES: Final = enum_values("io.k8s.api.certificates.v1.CertificateSigningRequestSpec", "usages")

_CONDITION: Final = "io.k8s.api.certificates.v1.CertificateSigningRequestCondition"
_CONDITIONS: Final = "status.conditions"
_CERTIFICATE: Final = "status.certificate"
_SECONDS_MIN: Final = 600
_FINAL: Final = (APPROVED, DENIED, FAILED)
"""Conditions that are true or absent, and permanent."""
_STATUSES: Final = ("False", "True", "Unknown")
_SET_BY_SERVER: Final = ("username", "uid", "groups", "extra")


class _Allowed(NamedTuple):
    """What may be changed, and which faults are tolerated because the stored object has them."""

    approval: bool = False
    certificate: bool = False
    both_decisions: bool = False
    legacy_signer: bool = False
    repeated_conditions: bool = False
    empty_conditions: bool = False
    any_certificate: bool = False
    unknown_usages: bool = False
    repeated_usages: bool = False


def _default(obj: Object) -> None:
    obj.setdefault("spec", {})
    obj.setdefault("status", {})


def _prepare_create(obj: Object, context: Context) -> None:
    spec = obj["spec"]
    for name in _SET_BY_SERVER:
        spec.pop(name, None)
    for name, value in (
        ("username", context.user),
        ("uid", context.user_uid),
        ("groups", list(context.groups)),
        ("extra", {key: list(values) for key, values in context.extra.items()}),
    ):
        if value:
            spec[name] = value
    obj["status"] = {}


def _prepare_update(new: Object, old: Object, _context: Context) -> None:
    new["spec"], new["status"] = old["spec"], old["status"]


def _prepare_approval(new: Object, old: Object, context: Context) -> None:
    conditions = _with_times(new, old, context.now)
    new["spec"] = old["spec"]
    new["status"] = {**old["status"]}
    _set_conditions(new["status"], conditions)


def _prepare_status(new: Object, old: Object, context: Context) -> None:
    new["spec"] = old["spec"]
    for kind in (APPROVED, DENIED):
        kept, given = _of_type(old, kind), _of_type(new, kind)
        # An added or removed condition is refused later.
        if len(kept) == len(given):
            stored = iter(kept)
            conditions = [
                next(stored) if each.get("type") == kind else each for each in _conditions(new)
            ]
            _set_conditions(new["status"], conditions)
    _set_conditions(new["status"], _with_times(new, old, context.now))


def _set_conditions(status: Object, conditions: list[Object]) -> None:
    if conditions:
        status["conditions"] = conditions
    else:
        status.pop("conditions", None)


def _with_times(new: Object, old: Object, now: str) -> list[Object]:
    conditions: list[Object] = []
    for condition in _conditions(new):
        changed = {**condition, "lastUpdateTime": condition.get("lastUpdateTime") or now}
        if not condition.get("lastTransitionTime"):
            changed["lastTransitionTime"] = _transition_time(condition, old) or now
        conditions.append(changed)
    return conditions


def _transition_time(condition: Object, old: Object) -> str | None:
    """Return the transition time of a condition that did not change; None: it changed."""
    for before in _of_type(old, condition.get("type", "")):
        time: str | None = before.get("lastTransitionTime")
        if before.get("status") == condition.get("status") and time:
            return time
    return None


def _conditions(obj: Object) -> list[Object]:
    return (obj.get("status") or {}).get("conditions") or []


def _of_type(obj: Object, kind: str) -> list[Object]:
    return [each for each in _conditions(obj) if each.get("type", "") == kind]


def _validate(obj: Object, _context: Context) -> list[FieldError]:
    errors = _request_errors(obj, _Allowed())
    # Any path segment is a valid name; it is checked last.
    return errors or [
        invalid(child("metadata", field), name, wrong)
        for field in ("generateName", "name")
        if (name := obj["metadata"].get(field))
        for wrong in check_path_segment(name)
    ]


def _request_errors(obj: Object, allowed: _Allowed) -> list[FieldError]:
    errors: Errors = []
    spec = obj["spec"]
    problem = request_problem(decode_base64(spec.get("request") or ""))
    if problem:
        value = spec.get("request")
        shown = None if value is None else JsonText(value)
        errors.append(invalid("spec.request", shown, problem))
    _check_usages(spec.get("usages") or [], allowed, errors)
    path, signer = "spec.signerName", spec.get("signerName", "")
    if signer != LEGACY_SIGNER:
        check_signer_name(errors, path, signer)
    elif not allowed.legacy_signer:
        detail = "the legacy signerName is not allowed via this API version"
        errors.append(invalid(path, signer, detail))
    else:
        check_signer_name(errors, path, signer)
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < _SECONDS_MIN:
        detail = "may not specify a duration less than 600 seconds (10 minutes)"
        errors.append(invalid("spec.expirationSeconds", seconds, detail))
    _check_conditions(_conditions(obj), allowed, errors)
    if not allowed.any_certificate:
        problem = _certificate_problem(_certificate(obj))
        if problem:
            errors.append(invalid(_CERTIFICATE, "<certificate data>", problem))
    return errors


def _check_usages(usages: list[str], allowed: _Allowed, errors: Errors) -> None:
    path = "spec.usages"
    if not usages:
        errors.append(required(path))
    if not allowed.unknown_usages:
        errors.extend(
            not_supported(index(path, position), JsonText(usage), USAGES)
            for position, usage in enumerate(usages)
            if usage not in USAGES
        )
    if not allowed.repeated_usages:
        errors.extend(
            duplicate(index(path, position), JsonText(usage))
            for position, usage in enumerate(usages)
            if usage in usages[:position]
        )


def _check_conditions(conditions: list[Object], allowed: _Allowed, errors: Errors) -> None:
    seen: set[str] = set()
    for position, condition in enumerate(conditions):
        path = index(_CONDITIONS, position)
        kind, status = condition.get("type", ""), condition.get("status", "")
        if not kind and not allowed.empty_conditions:
            errors.append(required(child(path, "type")))
        choices = ("True",) if kind in _FINAL else _STATUSES
        if not status:
            errors.append(required(child(path, "status")))
        elif status not in choices:
            errors.append(not_supported(child(path, "status"), JsonText(status), choices))
        if kind in seen and not allowed.repeated_conditions:
            errors.append(duplicate(child(path, "type"), JsonText(kind)))
        seen.add(kind)
    if {APPROVED, DENIED} <= seen and not allowed.both_decisions:
        names = [f'conditions[{{"type": {quote(each)}}}]' for each in (APPROVED, DENIED)]
        supported = ", ".join(f"`{each}`" for each in names)
        detail = f"must specify at most one of: {supported}"
        errors.append(invalid(_CONDITIONS, f"{{{', '.join(names)}}}", detail))


def _certificate(obj: Object) -> bytes:
    return decode_base64((obj.get("status") or {}).get("certificate") or "")


def _certificate_problem(data: bytes) -> str:
    """Return the error of an issued PEM certificate, empty: none."""
    if not data:
        return ""
    blocks = list(pem.blocks(data))
    for block in blocks:
        if block.kind != CERTIFICATE:
            return f"only CERTIFICATE PEM blocks are allowed, found {quote(block.kind)}"
        if block.headers:
            return "no PEM block headers are permitted"
        if not block.content:
            return "found CERTIFICATE PEM block containing 0 certificates"
        if not is_certificate(block.content):
            return "x509: malformed certificate"
    return "" if blocks else "must contain at least one CERTIFICATE PEM block"


def _allowed(new: Object, old: Object) -> _Allowed:
    kinds = [each.get("type", "") for each in _conditions(old)]
    usages = old["spec"].get("usages") or []
    certificate = _certificate(old)
    return _Allowed(
        both_decisions=APPROVED in kinds and DENIED in kinds,
        legacy_signer=old["spec"].get("signerName") == LEGACY_SIGNER,
        repeated_conditions=len(set(kinds)) < len(kinds),
        empty_conditions="" in kinds,
        any_certificate=_certificate(new) == certificate or _certificate_problem(certificate) != "",
        unknown_usages=not set(usages) <= set(USAGES),
        repeated_usages=len(set(usages)) < len(usages),
    )


def _update_errors(new: Object, old: Object, allowed: _Allowed) -> list[FieldError]:
    errors = _request_errors(new, allowed)
    for kind in _FINAL:
        if len(_of_type(new, kind)) < len(_of_type(old, kind)):
            detail = f"updates may not remove a condition of type {quote(kind)}"
            errors.append(forbidden(_CONDITIONS, detail))
    if not allowed.approval:
        _check_same_approval(new, old, errors)
    before, after = _certificate(old), _certificate(new)
    if before != after and not allowed.certificate:
        errors.append(forbidden(_CERTIFICATE, "updates may not set certificate content"))
    elif before not in {after, b""}:
        detail = "updates may not modify existing certificate content"
        errors.append(forbidden(_CERTIFICATE, detail))
    return errors


def _check_same_approval(new: Object, old: Object, errors: Errors) -> None:
    for kind in (APPROVED, DENIED):
        before, after = _of_type(old, kind), _of_type(new, kind)
        if len(after) > len(before):
            detail = f"updates may not add a condition of type {quote(kind)}"
            errors.append(forbidden(_CONDITIONS, detail))
        elif len(after) == len(before) and after != before:
            diff = internal_diff(before, after, _CONDITION)
            detail = f"updates may not modify a condition of type {quote(kind)}\n{diff}"
            errors.append(forbidden(_CONDITIONS, detail))


def _validate_update(
    *, approval: bool = False, certificate: bool = False
) -> Callable[[Object, Object, Context], list[FieldError]]:
    """Return the update check of an endpoint that may change some parts."""

    def validate(new: Object, old: Object, _context: Context) -> list[FieldError]:
        allowed = _allowed(new, old)._replace(approval=approval, certificate=certificate)
        return _update_errors(new, old, allowed)

    return validate


def _any_name(_name: str, _is_prefix: bool) -> list[str]:  # noqa: FBT001  # a CheckName
    return []


def _selectable(obj: Object) -> dict[str, str]:
    return {"spec.signerName": obj["spec"].get("signerName", "")}


def _cells(obj: Object, now: float) -> list[Any]:
    metadata, spec = obj["metadata"], obj["spec"]
    seconds = spec.get("expirationSeconds")
    return [
        metadata["name"],
        age(metadata.get("creationTimestamp"), now),
        spec.get("signerName") or "<none>",
        spec.get("username", ""),
        "<none>" if seconds is None else human_duration(seconds),
        _state(obj),
    ]


def _state(obj: Object) -> str:
    kinds = {each.get("type") for each in _conditions(obj)}
    decision = DENIED if DENIED in kinds else APPROVED if APPROVED in kinds else "Pending"
    failed = f",{FAILED}" if FAILED in kinds else ""
    return decision + failed + (",Issued" if _certificate(obj) else "")


SIGNING_REQUESTS: Final = Strategy(
    default=_default,
    prepare_create=_prepare_create,
    prepare_update=_prepare_update,
    validate=_validate,
    validate_update=_validate_update(),
    check_name=_any_name,
    reset_fields=(("spec",), ("status",)),
    selectable=_selectable,
    cells=_cells,
    subresources={
        "approval": Strategy(
            table=NO_TABLE,
            default=_default,
            prepare_update=_prepare_approval,
            validate_update=_validate_update(approval=True),
            reset_fields=(("spec",), ("status", "certificate")),
            cells=_cells,
        ),
        "status": Strategy(
            default=_default,
            prepare_update=_prepare_status,
            validate_update=_validate_update(certificate=True),
            reset_fields=(("spec",), ("status", "conditions")),
            cells=_cells,
        ),
    },
)
