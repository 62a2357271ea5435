"""ReplicationControllers, the predecessors of ReplicaSets; the selector is a map, and may change.

Some errors come last, as in upstream's declarative validation.
"""

from typing import Final

from kvstack.apimachinery.objects import labels
from kvstack.apimachinery.objects.field_errors import FieldError, invalid, not_found, required
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import check_dns_subdomain
from kvstack.apiserver.kinds.pods.defaults import default_template
from kvstack.apiserver.kinds.pods.templates import check_template, check_with_tolerances
from kvstack.apiserver.kinds.pods.tolerances import NO_TOLERANCES, Tolerances
from kvstack.apiserver.kinds.pods.warnings import name_warnings, template_warnings
from kvstack.apiserver.kinds.rules import Errors, check_not_negative
from kvstack.apiserver.kinds.strategy import Context, Deletion, Strategy, with_status
from kvstack.apiserver.kinds.workloads.cells import replication_controller_cells
from kvstack.apiserver.kinds.workloads.pod_owners import (
    TEMPLATE_PATH,
    check_labels,
    check_runs_forever,
    prepare_create,
    prepare_status,
    prepare_update_of,
    template_of,
)
from kvstack.apiserver.kinds.workloads.replica_sets import REPLICA_COUNTS, replicas_selectable

_CHARACTERS: Final = "253 characters"
_BYTES: Final = "253 bytes"
_LOST: Final = "non-convertible.kubernetes.io"


def _default(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    template = spec.get("template")
    if template is not None:
        default_template(template)
        own = (template.get("metadata") or {}).get("labels")
        metadata = obj.setdefault("metadata", {})
        if own is not None:
            if not spec.get("selector"):
                spec["selector"] = dict(own)
            if not metadata.get("labels"):
                metadata["labels"] = dict(own)
    spec.setdefault("replicas", 1)


def _any_name(_name: str, _is_prefix: bool) -> list[str]:  # noqa: FBT001 — CheckName
    """Return no errors: names are checked after the rest."""
    return []


def _validate(obj: Object, context: Context) -> list[FieldError]:
    errors = _spec_errors(obj, context, NO_TOLERANCES)
    name = obj["metadata"].get("name")
    if name:
        messages = (each.replace(_CHARACTERS, _BYTES) for each in check_dns_subdomain(name))
        errors += [invalid("metadata.name", name, each) for each in messages]
    return errors


def _validate_update(new: Object, old: Object, context: Context) -> list[FieldError]:
    errors = check_with_tolerances(
        lambda tolerances: _spec_errors(new, context, tolerances), old["spec"].get("template")
    )
    _check_lost_fields(errors, new, old)
    return errors


def _check_lost_fields(errors: Errors, new: Object, old: Object) -> None:
    """Check fields of a removed version that this one cannot represent."""
    annotations = old["metadata"].get("annotations") or {}
    for name in sorted(annotations):
        prefix, _, field = name.partition("/")
        if not prefix.startswith(_LOST) or not field or "/" in field:
            continue
        selector = new["spec"].get("selector")
        if "selector" not in field:
            lost = not_found(field, annotations[name])
            errors.append(lost._replace(body=f"{lost.body}: unknown non-convertible field"))
        elif selector != old["spec"].get("selector"):
            message = "cannot update non-convertible selector"
            errors.append(invalid("spec.selector", dict(sorted((selector or {}).items())), message))


def _spec_errors(obj: Object, context: Context, tolerances: Tolerances) -> list[FieldError]:
    errors: list[FieldError] = []
    spec = obj["spec"]
    if not spec.get("selector"):
        errors.append(required("spec.selector"))
    template = spec.get("template")
    if template is None:
        errors.append(required(TEMPLATE_PATH))
    else:
        selector = labels.from_map(spec.get("selector") or {})
        if not selector.is_everything:
            check_labels(errors, selector, template, TEMPLATE_PATH)
        check_template(errors, template, TEMPLATE_PATH, context, tolerances)
        check_runs_forever(errors, template, TEMPLATE_PATH, "ReplicationController")
    _check_counts(errors, spec)
    return errors


def _check_counts(errors: Errors, spec: Object) -> None:
    check_not_negative(errors, "spec.replicas", spec.get("replicas"))
    check_not_negative(errors, "spec.minReadySeconds", spec.get("minReadySeconds", 0))


def _validate_status(new: Object, _old: Object, _context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    REPLICA_COUNTS.check(errors, new.get("status") or {})
    return errors


def _warnings(obj: Object, _context: Context) -> list[str]:
    return name_warnings(obj) + template_warnings(template_of(obj), TEMPLATE_PATH)


def _update_warnings(new: Object, old: Object, _context: Context) -> list[str]:
    if new["metadata"].get("generation") == old["metadata"].get("generation"):
        return []
    # Upstream checks the stored template here.
    return template_warnings(template_of(old), TEMPLATE_PATH)


REPLICATION_CONTROLLERS: Final = with_status(
    Strategy(
        default=_default,
        prepare_create=prepare_create,
        prepare_update=prepare_update_of("io.k8s.api.core.v1.ReplicationControllerSpec"),
        validate=_validate,
        validate_update=_validate_update,
        warnings=_warnings,
        update_warnings=_update_warnings,
        check_name=_any_name,
        has_generation=True,
        deletion=Deletion(orphans_by_default=True),
        selectable=replicas_selectable,
        cells=replication_controller_cells,
    ),
    prepare_update=prepare_status,
    validate_update=_validate_status,
)
