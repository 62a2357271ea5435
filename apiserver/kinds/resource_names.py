"""Names of countable resources: cpu, memory, storage, objects, devices.

    cpu                      native, standard, for containers and quotas
    hugepages-2Mi            native, never overcommitted
    requests.nvidia.com/gpu  an extended resource as a quota names it
    example.com/foo          extended: counted in whole pieces

A check adds errors about a resource name, or about a quantity of a named resource, to a list.
Quantities are canonical.
"""

from typing import Final

from kvstack.apimachinery.objects.core.pod_resources import (
    HUGE_PAGES_PREFIX,
    is_huge_pages,
    is_native,
)
from kvstack.apimachinery.objects.field_errors import invalid
from kvstack.apimachinery.objects.names import NEGATIVE, check_label_key
from kvstack.apimachinery.objects.quantity import parse
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apiserver.kinds.rules import Errors

REQUESTS_PREFIX: Final = "requests."
NOT_WHOLE: Final = "must be an integer"

_CONTAINER: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_OBJECTS: Final = frozenset({
    "pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "configmaps",
    "persistentvolumeclaims", "services.nodeports", "services.loadbalancers",
})  # fmt: skip
_QUOTA: Final = _CONTAINER | _OBJECTS | {
    "requests.cpu", "requests.memory", "requests.storage", "requests.ephemeral-storage",
    "limits.cpu", "limits.memory", "limits.ephemeral-storage",
}  # fmt: skip
_STANDARD: Final = _QUOTA | {"storage"}


def is_extended(name: str) -> bool:
    """Return whether it is an extended resource, counted in whole units."""
    if is_native(name) or name.startswith(REQUESTS_PREFIX):
        return False
    return not check_label_key(REQUESTS_PREFIX + name)


def is_counted(name: str) -> bool:
    """Return whether quantities of the resource are whole numbers."""
    return name in _OBJECTS or is_extended(name)


def can_be_overcommitted(name: str) -> bool:
    """Return whether the limit of the resource may be above its request."""
    return is_native(name) and not is_huge_pages(name)


def is_quota_resource(name: str) -> bool:
    """Return whether the name, which has no prefix, is a resource of quotas."""
    return name in _QUOTA or _is_quota_huge_pages(name)


def check_resource_name(errors: Errors, path: str, name: str) -> None:
    """Check the name of any resource."""
    if name in _STANDARD:
        return
    messages = check_label_key(name)
    if not messages and "/" not in name and not (name in _STANDARD or _is_quota_huge_pages(name)):
        messages = ["must be a standard resource type or fully qualified"]
    _add(errors, path, name, messages)


def check_container_resource_name(errors: Errors, path: str, name: str) -> None:
    """Check the name of a container resource."""
    if name in _CONTAINER:
        return
    check_resource_name(errors, path, name)
    if "/" not in name:
        if name not in _CONTAINER and not is_huge_pages(name):
            _add(errors, path, name, ["must be a standard resource for containers"])
    elif not is_native(name) and not is_extended(name):
        _add(errors, path, name, ["doesn't follow extended resource name standard"])


def check_quota_resource_name(errors: Errors, path: str, name: str) -> None:
    """Check the name of a quota resource."""
    check_resource_name(errors, path, name)
    if "/" not in name and not is_quota_resource(name):
        _add(errors, path, name, ["must be a standard resource for quota"])


def check_amount(errors: Errors, path: str, name: str, amount: str) -> None:
    """Check a quantity of a resource: not negative, and whole if it is counted."""
    quantity = parse(amount)
    if quantity.sign < 0:
        errors.append(invalid(path, amount, NEGATIVE))
    if quantity.milli_value() % 1000 and is_counted(name):
        errors.append(invalid(path, amount, NOT_WHOLE))


def _is_quota_huge_pages(name: str) -> bool:
    return name.startswith((HUGE_PAGES_PREFIX, REQUESTS_PREFIX + HUGE_PAGES_PREFIX))


def _add(errors: Errors, path: str, name: str, messages: list[str]) -> None:
    errors.extend(invalid(path, JsonText(name), message) for message in messages)
