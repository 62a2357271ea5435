"""The subresource `ephemeralcontainers`: adds containers to a running pod."""

from typing import Final

from kvstack.apimachinery.objects.field_errors import FieldError, forbidden
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apimachinery.well_known import MIRROR_ANNOTATION
from kvstack.apiserver.kinds.equality import same
from kvstack.apiserver.kinds.internal_values import internal_diff
from kvstack.apiserver.kinds.pods.preparation import drop_disabled, keep_metadata, raise_generation
from kvstack.apiserver.kinds.pods.tolerances import Tolerances
from kvstack.apiserver.kinds.pods.validation import (
    annotations_of,
    check_forgiving,
    checked_update,
)
from kvstack.apiserver.kinds.strategy import Context

_FIELD: Final = "ephemeralContainers"
_PATH: Final = "spec.ephemeralContainers"
_TYPE: Final = "io.k8s.api.core.v1.EphemeralContainer"


def prepare_update(new: Object, old: Object, _context: Context) -> None:
    """Keep everything but the ephemeral containers."""
    containers = (new.get("spec") or {}).get(_FIELD)
    spec = {name: value for name, value in (old.get("spec") or {}).items() if name != _FIELD}
    if containers:
        spec[_FIELD] = containers
    new["spec"] = spec
    new["status"] = old.get("status", {})
    keep_metadata(new, old)
    drop_disabled(new, old)
    raise_generation(new, old)


def validate_update(new: Object, old: Object, context: Context) -> list[FieldError]:
    """Return the errors of the pod with the added containers."""
    if MIRROR_ANNOTATION in annotations_of(old):
        return [forbidden("", "static pods do not support ephemeral containers")]

    def check(tolerances: Tolerances) -> list[FieldError]:
        errors = checked_update(new, old, context, tolerances)
        containers = {each.get("name", ""): each for each in new["spec"].get(_FIELD) or ()}
        for before in old["spec"].get(_FIELD) or ():
            name = before.get("name", "")
            now = containers.get(name)
            prefix = f"existing ephemeral containers {quote(name)} may not be"
            if now is None:
                errors.append(forbidden(_PATH, f"{prefix} removed\n"))
            elif not same(before, now, _TYPE):
                errors.append(
                    forbidden(_PATH, f"{prefix} changed\n{internal_diff(before, now, _TYPE)}")
                )
        return errors

    return check_forgiving(check, old)
