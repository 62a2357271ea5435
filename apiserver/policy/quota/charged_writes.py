"""Writes that may change quota usage: they are charged, all others are not."""

from collections.abc import Callable
from typing import Final

from kvstack.apimachinery.objects.core.group_resources import (
    CLAIMS,
    DEVICE_CLAIMS,
    PODS,
    SERVICES,
)
from kvstack.apimachinery.quota.scopes import attributes_classes, is_terminating
from kvstack.apimachinery.quota.usage import allocated_storage
from kvstack.apiserver.policy.admission.request import CREATE, UPDATE, AdmissionRequest


def may_change_usage(request: AdmissionRequest) -> bool:
    """Return whether the write may change the usage of its object."""
    return _RULES.get(request.resource, _is_creation)(request)


def _is_creation(request: AdmissionRequest) -> bool:
    return request.operation == CREATE and not request.subresource


def _is_write(request: AdmissionRequest) -> bool:
    return not request.subresource and request.operation in {CREATE, UPDATE}


def _changes_pod(request: AdmissionRequest) -> bool:
    if request.subresource == "resize":
        return request.operation == UPDATE
    if request.subresource or request.operation == CREATE:
        return not request.subresource
    return is_terminating(request.new) != is_terminating(request.old or {})


def _changes_claim(request: AdmissionRequest) -> bool:
    if request.subresource != "status":
        return _is_write(request)
    old = request.old or {}
    return allocated_storage(request.new) != allocated_storage(old) or attributes_classes(
        request.new
    ) != attributes_classes(old)


_RULES: Final[dict[object, Callable[[AdmissionRequest], bool]]] = {
    CLAIMS: _changes_claim,
    DEVICE_CLAIMS: _is_write,
    PODS: _changes_pod,
    SERVICES: _is_write,
}
