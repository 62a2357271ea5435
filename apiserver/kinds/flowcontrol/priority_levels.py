"""PriorityLevelConfigurations: concurrency and queuing of a level."""

from math import ceil, log2
from typing import Any, Final

from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    forbidden,
    invalid,
    not_supported,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apimachinery.objects.times import age
from kvstack.apiserver.kinds.declared import Declared, DeclaredRules, Member
from kvstack.apiserver.kinds.equality import same
from kvstack.apiserver.kinds.flowcontrol import mandatory
from kvstack.apiserver.kinds.flowcontrol.status import (
    prepare_create,
    prepare_status,
    prepare_update_of,
    status_errors,
    validate_status,
)
from kvstack.apiserver.kinds.internal_values import internal_value
from kvstack.apiserver.kinds.rules import Errors
from kvstack.apiserver.kinds.strategy import Context, Strategy, with_status

_TYPES: Final = "io.k8s.api.flowcontrol.v1"
_LEVEL: Final = f"{_TYPES}.PriorityLevelConfiguration"
_SPEC: Final = f"{_LEVEL}Spec"
_ROUND_TRIP: Final = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares"
"""An annotation of versions that are no longer served."""
_SHARES: Final = 30
_QUEUING: Final = {"handSize": 8, "queues": 64, "queueLengthLimit": 50}
_QUEUES_MAX: Final = 10_000_000
_HASH_BITS: Final = 60
_ENABLEMENTS: Final = ("Exempt", "Limited")
_RESPONSES: Final = ("Queue", "Reject")
_NOT_NEGATIVE: Final = "must be a non-negative integer"
_DECLARED: Final = DeclaredRules(
    {
        _SPEC: {"type": Declared(is_required=True)},
        f"{_TYPES}.LimitResponse": {"type": Declared(is_required=True)},
    },
    {
        _SPEC: (
            Member(field="exempt", when="type", value="Exempt"),
            Member(field="limited", when="type", value="Limited", is_required=True),
        ),
        f"{_TYPES}.LimitResponse": (
            Member(field="queuing", when="type", value="Queue", is_required=True),
        ),
    },
)


def _default(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    for name, shares in (("exempt", 0), ("limited", _SHARES)):
        limits = spec.get(name)
        if limits is not None:
            if limits.get("nominalConcurrencyShares") is None:
                limits["nominalConcurrencyShares"] = shares
            if limits.get("lendablePercent") is None:
                limits["lendablePercent"] = 0
    queuing = ((spec.get("limited") or {}).get("limitResponse") or {}).get("queuing")
    if queuing is not None:
        for name, value in _QUEUING.items():
            if not queuing.get(name):
                queuing[name] = value


def _validate(obj: Object, _context: Context) -> list[FieldError]:
    return _DECLARED.merge(_errors(obj), obj, None, _LEVEL)


def _validate_update(new: Object, old: Object, _context: Context) -> list[FieldError]:
    return _DECLARED.merge(_errors(new), new, old, _LEVEL)


def _errors(obj: Object) -> list[FieldError]:
    errors: Errors = []
    metadata, spec = obj["metadata"], obj["spec"]
    if _ROUND_TRIP in (metadata.get("annotations") or {}):
        detail = f"annotation '{_ROUND_TRIP}' is forbidden"
        errors.append(forbidden("metadata.annotations", detail))
    _check_spec(metadata.get("name", ""), spec, errors)
    _check_mandatory(metadata.get("name", ""), spec, errors)
    return errors + status_errors(obj)


def _check_mandatory(name: str, spec: Object, errors: Errors) -> None:
    fixed = mandatory.PRIORITY_LEVELS.get(name)
    if fixed is None:
        return
    what = f"spec of '{name}'"
    compared = spec
    if name == mandatory.EXEMPT:
        what += " except the 'spec.exempt' field"
        compared = spec | {"exempt": fixed["exempt"]}
    if not same(compared, fixed, _SPEC):
        detail = f"{what} must equal the fixed value"
        errors.append(invalid("spec", internal_value(spec, _SPEC), detail))


def _check_spec(name: str, spec: Object, errors: Errors) -> None:
    kind, exempt, limited = spec.get("type", ""), spec.get("exempt"), spec.get("limited")
    if (name == mandatory.EXEMPT) != (kind == "Exempt"):
        detail = "must be 'Exempt' if and only if `name` is 'exempt'"
        errors.append(invalid("spec.type", JsonText(kind), detail))
    if kind == "Exempt":
        if limited is not None:
            detail = "must be nil if the type is not Limited"
            errors.append(_covered(forbidden("spec.limited", detail)))
        if exempt is not None:
            _check_shares(exempt, "spec.exempt", errors)
            _check_lendable(exempt, "spec.exempt", errors)
    elif kind == "Limited":
        if exempt is not None:
            errors.append(_covered(forbidden("spec.exempt", "must be nil if the type is Limited")))
        if limited is None:
            detail = "must not be empty when type is Limited"
            errors.append(_covered(required("spec.limited", detail)))
        else:
            _check_limited(limited, "spec.limited", errors)
    elif kind:
        errors.append(not_supported("spec.type", JsonText(kind), _ENABLEMENTS))
    else:
        errors.append(_covered(required("spec.type")))


def _check_limited(limited: Object, path: str, errors: Errors) -> None:
    _check_shares(limited, path, errors)
    _check_response(limited.get("limitResponse") or {}, child(path, "limitResponse"), errors)
    _check_lendable(limited, path, errors)
    borrowed = limited.get("borrowingLimitPercent")
    if borrowed is not None and borrowed < 0:
        detail = f"if specified, {_NOT_NEGATIVE}"
        errors.append(invalid(child(path, "borrowingLimitPercent"), borrowed, detail))


def _check_shares(limits: Object, path: str, errors: Errors) -> None:
    shares = limits.get("nominalConcurrencyShares")
    if shares is not None and shares < 0:
        errors.append(invalid(child(path, "nominalConcurrencyShares"), shares, _NOT_NEGATIVE))


def _check_lendable(limits: Object, path: str, errors: Errors) -> None:
    percent = limits.get("lendablePercent")
    if percent is not None and not 0 <= percent <= 100:
        detail = "must be between 0 and 100, inclusive"
        errors.append(invalid(child(path, "lendablePercent"), percent, detail))


def _check_response(response: Object, path: str, errors: Errors) -> None:
    kind, queuing, where = response.get("type", ""), response.get("queuing"), child(path, "queuing")
    if kind == "Reject":
        if queuing is not None:
            detail = "must be nil if limited.limitResponse.type is not Limited"
            errors.append(_covered(forbidden(where, detail)))
    elif kind == "Queue":
        if queuing is None:
            detail = "must not be empty if limited.limitResponse.type is Limited"
            errors.append(_covered(required(where, detail)))
        else:
            _check_queuing(queuing, where, errors)
    elif kind:
        errors.append(not_supported(child(path, "type"), JsonText(kind), _RESPONSES))
    else:
        errors.append(_covered(required(child(path, "type"))))


def _check_queuing(queuing: Object, path: str, errors: Errors) -> None:
    length, queues, hand = (
        queuing.get(each, 0) for each in ("queueLengthLimit", "queues", "handSize")
    )
    if length <= 0:
        errors.append(invalid(child(path, "queueLengthLimit"), length, "must be positive"))
    if queues <= 0:
        errors.append(invalid(child(path, "queues"), queues, "must be positive"))
    elif queues > _QUEUES_MAX:
        detail = f"must not be greater than {_QUEUES_MAX}"
        errors.append(invalid(child(path, "queues"), queues, detail))
    problem = _hand_problem(queues, hand)
    if problem:
        errors.append(invalid(child(path, "handSize"), hand, problem))


def _hand_problem(queues: int, hand: int) -> str:
    """Return why a hand of queues cannot be dealt to a flow; empty: it can."""
    if hand <= 0:
        return "must be positive"
    if hand > queues:
        return f"should not be greater than queues ({queues})"
    if ceil(log2(queues) * hand) > _HASH_BITS:
        return (
            f"required entropy bits of deckSize {queues} and handSize {hand} should not be greater"
            f" than {_HASH_BITS}"
        )
    return ""


def _covered(error: FieldError) -> FieldError:
    return error._replace(covered=True)


def _cells(obj: Object, now: float) -> list[Any]:
    metadata, spec = obj["metadata"], obj["spec"]
    limited = spec.get("limited") or {}
    queuing = (limited.get("limitResponse") or {}).get("queuing") or {}
    return [
        metadata["name"],
        spec.get("type", ""),
        limited.get("nominalConcurrencyShares", "<none>"),
        *(queuing.get(each, "<none>") for each in ("queues", "handSize", "queueLengthLimit")),
        age(metadata.get("creationTimestamp"), now),
    ]


PRIORITY_LEVELS: Final = with_status(
    Strategy(
        default=_default,
        prepare_create=prepare_create,
        prepare_update=prepare_update_of(_SPEC),
        validate=_validate,
        validate_update=_validate_update,
        has_generation=True,
        cells=_cells,
    ),
    prepare_update=prepare_status,
    validate_update=validate_status,
    reset_fields=(("spec",), ("metadata",)),
)
