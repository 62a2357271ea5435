"""Permissions for the status of claims: the scheduler's, and drivers' for their devices."""

from typing import Any, Final

from kvstack.apimachinery.objects.field_errors import FieldError, forbidden
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import name_is_dns_subdomain
from kvstack.apimachinery.objects.text.go_text import go_plain, quote
from kvstack.apimachinery.well_known import NODE_NAME_EXTRA
from kvstack.apiserver.kinds.access import AccessRequest
from kvstack.apiserver.kinds.devices.declared import TYPES
from kvstack.apiserver.kinds.equality import same
from kvstack.apiserver.kinds.strategy import Context

_GROUP: Final = "resource.k8s.io"
_RESOURCE: Final = "resourceclaims"
_ACCOUNT: Final = "system:serviceaccount:"
_STATUS: Final = f"{TYPES}.ResourceClaimStatus"
_IDENTITY: Final = ("driver", "pool", "device", "shareID")


def binding_errors(status: Object, before: Object, context: Context) -> list[FieldError]:
    """Return the error of a user who may not allocate or reserve."""
    names = ("allocation", "reservedFor")
    if _same_parts(status, before, names):
        return []
    request = _request(context.verb, "binding")
    if context.access.is_allowed(request):
        return []
    detail = (
        "changing status.allocation or status.reservedFor requires"
        f' resource="resourceclaims/binding", verb="{context.verb}" permission:'
        f" {_refusal(request, context)}"
    )
    return [forbidden("status.allocation", detail)]


def device_errors(status: Object, before: Object, context: Context) -> list[FieldError]:
    """Return the errors of a user who may not write the status of some drivers' devices."""
    errors: list[FieldError] = []
    verbs = [f"arbitrary-node:{context.verb}"]
    if _is_on_node(context, _node_of(status.get("allocation") or {})):
        verbs.insert(0, f"associated-node:{context.verb}")
    for driver in sorted(_changed_drivers(status, before)):
        requests = [
            _request(verb, "driver", namespace=context.namespace, name=driver) for verb in verbs
        ]
        if not any(context.access.is_allowed(each) for each in requests):
            detail = (
                'changing status.devices requires resource="resourceclaims/driver",'
                f' verb="{go_plain(verbs)}" permission: {_refusal(requests[0], context)}'
            )
            errors.append(forbidden("status.devices", detail))
    return errors


def _same_parts(status: Object, before: Object, names: tuple[str, ...]) -> bool:
    one, other = ({name: each[name] for name in names if name in each} for each in (status, before))
    return same(one, other, _STATUS)


def _request(verb: str, subresource: str, *, namespace: str = "", name: str = "") -> AccessRequest:
    return AccessRequest(verb, _GROUP, "v1", _RESOURCE, namespace, name, subresource)


def _refusal(request: AccessRequest, context: Context) -> str:
    name = f" {quote(request.name)}" if request.name else ""
    where = (
        f"in the namespace {quote(request.namespace)}"
        if request.namespace
        else "at the cluster scope"
    )
    return (
        f"{_RESOURCE}.{_GROUP}{name} is forbidden: User {quote(context.user)} cannot {request.verb}"
        f' resource "{_RESOURCE}/{request.subresource}" in API group "{_GROUP}" {where}'
    )


def _changed_drivers(status: Object, before: Object) -> set[str]:
    """Return the drivers whose device status changed."""
    old = {_identity(each): each for each in before.get("devices") or ()}
    new = {_identity(each): each for each in status.get("devices") or ()}
    return {
        identity[0]
        for identity in old.keys() | new.keys()
        if old.get(identity) != new.get(identity)
    }


def _identity(device: Object) -> tuple[Any, ...]:
    return tuple(device.get(name) or "" for name in _IDENTITY)


def _node_of(allocation: Object) -> str:
    """Return the one node of an allocation; empty: it has not exactly one."""
    terms = (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or []
    if len(terms) != 1 or terms[0].get("matchExpressions"):
        return ""
    fields = terms[0].get("matchFields") or []
    if len(fields) != 1:
        return ""
    field = fields[0]
    values = field.get("values") or []
    is_name = field.get("key") == "metadata.name" and field.get("operator") == "In"
    return values[0] if is_name and len(values) == 1 else ""


def _is_on_node(context: Context, node: str) -> bool:
    """Return whether the user is a ServiceAccount of a pod on the node."""
    names = context.extra.get(NODE_NAME_EXTRA) or ()
    parts = context.user.removeprefix(_ACCOUNT).split(":")
    is_account = context.user.startswith(_ACCOUNT) and len(parts) == 2
    if not node or not is_account or list(names) != [node]:
        return False
    return not name_is_dns_subdomain(node, False)
