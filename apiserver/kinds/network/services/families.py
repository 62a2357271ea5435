"""IP families of a Service: as requested, or those of the cluster.

    policy            one family in the cluster      two families
    SingleStack       that one                       the first
    PreferDualStack   that one                       both
    RequireDualStack  refused                        both

A headless Service without selector has no endpoints of the cluster, so it may have both families on
any cluster.
"""

from collections.abc import Sequence
from typing import Final

from kvstack.apimachinery.objects.field_errors import FieldError, index, invalid
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apiserver.kinds.network.services.addresses import (
    CLUSTER_IPS,
    FAMILIES,
    POLICY,
    check_addresses,
)
from kvstack.apiserver.kinds.network.services.traits import (
    IPV4,
    IPV6,
    NONE,
    PREFERRED,
    REQUIRED,
    SINGLE,
    Spec,
    cluster_ips,
    family_of,
    ip_families,
    is_external_name,
    same_cluster_ips,
    same_families,
    type_of,
)

_NOT_HERE: Final = "is not configured on this cluster"


def other_family(family: str) -> str:
    """Return the other of the two families."""
    return IPV6 if family == IPV4 else IPV4


def keeps_preferred(spec: Spec, old: Spec | None) -> bool:
    """Return whether a Service with PreferDualStack keeps its families.

    The families of the cluster may have changed since; only a change of the Service itself adds or
    removes an address.
    """
    return (
        old is not None
        and spec.get("ipFamilyPolicy") == PREFERRED
        and old.get("ipFamilyPolicy") in {None, PREFERRED}
        and type_of(spec) == type_of(old)
        and not is_external_name(spec)
        and same_cluster_ips(spec, old)
        and same_families(spec, old)
    )


def init_families(spec: Spec, old: Spec | None, configured: Sequence[str]) -> list[FieldError]:
    """Set policy and families of a Service; return the errors.

    configured: the families that the cluster has ranges of, the default one first.
    """
    if is_external_name(spec) or keeps_preferred(spec, old):
        return []
    if spec.get("ipFamilyPolicy") is None:
        spec["ipFamilyPolicy"] = _default_policy(spec, old)
    errors: list[FieldError] = []
    check_addresses(errors, spec, old)
    if errors:
        return errors
    errors = _release_errors(spec, old) if old is not None else []
    errors += _single_errors(spec)
    errors += _infer_families(spec, configured)
    if errors:
        return errors
    if _is_free(spec):
        _set_families(spec, configured, may_add=True)
        return []
    errors = _cluster_errors(spec, configured)
    if not errors:
        _set_families(spec, configured, may_add=len(configured) == 2)
    return errors


def fill_families(spec: Spec, primary: str) -> None:
    """Set policy and families of a Service that was stored before they existed."""
    if is_external_name(spec) or ip_families(spec):
        return
    if spec.get("clusterIP") == NONE:
        families = [primary] if spec.get("selector") else [primary, other_family(primary)]
    else:
        families = [IPV6 if family_of(each) == IPV6 else IPV4 for each in cluster_ips(spec)]
    if not families:
        return
    spec["ipFamilies"] = families
    spec["ipFamilyPolicy"] = SINGLE if len(families) == 1 else REQUIRED


def _default_policy(spec: Spec, old: Spec | None) -> str:
    before = None if old is None else old.get("ipFamilyPolicy")
    return before or (REQUIRED if _is_free(spec) else SINGLE)


def _is_free(spec: Spec) -> bool:
    return spec.get("clusterIP") == NONE and not spec.get("selector")


def _release_errors(spec: Spec, old: Spec) -> list[FieldError]:
    """Release the second address if that is intended; return the errors."""
    if spec["ipFamilyPolicy"] == SINGLE:
        if same_cluster_ips(spec, old) and len(cluster_ips(spec)) > 1:
            spec["clusterIPs"] = cluster_ips(spec)[:1]
        if same_families(spec, old) and len(ip_families(spec)) > 1:
            spec["ipFamilies"] = ip_families(spec)[:1]
        return []
    policy = JsonText(spec["ipFamilyPolicy"])
    return [
        invalid(POLICY, policy, f"must be 'SingleStack' to release the secondary {what}")
        for now, before, what in (
            (cluster_ips(spec), cluster_ips(old), "cluster IP"),
            (ip_families(spec), ip_families(old), "IP family"),
        )
        if now and len(now) < len(before)
    ]


def _single_errors(spec: Spec) -> list[FieldError]:
    if spec["ipFamilyPolicy"] != SINGLE:
        return []
    text = "must be 'RequireDualStack' or 'PreferDualStack' when multiple {} are specified"
    return [
        invalid(POLICY, JsonText(SINGLE), text.format(what))
        for values, what in ((cluster_ips(spec), "cluster IPs"), (ip_families(spec), "IP families"))
        if len(values) == 2
    ]


def _infer_families(spec: Spec, configured: Sequence[str]) -> list[FieldError]:
    """Add the families of cluster IPs without one."""
    errors: list[FieldError] = []
    families = list(ip_families(spec))
    ips = cluster_ips(spec)
    for position, ip in enumerate(ips):
        if ip == NONE:
            break
        if position < len(families):
            continue
        family = family_of(ip)
        if family in configured:
            families.append(family)
        else:
            errors.append(invalid(index(CLUSTER_IPS, position), ips, f"{family} {_NOT_HERE}"))
    if families:
        spec["ipFamilies"] = families
    return errors


def _cluster_errors(spec: Spec, configured: Sequence[str]) -> list[FieldError]:
    errors: list[FieldError] = []
    if spec["ipFamilyPolicy"] == REQUIRED and len(configured) < 2:
        detail = "this cluster is not configured for dual-stack services"
        errors.append(invalid(POLICY, JsonText(REQUIRED), detail))
    errors.extend(
        invalid(index(FAMILIES, position), JsonText(family), "not configured on this cluster")
        for position, family in enumerate(ip_families(spec))
        if family not in configured
    )
    return errors


def _set_families(spec: Spec, configured: Sequence[str], *, may_add: bool) -> None:
    families = ip_families(spec) or [configured[0]]
    if may_add and len(families) == 1 and spec["ipFamilyPolicy"] != SINGLE:
        families = [*families, other_family(families[0])]
    spec["ipFamilies"] = families
