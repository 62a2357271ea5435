"""NetworkPolicies: allowed traffic of pods."""

from collections.abc import Iterator
from typing import Any, Final

from kvstack.apimachinery.objects.addresses import (
    Network,
    cidr_warnings,
    parse_cidr,
    validate_legacy_cidr,
)
from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    forbidden,
    index,
    invalid,
    not_supported,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.labels import format_object, validate_object
from kvstack.apimachinery.objects.names import check_port_name, check_port_number
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apimachinery.objects.times import age
from kvstack.apimachinery.schema.load import enum_in_order
from kvstack.apiserver.kinds.generation import set_first_generation
from kvstack.apiserver.kinds.rules import Errors, add_invalid
from kvstack.apiserver.kinds.strategy import Context, Strategy

_GROUP: Final = "io.k8s.api.networking.v1"
_PROTOCOLS: Final = enum_in_order(f"{_GROUP}.NetworkPolicyPort", "protocol", "TCP", "UDP", "SCTP")
_TYPES: Final = enum_in_order(f"{_GROUP}.NetworkPolicySpec", "policyTypes", "Ingress", "Egress")
_DIRECTIONS: Final = (("ingress", "from"), ("egress", "to"))
"""The lists of rules, and the field of peers in a rule."""


def _default(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    for rules, _ in _DIRECTIONS:
        for rule in spec.get(rules) or ():
            for port in rule.get("ports") or ():
                port.setdefault("protocol", "TCP")
    if not spec.get("policyTypes"):
        spec["policyTypes"] = list(_TYPES) if spec.get("egress") else ["Ingress"]


def _prepare_update(new: Object, old: Object, _context: Context) -> None:
    if new["spec"] != old["spec"]:  # empty and absent lists differ here
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _validate(obj: Object, _context: Context) -> list[FieldError]:
    return _errors(obj["spec"], accepted=frozenset(), allows_bad_values=False)


def _validate_update(new: Object, old: Object, _context: Context) -> list[FieldError]:
    accepted = frozenset(
        cidr
        for _, block in _blocks(old["spec"])
        for cidr in (block.get("cidr", ""), *(block.get("except") or ()))
    )
    is_bad = bool(validate_object("", old["spec"].get("podSelector")))
    return _errors(new["spec"], accepted=accepted, allows_bad_values=is_bad)


def _errors(spec: Object, *, accepted: frozenset[str], allows_bad_values: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    declared: list[FieldError] = []
    check = _Checks(errors, declared, accepted, allows_bad_values=allows_bad_values)
    check.selector("spec.podSelector", spec.get("podSelector") or {})
    for rules, side in _DIRECTIONS:
        for position, rule in enumerate(spec.get(rules) or ()):
            path = index(child("spec", rules), position)
            for number, port in enumerate(rule.get("ports") or ()):
                _check_port(errors, index(child(path, "ports"), number), port)
            for number, peer in enumerate(rule.get(side) or ()):
                check.peer(index(child(path, side), number), peer)
    _check_types(errors, spec.get("policyTypes") or [])
    return errors + declared


class _Checks:
    """The checks of peers, and what they tolerate."""

    __slots__ = ("_accepted", "_allows_bad_values", "_declared", "_errors")

    def __init__(
        self,
        errors: Errors,
        declared: Errors,
        accepted: frozenset[str],
        *,
        allows_bad_values: bool,
    ) -> None:
        """declared: receives the errors that the schema itself declares."""
        self._errors = errors
        self._declared = declared
        self._accepted = accepted
        self._allows_bad_values = allows_bad_values

    def selector(self, path: str, selector: Object) -> None:
        """Check a pod or namespace selector."""
        self._errors.extend(
            validate_object(path, selector, allow_invalid_values=self._allows_bad_values)
        )

    def peer(self, path: str, peer: Object) -> None:
        """Check a peer."""
        set_fields = [
            each for each in ("podSelector", "namespaceSelector") if peer.get(each) is not None
        ]
        for each in set_fields:
            self.selector(child(path, each), peer[each])
        block = peer.get("ipBlock")
        if block is not None:
            self._block(child(path, "ipBlock"), block)
        if block is None and not set_fields:
            self._errors.append(required(path, "must specify a peer"))
        elif block is not None and set_fields:
            self._errors.append(forbidden(path, "may not specify both ipBlock and another peer"))

    def _block(self, path: str, block: Object) -> None:
        cidr_path, cidr = child(path, "cidr"), block.get("cidr", "")
        if not cidr:
            self._declared.append(required(cidr_path))
            return
        self._errors.extend(validate_legacy_cidr(cidr_path, cidr, accepted=self._accepted))
        network = parse_cidr(cidr)
        if network is None:
            return
        for position, each in enumerate(block.get("except") or ()):
            field = index(child(path, "except"), position)
            self._errors.extend(validate_legacy_cidr(field, each, accepted=self._accepted))
            part = parse_cidr(each)
            if part is not None and not _is_part(network, part):
                self._errors.append(invalid(field, each, "must be a strict subset of `cidr`"))


def _is_part(whole: Network, part: Network) -> bool:
    """Return whether a network is within another and smaller."""
    if whole.address.is_ipv4 != part.address.is_ipv4 or whole.prefix >= part.prefix:
        return False
    shift = (32 if whole.address.is_ipv4 else 128) - whole.prefix
    return whole.address.number >> shift == part.address.number >> shift


def _check_port(errors: Errors, path: str, port: Object) -> None:
    protocol = port.get("protocol")
    if protocol is not None and protocol not in _PROTOCOLS:
        errors.append(not_supported(child(path, "protocol"), JsonText(protocol), _PROTOCOLS))
    number, end = port.get("port"), port.get("endPort")
    port_path, end_path = child(path, "port"), child(path, "endPort")
    if isinstance(number, int):
        add_invalid(errors, port_path, number, check_port_number(number))
        if end is not None:
            if end < number:
                errors.append(invalid(end_path, end, "must be greater than or equal to `port`"))
            add_invalid(errors, end_path, end, check_port_number(end))
        return
    if end is not None:
        reason = "is not specified" if number is None else "is non-numeric"
        errors.append(invalid(end_path, end, f"may not be specified when `port` {reason}"))
    if number is not None:
        add_invalid(errors, port_path, number, check_port_name(number))


def _check_types(errors: Errors, types: list[str]) -> None:
    if len(types) > len(_TYPES):
        detail = "may not specify more than two policyTypes"
        errors.append(invalid("spec.policyTypes", types, detail))
        return
    errors.extend(
        not_supported(index("spec.policyTypes", position), JsonText(each), _TYPES)
        for position, each in enumerate(types)
        if each not in _TYPES
    )


def _blocks(spec: Object) -> Iterator[tuple[str, Object]]:
    """Yield every ipBlock with its path."""
    for rules, side in _DIRECTIONS:
        for position, rule in enumerate(spec.get(rules) or ()):
            path = child(index(child("spec", rules), position), side)
            for number, peer in enumerate(rule.get(side) or ()):
                if peer.get("ipBlock") is not None:
                    yield child(index(path, number), "ipBlock"), peer["ipBlock"]


def _warnings(obj: Object, _context: Context) -> list[str]:
    warnings: list[str] = []
    for path, block in _blocks(obj["spec"]):
        warnings.extend(cidr_warnings(child(path, "cidr"), block.get("cidr", "")))
        for position, each in enumerate(block.get("except") or ()):
            warnings.extend(cidr_warnings(index(child(path, "except"), position), each))
    return warnings


def _update_warnings(new: Object, _old: Object, context: Context) -> list[str]:
    return _warnings(new, context)


def _cells(obj: Object, now: float) -> list[Any]:
    metadata = obj["metadata"]
    return [
        metadata["name"],
        format_object(obj["spec"].get("podSelector") or {}),
        age(metadata.get("creationTimestamp"), now),
    ]


NETWORK_POLICIES: Final = Strategy(
    default=_default,
    prepare_create=set_first_generation,
    prepare_update=_prepare_update,
    validate=_validate,
    validate_update=_validate_update,
    warnings=_warnings,
    update_warnings=_update_warnings,
    has_generation=True,
    cells=_cells,
)
