"""Validation of a Service's cluster IPs and IP families, and of their changes.

The first cluster IP and its family are immutable once set. A second one comes with a dual-stack
policy and goes with SingleStack. None of this applies to ExternalName Services, and headless ones
may change their families.
"""

from typing import Final

from kvstack.apimachinery.objects.addresses import validate_legacy_ip
from kvstack.apimachinery.objects.field_errors import (
    duplicate,
    index,
    invalid,
    not_supported,
    required,
)
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apimachinery.schema.load import enum_values
from kvstack.apiserver.kinds.network.services.traits import (
    IPV4,
    IPV6,
    NONE,
    SINGLE,
    Spec,
    cluster_ips,
    family_of,
    ip_families,
    is_external_name,
    is_headless,
)
from kvstack.apiserver.kinds.rules import Errors

CLUSTER_IPS: Final = "spec.clusterIPs"
FAMILIES: Final = "spec.ipFamilies"
POLICY: Final = "spec.ipFamilyPolicy"

_POLICIES: Final = enum_values("io.k8s.api.core.v1.ServiceSpec", "ipFamilyPolicy")
_FIXED: Final = "may not change once set"


def check_addresses(errors: Errors, spec: Spec, old: Spec | None) -> None:
    """Check cluster IPs, families and policy of a Service."""
    if is_external_name(spec):
        return
    _check_first(errors, spec)
    _check_families(errors, ip_families(spec))
    policy = spec.get("ipFamilyPolicy")
    if policy is not None and policy not in _POLICIES:
        errors.append(not_supported(POLICY, JsonText(policy), _POLICIES))
    if _check_each(errors, cluster_ips(spec), cluster_ips(old) if old else []):
        _check_together(errors, spec)


def check_address_changes(errors: Errors, spec: Spec, old: Spec) -> None:
    """Check changes of the cluster IPs of a Service."""
    if is_external_name(spec) or is_external_name(old) or (is_headless(spec) and is_headless(old)):
        return
    before, after = cluster_ips(old), cluster_ips(spec)
    first = index(CLUSTER_IPS, 0)
    if len(before) == len(after):
        errors.extend(
            invalid(index(CLUSTER_IPS, position), after, _FIXED)
            for position, ip in enumerate(before)
            if ip != after[position]
        )
        return
    if not after:
        errors.append(invalid(first, None, "primary clusterIP can not be unset"))
    if before and after and before[0] != after[0]:
        errors.append(invalid(first, after, _FIXED))
    if len(before) > len(after) == 1:
        _check_single(errors, spec, "clusterIP")


def check_family_changes(errors: Errors, spec: Spec, old: Spec) -> None:
    """Check changes of the families of a Service."""
    if is_external_name(spec) or is_external_name(old) or is_headless(spec) or is_headless(old):
        return
    before, after = ip_families(old), ip_families(spec)
    first = index(FAMILIES, 0)
    if len(before) == len(after):
        errors.extend(
            invalid(first, after, _FIXED)
            for one, other in zip(before, after, strict=True)
            if one != other
        )
        return
    if len(before) > len(after) and not cluster_ips(spec):
        errors.append(invalid(first, after or None, "primary ipFamily can not be unset"))
    if before and after and before[0] != after[0]:
        errors.append(invalid(first, cluster_ips(spec) or None, _FIXED))
    if len(before) > len(after) == 1:
        _check_single(errors, spec, "ipFamily")


def _check_first(errors: Errors, spec: Spec) -> None:
    single, several = spec.get("clusterIP", ""), cluster_ips(spec)
    if single and not several:
        errors.append(required(CLUSTER_IPS))
    elif single and several[0] != single:
        errors.append(invalid(CLUSTER_IPS, several, "first value must match `clusterIP`"))
    elif several and not single:
        detail = "must be empty when `clusterIP` is not specified"
        errors.append(invalid(CLUSTER_IPS, several, detail))


def _check_families(errors: Errors, families: list[str]) -> None:
    seen: set[str] = set()
    for position, family in enumerate(families):
        path = index(FAMILIES, position)
        if family not in {IPV4, IPV6}:
            errors.append(not_supported(path, JsonText(family), (IPV4, IPV6)))
        if family in seen:
            errors.append(duplicate(path, JsonText(family)))
        seen.add(family)


def _check_each(errors: Errors, ips: list[str], accepted: list[str]) -> bool:
    """Check the addresses individually; return whether all of them are valid."""
    count = len(errors)
    if ips[:1] == [NONE] and len(ips) > 1:
        errors.append(invalid(CLUSTER_IPS, ips, "'None' must be the first and only value"))
    for position, ip in enumerate(ips):
        if position or ip != NONE:
            path = index(CLUSTER_IPS, position)
            errors.extend(validate_legacy_ip(path, ip, accepted=accepted))
    is_good = len(errors) == count
    if len(ips) > 2:
        errors.append(invalid(CLUSTER_IPS, ips, "may only hold up to 2 values"))
    return is_good


def _check_together(errors: Errors, spec: Spec) -> None:
    ips = cluster_ips(spec)
    families = [family_of(each) for each in ips]
    if len(ips) > 1 and set(families) != {IPV4, IPV6}:
        detail = "may specify no more than one IP for each IP family"
        errors.append(invalid(CLUSTER_IPS, ips, detail))
    if is_headless(spec):
        return
    for position, (ip, wanted) in enumerate(zip(ips, ip_families(spec), strict=False)):
        family = families[position]
        if (wanted == IPV4 and family == IPV6) or (wanted == IPV6 and family != IPV6):
            detail = f"expected an {wanted} value as indicated by `ipFamilies[{position}]`"
            errors.append(invalid(index(CLUSTER_IPS, position), ip, detail))


def _check_single(errors: Errors, spec: Spec, released: str) -> None:
    policy = spec.get("ipFamilyPolicy")
    if policy != SINGLE:
        shown = None if policy is None else JsonText(policy)
        detail = f"must be set to 'SingleStack' when releasing the secondary {released}"
        errors.append(invalid(POLICY, shown, detail))
