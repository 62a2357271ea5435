"""Validation of pod templates.

    check_template(errors, {"metadata": …, "spec": …}, "spec.template", context)

A template is checked like a pod, except for what only a pod has: its name, its own defaults.
"""

from collections.abc import Callable

from kvstack.apimachinery.objects.field_errors import FieldError, child, forbidden
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.metadata import validate_annotations, validate_labels
from kvstack.apiserver.kinds.pods.annotations import check_annotations, check_matching_profiles
from kvstack.apiserver.kinds.pods.faults import tolerances_of
from kvstack.apiserver.kinds.pods.scope import SpecScope
from kvstack.apiserver.kinds.pods.spec import check_spec
from kvstack.apiserver.kinds.pods.tolerances import NO_TOLERANCES, Tolerances
from kvstack.apiserver.kinds.rules import Errors
from kvstack.apiserver.kinds.strategy import Context


def check_template(
    errors: Errors,
    template: Object,
    path: str,
    context: Context,
    tolerances: Tolerances = NO_TOLERANCES,
) -> None:
    """Check a pod template."""
    metadata = template.get("metadata") or {}
    spec = template.get("spec") or {}
    spec_path = child(path, "spec")
    labels, annotations = metadata.get("labels"), metadata.get("annotations")
    if labels:
        errors += validate_labels(child(path, "labels"), labels)
    scope = SpecScope(
        spec,
        spec_path,
        errors,
        tolerances,
        is_pod=False,
        allow_privileged=context.allow_privileged,
    )
    if annotations:
        annotations_path = child(path, "annotations")
        errors += validate_annotations(annotations_path, annotations)
        check_annotations(scope, annotations, annotations_path)
    check_spec(scope)
    if annotations:
        check_matching_profiles(scope, annotations)
    if spec.get("ephemeralContainers"):
        message = "ephemeral containers not allowed in pod template"
        errors.append(forbidden(child(spec_path, "ephemeralContainers"), message))


def check_with_tolerances(
    check: Callable[[Tolerances], list[FieldError]], old_template: Object | None
) -> list[FieldError]:
    """Return the errors of a check, without those that the old template already had.

    Most updates have no errors, so the faults of the old template are only computed if there are
    some.
    """
    errors = check(NO_TOLERANCES)
    if errors and old_template is not None:
        metadata = old_template.get("metadata") or {}
        spec = old_template.get("spec") or {}
        tolerances = tolerances_of(spec, metadata.get("annotations"))
        if tolerances != NO_TOLERANCES:
            return check(tolerances)
    return errors
