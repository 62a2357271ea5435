"""PodTemplates: standalone pod templates."""

from typing import Final

from kvstack.apimachinery.objects.field_errors import FieldError
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.kinds.equality import same
from kvstack.apiserver.kinds.pods.defaults import default_template
from kvstack.apiserver.kinds.pods.disabled_fields import drop_disabled_template_fields
from kvstack.apiserver.kinds.pods.templates import check_template, check_with_tolerances
from kvstack.apiserver.kinds.pods.tolerances import NO_TOLERANCES, Tolerances
from kvstack.apiserver.kinds.pods.warnings import template_warnings
from kvstack.apiserver.kinds.strategy import Context, Strategy
from kvstack.apiserver.kinds.workloads.cells import pod_template_cells
from kvstack.apiserver.kinds.workloads.pod_owners import raise_generation

_TYPE: Final = "io.k8s.api.core.v1.PodTemplateSpec"


def _default(obj: Object) -> None:
    default_template(obj.setdefault("template", {}))


def _prepare_create(obj: Object, _context: Context) -> None:
    obj["metadata"]["generation"] = 1
    drop_disabled_template_fields(obj["template"], None)


def _prepare_update(new: Object, old: Object, _context: Context) -> None:
    drop_disabled_template_fields(new["template"], old["template"])
    if not same(new["template"], old["template"], _TYPE):
        raise_generation(new, old)


def _validate(obj: Object, context: Context) -> list[FieldError]:
    return _errors(obj, context, NO_TOLERANCES)


def _validate_update(new: Object, old: Object, context: Context) -> list[FieldError]:
    return check_with_tolerances(
        lambda tolerances: _errors(new, context, tolerances), old["template"]
    )


def _errors(obj: Object, context: Context, tolerances: Tolerances) -> list[FieldError]:
    errors: list[FieldError] = []
    check_template(errors, obj["template"], "template", context, tolerances)
    return errors


def _warnings(obj: Object, _context: Context) -> list[str]:
    return template_warnings(obj["template"], "template")


def _update_warnings(new: Object, old: Object, context: Context) -> list[str]:
    if new["metadata"].get("generation") == old["metadata"].get("generation"):
        return []
    return _warnings(new, context)


POD_TEMPLATES: Final = Strategy(
    default=_default,
    prepare_create=_prepare_create,
    prepare_update=_prepare_update,
    validate=_validate,
    validate_update=_validate_update,
    warnings=_warnings,
    update_warnings=_update_warnings,
    has_generation=True,
    cells=pod_template_cells,
)
