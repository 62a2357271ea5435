"""The status of a pod, as kubelets write it.

A terminated container may only run again if its restart policy and rules allow it.
"""

from typing import Final

from kvstack.apimachinery.objects.addresses import ip_warnings, parse_ip, validate_legacy_ip
from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    forbidden,
    index,
    internal,
    invalid,
    not_found,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import (
    IMMUTABLE,
    between,
    check_condition_reason,
    check_label_key,
    check_user_id,
    name_is_dns_subdomain,
)
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apiserver.kinds.pods.containers.validation import RESTART_POLICIES
from kvstack.apiserver.kinds.pods.preparation import drop_disabled
from kvstack.apiserver.kinds.pods.subresources.status_resources import (
    STATUS_LISTS,
    check_allocated,
    check_claims,
)
from kvstack.apiserver.kinds.pods.tolerances import Tolerances
from kvstack.apiserver.kinds.pods.validation import (
    check_changed_annotations,
    check_forgiving,
    scope_of,
)
from kvstack.apiserver.kinds.rules import Errors, add_invalid
from kvstack.apiserver.kinds.strategy import Context

_SYSTEM_CONDITIONS: Final = frozenset(("PodScheduled", "Ready", "Initialized"))
_NOT_NEGATIVE: Final = "must be a non-negative integer"
_RESTARTED: Final = "may not be transitioned to non-terminated state"
_UINT32_MAX: Final = 2**32 - 1
_KEPT_IF_ABSENT: Final = ("resourceClaimStatuses", "extendedResourceClaimStatus")


def prepare_update(new: Object, old: Object, _context: Context) -> None:
    """Keep what an update of the status cannot change."""
    metadata, stored = new["metadata"], old["metadata"]
    new["spec"] = old.get("spec", {})
    if "deletionTimestamp" not in stored:
        metadata.pop("deletionTimestamp", None)
    if "ownerReferences" in stored:
        metadata["ownerReferences"] = stored["ownerReferences"]
    else:
        metadata.pop("ownerReferences", None)
    status: Object = dict(new.get("status") or {})
    old_status = old.get("status") or {}
    new["status"] = status
    if not status.get("qosClass") and old_status.get("qosClass"):
        status["qosClass"] = old_status["qosClass"]
    for name in _KEPT_IF_ABSENT:
        if status.get(name) is None and old_status.get(name) is not None:
            status[name] = old_status[name]
    _keep_observed_generations(status, old_status)
    drop_disabled(new, old)


def validate_update(new: Object, old: Object, context: Context) -> list[FieldError]:
    """Return the errors of an update of the status."""

    def check(tolerances: Tolerances) -> list[FieldError]:
        scope = scope_of(new, context, tolerances)
        check_changed_annotations(scope, new, old)
        _check_status(scope.errors, new, old)
        return scope.errors

    return check_forgiving(check, old)


def update_warnings(new: Object, _old: Object, _context: Context) -> list[str]:
    """Return the warnings about addresses that are not canonical."""
    status = new.get("status") or {}
    return [
        warning
        for name in ("podIPs", "hostIPs")
        for position, each in enumerate(status.get(name) or ())
        for warning in ip_warnings(f"status.{name}[{position}].ip", each.get("ip", ""))
    ]


def _keep_observed_generations(status: Object, old_status: Object) -> None:
    if not status.get("observedGeneration") and old_status.get("observedGeneration"):
        status["observedGeneration"] = old_status["observedGeneration"]
    conditions = status.get("conditions")
    if not conditions:
        return
    # A type may occur several times; each takes the next value of its type.
    stored: dict[str, list[int]] = {}
    for each in old_status.get("conditions") or ():
        stored.setdefault(each.get("type", ""), []).append(each.get("observedGeneration", 0))
    for each in conditions:
        values = stored.get(each.get("type", ""))
        before = values.pop(0) if values else 0
        if before and not each.get("observedGeneration"):
            each["observedGeneration"] = before


def _check_status(errors: Errors, new: Object, old: Object) -> None:
    status, old_status = new.get("status") or {}, old.get("status") or {}
    spec = new.get("spec") or {}
    _check_conditions(errors, status.get("conditions") or [])
    _check_nominated_node(errors, status, old_status, spec)
    generation = status.get("observedGeneration", 0)
    if generation < 0:
        errors.append(invalid("status.observedGeneration", generation, _NOT_NEGATIVE))
    if status.get("qosClass", "") != old_status.get("qosClass", ""):
        value = JsonText(status.get("qosClass", ""))
        errors.append(invalid("status.qosClass", value, IMMUTABLE))
    _check_restarts(errors, status, old_status, spec)
    check_claims(errors, status, spec)
    _check_volume_health(errors, status, spec)
    _check_addresses(errors, status, old_status, "podIP", "podIPs")
    _check_addresses(errors, status, old_status, "hostIP", "hostIPs")
    _check_users(errors, status, spec)
    check_allocated(errors, status, spec)


def _check_conditions(errors: Errors, conditions: list[Object]) -> None:
    for position, condition in enumerate(conditions):
        path = f"status.conditions[{position}]"
        generation = condition.get("observedGeneration", 0)
        if generation < 0:
            errors.append(invalid(child(path, "observedGeneration"), generation, _NOT_NEGATIVE))
        type_ = condition.get("type", "")
        if type_ not in _SYSTEM_CONDITIONS:
            add_invalid(errors, child(path, "Type"), type_, check_label_key(type_))


def _check_nominated_node(errors: Errors, status: Object, old_status: Object, spec: Object) -> None:
    path = "status.nominatedNodeName"
    name = status.get("nominatedNodeName", "")
    if not name or name == old_status.get("nominatedNodeName", ""):
        return
    add_invalid(errors, path, name, name_is_dns_subdomain(name, False))
    if spec.get("nodeName"):
        errors.append(forbidden(path, "may not be set on pods that are already bound to a node"))


def _check_restarts(errors: Errors, status: Object, old_status: Object, spec: Object) -> None:
    if not _may_all_restart(spec):
        for list_name, containers_name in STATUS_LISTS:
            containers = {each.get("name", ""): each for each in spec.get(containers_name) or ()}
            for position, name, code in _revived(status, old_status, list_name):
                container = containers.get(name)
                if container is None or not _may_restart(container, spec, code):
                    path = f"status.{list_name}[{position}].state"
                    errors.append(forbidden(path, _RESTARTED))
    list_name = "ephemeralContainerStatuses"
    for position, _, _ in _revived(status, old_status, list_name):
        errors.append(forbidden(f"status.{list_name}[{position}].state", _RESTARTED))


def _revived(status: Object, old_status: Object, list_name: str) -> list[tuple[int, str, int]]:
    """Return containers that are no longer terminated: old index, name, exit code."""
    now: dict[str, Object] = {}
    for each in status.get(list_name) or ():
        if "terminated" not in (each.get("state") or {}):
            now.setdefault(each.get("name", ""), each)
    found: list[tuple[int, str, int]] = []
    for position, each in enumerate(old_status.get(list_name) or ()):
        ended = (each.get("state") or {}).get("terminated")
        if ended is not None and each.get("name", "") in now:
            found.append((position, each.get("name", ""), ended.get("exitCode", 0)))
    return found


def _may_all_restart(spec: Object) -> bool:
    return any(
        rule.get("action") == "RestartAllContainers"
        for name in ("initContainers", "containers")
        for container in spec.get(name) or ()
        for rule in container.get("restartPolicyRules") or ()
    )


def _may_restart(container: Object, spec: Object, code: int) -> bool:
    policy = container.get("restartPolicy")
    if policy is not None:
        if any(_matches(rule, code) for rule in container.get("restartPolicyRules") or ()):
            return True
        if policy in RESTART_POLICIES:
            return policy == "Always" or (policy == "OnFailure" and code != 0)
    policy = spec.get("restartPolicy")
    return policy != "Never" and (policy != "OnFailure" or code != 0)


def _matches(rule: Object, code: int) -> bool:
    codes = rule.get("exitCodes")
    if codes is None:
        return False
    is_listed = code in (codes.get("values") or ())
    return is_listed if codes.get("operator") == "In" else not is_listed


def _check_volume_health(errors: Errors, status: Object, spec: Object) -> None:
    known = {each.get("name", "") for each in spec.get("volumes") or ()}
    for position, each in enumerate(status.get("volumeHealth") or ()):
        path = f"status.volumeHealth[{position}]"
        name = each.get("name", "")
        if name and name not in known:
            errors.append(not_found(child(path, "name"), name))
        for number, condition in enumerate(each.get("healthConditions") or ()):
            reason = condition.get("reason")
            if reason:
                reason_path = child(index(child(path, "healthConditions"), number), "reason")
                add_invalid(errors, reason_path, reason, check_condition_reason(reason))


def _check_addresses(
    errors: Errors, status: Object, old_status: Object, single_name: str, list_name: str
) -> None:
    path = f"status.{list_name}"
    addresses = [each.get("ip", "") for each in status.get(list_name) or ()]
    single = status.get(single_name, "")
    first_path = child(index(path, 0), "ip")
    message = f"must be equal to `{single_name}`"
    is_of_pod = list_name == "podIPs"
    if addresses and single != addresses[0] and not is_of_pod:
        errors.append(invalid(first_path, addresses[0], message))
    accepted = {each.get("ip", "") for each in old_status.get(list_name) or ()}
    for position, address in enumerate(addresses):
        errors += validate_legacy_ip(index(path, position), address, accepted=accepted)
    if len(addresses) > 1:
        _check_families(errors, addresses, path)
    if is_of_pod:
        if bool(single) != bool(addresses):
            both_or_none = "podIP and podIPs must either both be set or both be unset"
            errors.append(invalid(path, _printed_ips(addresses), both_or_none))
        elif addresses and single != addresses[0]:
            errors.append(invalid(first_path, addresses[0], message))


def _check_families(errors: Errors, addresses: list[str], path: str) -> None:
    families: set[bool] = set()
    for position, address in enumerate(addresses):
        parsed = parse_ip(address)
        if parsed is None:
            message = f"failed to check for dual stack with error:invalid IP[{position}]: {address}"
            errors.append(internal(path, message))
            families.clear()
            break
        families.add(parsed.is_ipv4)
    if len(families) != 2 or len(addresses) > 2:
        message = "may specify no more than one IP for each IP family"
        errors.append(invalid(path, _printed_ips(addresses), message))


def _printed_ips(addresses: list[str]) -> object:
    return [{"IP": each} for each in addresses] or None


def _check_users(errors: Errors, status: Object, spec: Object) -> None:
    os = (spec.get("os") or {}).get("name") or "linux"
    for list_name, _ in (*STATUS_LISTS, ("ephemeralContainerStatuses", "")):
        for position, each in enumerate(status.get(list_name) or ()):
            user = (each.get("user") or {}).get("linux")
            if user is None:
                continue
            path = f"status.{list_name}[{position}].user.linux"
            if os == "windows":
                errors.append(forbidden(path, "cannot be set for a windows pod"))
            elif os == "linux":
                _check_user(errors, user, path)


def _check_user(errors: Errors, user: Object, path: str) -> None:
    uid, gid = user.get("uid", 0), user.get("gid", 0)
    if not 0 <= uid <= _UINT32_MAX:
        errors.append(invalid(child(path, "uid"), uid, between(0, _UINT32_MAX)))
    add_invalid(errors, child(path, "gid"), gid, check_user_id(gid))
    groups_path = child(path, "supplementalGroups")
    for position, group in enumerate(user.get("supplementalGroups") or ()):
        add_invalid(errors, index(groups_path, position), group, check_user_id(group))
