"""IngressClasses: the controller of Ingresses, and its parameters."""

from typing import Any, Final

from kvstack.apimachinery.objects.field_checks import domain_prefixed_path, immutable
from kvstack.apimachinery.objects.field_errors import (
    REQUIRED,
    FieldError,
    child,
    forbidden,
    not_supported,
    required,
    too_long,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import check_dns_label, length
from kvstack.apimachinery.objects.times import age
from kvstack.apimachinery.well_known import DEFAULT_INGRESS_CLASS_ANNOTATION
from kvstack.apiserver.kinds.generation import raise_generation, set_first_generation
from kvstack.apiserver.kinds.network.ingresses import check_reference
from kvstack.apiserver.kinds.rules import Errors, add_invalid
from kvstack.apiserver.kinds.strategy import Context, Strategy

CLUSTER: Final = "Cluster"
NAMESPACE: Final = "Namespace"

_SPEC: Final = "io.k8s.api.networking.v1.IngressClassSpec"
_CONTROLLER_BYTES_MAX: Final = 250


def _default(obj: Object) -> None:
    parameters = obj.get("spec", {}).get("parameters")
    if parameters is not None and parameters.get("scope") is None:
        parameters["scope"] = CLUSTER


def _prepare_update(new: Object, old: Object, _context: Context) -> None:
    raise_generation(new, old, _SPEC)


def _validate(obj: Object, _context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    spec = obj.get("spec", {})
    controller = spec.get("controller", "")
    if length(controller) > _CONTROLLER_BYTES_MAX:
        errors.append(too_long("spec.controller", _CONTROLLER_BYTES_MAX))
    errors.extend(domain_prefixed_path("spec.controller", controller))
    parameters = spec.get("parameters")
    if parameters is not None:
        _check_parameters(parameters, "spec.parameters", errors)
    return errors


def _validate_update(new: Object, old: Object, context: Context) -> list[FieldError]:
    controller, before = (each.get("spec", {}).get("controller", "") for each in (new, old))
    return immutable("spec.controller", controller, before) + _validate(new, context)


def _check_parameters(parameters: Object, path: str, errors: Errors) -> None:
    found: Errors = []
    check_reference(parameters, path, found)
    # Errors of the schema come last.
    errors.extend(each for each in found if each.reason != REQUIRED)
    _check_scope(parameters, path, errors)
    errors.extend(each for each in found if each.reason == REQUIRED)


def _check_scope(parameters: Object, path: str, errors: Errors) -> None:
    scope, namespace = parameters.get("scope"), parameters.get("namespace")
    namespace_path = child(path, "namespace")
    if scope == NAMESPACE:
        if namespace is None:
            detail = "`parameters.scope` is set to 'Namespace'"
            errors.append(required(namespace_path, detail))
        else:
            add_invalid(errors, namespace_path, namespace, check_dns_label(namespace))
    elif scope == CLUSTER:
        if namespace is not None:
            errors.append(forbidden(namespace_path, "`parameters.scope` is set to 'Cluster'"))
    else:
        errors.append(not_supported(child(path, "scope"), scope, (CLUSTER, NAMESPACE)))


def _cells(obj: Object, now: float) -> list[Any]:
    metadata, spec = obj["metadata"], obj.get("spec", {})
    is_default = (metadata.get("annotations") or {}).get(DEFAULT_INGRESS_CLASS_ANNOTATION) == "true"
    return [
        f"{metadata['name']} (default)" if is_default else metadata["name"],
        spec.get("controller", ""),
        _parameters(spec.get("parameters")),
        age(metadata.get("creationTimestamp"), now),
    ]


def _parameters(parameters: Object | None) -> str:
    if parameters is None:
        return "<none>"
    group = parameters.get("apiGroup")
    kind = parameters.get("kind", "")
    return f"{kind if group is None else f'{kind}.{group}'}/{parameters.get('name', '')}"


INGRESS_CLASSES: Final = Strategy(
    default=_default,
    prepare_create=set_first_generation,
    prepare_update=_prepare_update,
    validate=_validate,
    validate_update=_validate_update,
    has_generation=True,
    cells=_cells,
)
