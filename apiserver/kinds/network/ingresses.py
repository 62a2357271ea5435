"""Ingresses: which host and path leads to which Service."""

from collections.abc import Callable
from typing import Any, Final

from kvstack.apiserver.kinds.generation import raise_generation
from kvstack.apiserver.kinds.network.load_balancers import (
    check_host,
    check_load_balancer_status,
    shown_addresses,
    status_warnings,
)
from kvstack.apiserver.kinds.rules import Errors, add_invalid, each, formatted, needs_formatted
from kvstack.apiserver.kinds.strategy import Context, Obj, Strategy
from kvstack.apiserver.objects.addresses import parse_ip
from kvstack.apiserver.objects.field_errors import (
    FieldError,
    child,
    index,
    invalid,
    not_supported,
    required,
)
from kvstack.apiserver.objects.go_text import JsonText
from kvstack.apiserver.objects.names import (
    check_dns_label,
    check_dns_subdomain,
    check_path_segment,
    check_port_name,
    check_port_number,
    check_wildcard_dns_subdomain,
)
from kvstack.apiserver.objects.times import age

CLASS_ANNOTATION: Final = "kubernetes.io/ingress.class"

_PATH_TYPES: Final = ("Exact", "ImplementationSpecific", "Prefix")
_BAD_SEQUENCES: Final = ("//", "/./", "/../", "%2f", "%2F")
_BAD_ENDINGS: Final = ("/..", "/.")


def _prepare_create(obj: Obj, _context: Context) -> None:
    obj["status"] = {"loadBalancer": {}}
    obj["metadata"]["generation"] = 1


def _prepare_update(new: Obj, old: Obj, _context: Context) -> None:
    new["status"] = old["status"]
    raise_generation(new, old, "spec")


def _prepare_status(new: Obj, old: Obj, _context: Context) -> None:
    new["spec"] = old["spec"]
