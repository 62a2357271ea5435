"""DeviceClasses: sets of devices that claims select by name."""

from typing import Any, Final

from kvstack.apimachinery.objects.field_errors import FieldError, invalid
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.times import age
from kvstack.apiserver.kinds.devices.declared import DECLARED, TYPES
from kvstack.apiserver.kinds.devices.names import name_of_class
from kvstack.apiserver.kinds.devices.parts import (
    check_configuration,
    check_items,
    check_selectors,
)
from kvstack.apiserver.kinds.generation import raise_generation, set_first_generation
from kvstack.apiserver.kinds.resource_names import is_extended
from kvstack.apiserver.kinds.strategy import Context, Strategy

_CLASS: Final = f"{TYPES}.DeviceClass"
_SPEC: Final = f"{TYPES}.DeviceClassSpec"
_CONFIG_MAX: Final = 32


def _default(obj: Object) -> None:
    obj.setdefault("spec", {})


def _prepare_update(new: Object, old: Object, _context: Context) -> None:
    raise_generation(new, old, _SPEC)


def _validate(obj: Object, context: Context) -> list[FieldError]:
    return DECLARED.merge(_errors(obj, None, context), obj, None, _CLASS)


def _validate_update(new: Object, old: Object, context: Context) -> list[FieldError]:
    return DECLARED.merge(_errors(new, old, context), new, old, _CLASS)


def _errors(obj: Object, old: Object | None, context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    spec = obj["spec"]
    selectors, config = spec.get("selectors") or [], spec.get("config") or []
    has_old = old is not None
    before: Object = {} if old is None else old["spec"]
    is_stored = has_old and selectors == (before.get("selectors") or [])
    check_selectors(selectors, "spec.selectors", errors, context, is_stored=is_stored)
    is_config_stored = has_old and config == (before.get("config") or [])

    def check(each: Object, path: str) -> None:
        check_configuration(each, path, errors, is_stored=is_config_stored)

    check_items(config, _CONFIG_MAX, "spec.config", errors, check)
    name = spec.get("extendedResourceName")
    if name is not None and not is_extended(name):
        path, detail = "spec.extendedResourceName", "must be a valid extended resource name"
        errors.append(invalid(path, name, detail)._replace(covered=True))
    return errors


def _cells(obj: Object, now: float) -> list[Any]:
    metadata = obj["metadata"]
    return [metadata["name"], age(metadata.get("creationTimestamp"), now)]


CLASSES: Final = Strategy(
    default=_default,
    prepare_create=set_first_generation,
    prepare_update=_prepare_update,
    validate=_validate,
    validate_update=_validate_update,
    check_name=name_of_class,
    has_generation=True,
    cells=_cells,
)
