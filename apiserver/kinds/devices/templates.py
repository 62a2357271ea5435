"""ResourceClaimTemplates: claims that are created for each pod."""

from typing import Any, Final

from kvstack.apimachinery.objects.field_errors import FieldError, invalid
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import IMMUTABLE
from kvstack.apimachinery.objects.times import age
from kvstack.apiserver.kinds.claim_specs import check_template_metadata
from kvstack.apiserver.kinds.devices.claim_specs import (
    admin_request_errors,
    claim_spec_errors,
    default_claim_spec,
    drop_disabled_fields,
)
from kvstack.apiserver.kinds.devices.conversion import TEMPLATE
from kvstack.apiserver.kinds.devices.declared import DECLARED, TYPES
from kvstack.apiserver.kinds.equality import same
from kvstack.apiserver.kinds.internal_values import internal_value
from kvstack.apiserver.kinds.strategy import Context, Strategy

_TEMPLATE: Final = f"{TYPES}.ResourceClaimTemplate"
_SPEC: Final = f"{TYPES}.ResourceClaimTemplateSpec"


def _default(obj: Object) -> None:
    default_claim_spec(obj.setdefault("spec", {}).setdefault("spec", {}))


def _prepare_create(obj: Object, _context: Context) -> None:
    drop_disabled_fields(obj["spec"]["spec"], None)


def _prepare_update(new: Object, old: Object, _context: Context) -> None:
    drop_disabled_fields(new["spec"]["spec"], old["spec"]["spec"])


def _errors(obj: Object, context: Context) -> list[FieldError]:
    spec = obj["spec"]
    errors: list[FieldError] = []
    check_template_metadata(spec.get("metadata") or {}, "spec.metadata", errors)
    return errors + claim_spec_errors(spec["spec"], "spec.spec", context)


def _validate(obj: Object, context: Context) -> list[FieldError]:
    errors = admin_request_errors(obj["spec"]["spec"], context) + _errors(obj, context)
    return DECLARED.merge(errors, obj, None, _TEMPLATE)


def _validate_update(new: Object, old: Object, context: Context) -> list[FieldError]:
    errors = _errors(new, context)
    if not same(new["spec"], old["spec"], _SPEC):
        errors.append(invalid("spec", internal_value(new["spec"], _SPEC), IMMUTABLE))
    return DECLARED.merge(errors, new, old, _TEMPLATE)


def _cells(obj: Object, now: float) -> list[Any]:
    metadata = obj["metadata"]
    return [metadata["name"], age(metadata.get("creationTimestamp"), now)]


CLAIM_TEMPLATES: Final = Strategy(
    default=_default,
    prepare_create=_prepare_create,
    prepare_update=_prepare_update,
    validate=_validate,
    validate_update=_validate_update,
    cells=_cells,
    conversions={"v1beta1": TEMPLATE},
)
