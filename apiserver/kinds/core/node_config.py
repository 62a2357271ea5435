"""Validation of dynamic kubelet configuration, which was removed."""

from typing import Final

from kvstack.apimachinery.objects.field_errors import child, forbidden, invalid
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import (
    check_config_key,
    check_dns_label,
    check_dns_subdomain,
)
from kvstack.apiserver.kinds.rules import Errors, all_of, inside, needs, needs_formatted


def check_config_source(errors: Errors, path: str, source: Object) -> None:
    """Check `spec.configSource`."""
    _in_spec(source, path, errors)
    _check_given(source, path, errors)


def check_config_status(errors: Errors, path: str, status: Object) -> None:
    """Check `status.config`."""
    for each in ("assigned", "active", "lastKnownGood"):
        source = status.get(each)
        if source is not None:
            _in_status(source, child(path, each), errors)
            _check_given(source, child(path, each), errors)


def _check_unset(source: Object, path: str, errors: Errors) -> None:
    errors.extend(
        forbidden(child(path, each), f"{each} must not be set in spec")
        for each in ("uid", "resourceVersion")
        if source.get(each)
    )


def _check_given(source: Object, path: str, errors: Errors) -> None:
    if source.get("configMap") is None:
        detail = "exactly one reference subfield must be non-nil"
        errors.append(invalid(path, {"ConfigMap": None}, detail))


_REFERENCE: Final = all_of(
    needs_formatted("namespace", check_dns_label),
    needs_formatted("name", check_dns_subdomain),
    needs_formatted("kubeletConfigKey", check_config_key),
)
_in_spec: Final = inside("configMap", all_of(_check_unset, _REFERENCE))
_in_status: Final = inside("configMap", all_of(needs("uid", "resourceVersion"), _REFERENCE))
