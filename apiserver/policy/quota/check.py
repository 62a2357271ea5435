"""Checks a write against the quotas of its namespace, and computes their new usage.

    charge([quota], request, now) → [quota with the new status.used]

Compares with `status.hard` and `status.used`, which the controller maintains. An update is charged
its increase. Nothing is written here.
"""

from collections.abc import Iterable, Mapping, Sequence

from kvstack.apimachinery.objects import resources
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.quota.scopes import scopes_of
from kvstack.apimachinery.quota.usage import Amounts, Measure, measure_of
from kvstack.apiserver.policy.admission.request import UPDATE, AdmissionRequest
from kvstack.apiserver.policy.quota.limited import (
    LimitedResource,
    limited_names,
    shown_scopes,
    uncovered_scopes,
)


def charge(
    quotas: Sequence[Object],
    request: AdmissionRequest,
    now: float,
    limited: Sequence[LimitedResource] = (),
) -> list[Object]:
    """Return the quotas after a write; unaffected ones are the same objects.

    Raises ApiError 403 if it exceeds a quota. now: seconds since 1970. limited: what of this
    resource requires a quota.
    """
    measure = measure_of(request.resource)
    new = request.new
    concerned = [_concerns(measure, each, new) for each in quotas]
    for quota, is_concerned in zip(quotas, concerned, strict=True):
        if is_concerned:
            _check_quota(measure, quota, request)
    use = measure.usage(new, now)
    if negative := resources.negative(use):
        names = ",".join(sorted(negative))
        raise request.forbidden(f"quota usage is negative for resource(s): {names}")
    old = request.old if request.operation == UPDATE else None
    more = use if old is None else resources.subtract_to_zero(use, measure.usage(old, now))
    if limited and not resources.is_zero(more):
        covering = [quota for quota, each in zip(quotas, concerned, strict=True) if each]
        _check_covered(measure, limited, request, more, quotas, covering)
    charged: list[Object] = []
    for quota, is_concerned in zip(quotas, concerned, strict=True):
        if not is_concerned:
            charged.append(quota)
            continue
        was_counted = old is not None and _concerns(measure, quota, old)
        charged.append(_charged(quota, more if was_counted else use, request))
    return charged


def _check_covered(
    measure: Measure,
    limited: Sequence[LimitedResource],
    request: AdmissionRequest,
    use: Mapping[str, str],
    quotas: Sequence[Object],
    covering: Sequence[Object],
) -> None:
    """Check that quotas cover what requires one."""
    counted = {name for quota in covering for name in measure.names(list(_hard_of(quota)))}
    names = limited_names(limited, use) - counted
    if names:
        raise request.forbidden(f"insufficient quota to consume: {','.join(sorted(names))}")
    scopes = [scope for quota in quotas for scope in scopes_of(quota)]
    if left := uncovered_scopes(limited, measure, request.new, scopes):
        text = f"insufficient quota to match these scopes: {shown_scopes(left)}"
        raise request.forbidden(text)


def used_of(quota: Object) -> Amounts:
    """Return the current usage."""
    return (quota.get("status") or {}).get("used") or {}


def _hard_of(quota: Object) -> Amounts:
    return (quota.get("status") or {}).get("hard") or {}


def _concerns(measure: Measure, quota: Object, obj: Object) -> bool:
    if not measure.names(list(_hard_of(quota))):
        return False
    return all(measure.is_in(scope, obj) for scope in scopes_of(quota))


def _check_quota(measure: Measure, quota: Object, request: AdmissionRequest) -> None:
    name, names = quota["metadata"]["name"], measure.names(list(_hard_of(quota)))
    if demands := measure.demands(names, request.new):
        raise request.forbidden(f"failed quota: {name}: {demands}")
    if any(each not in used_of(quota) for each in names):
        unknown = ",".join(sorted(names))
        raise request.forbidden(f"status unknown for quota: {name}, resources: {unknown}")


def _charged(quota: Object, use: Mapping[str, str], request: AdmissionRequest) -> Object:
    hard, used = _hard_of(quota), used_of(quota)
    charges = {
        name: amount
        for name, amount in resources.mask(use, hard).items()
        if not resources.is_zero({name: amount})
    }
    if not charges:
        return quota
    after = resources.add(used, charges)
    exceeded = resources.exceeds(resources.mask(after, charges), hard)
    if exceeded and request.subresource != "status":
        shown = (_amounts_text(resources.mask(each, exceeded)) for each in (charges, used, hard))
        raise request.forbidden(
            "exceeded quota: {}, requested: {}, used: {}, limited: {}".format(
                quota["metadata"]["name"], *shown
            )
        )
    return {**quota, "status": {**(quota.get("status") or {}), "used": after}}


def _amounts_text(amounts: Mapping[str, str]) -> str:
    pairs: Iterable[str] = (f"{name}={amounts[name]}" for name in sorted(amounts))
    return ",".join(pairs)
