"""Validation of pods: on creation, and changes by an update.

An update may change images, shorten the deadline, add tolerations and remove scheduling gates;
while the pod is gated it may also narrow its node selection. All other differences are reported in
one error with a diff of the specs.
"""

from collections.abc import Callable, Mapping
from typing import Final

from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    forbidden,
    index,
    invalid,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import NEGATIVE, between
from kvstack.apimachinery.well_known import MIRROR_ANNOTATION
from kvstack.apiserver.kinds.equality import same
from kvstack.apiserver.kinds.internal_values import internal_diff, internal_value
from kvstack.apiserver.kinds.pods.annotations import (
    check_annotation_changes,
    check_annotations,
    check_matching_profiles,
)
from kvstack.apiserver.kinds.pods.containers.validation import check_image_spaces
from kvstack.apiserver.kinds.pods.faults import tolerances_of
from kvstack.apiserver.kinds.pods.known_specs import KnownSpecs, key_of_spec
from kvstack.apiserver.kinds.pods.preparation import SPEC_TYPE
from kvstack.apiserver.kinds.pods.scheduling import REQUIRED_TERMS, check_toleration_list
from kvstack.apiserver.kinds.pods.scope import SpecScope
from kvstack.apiserver.kinds.pods.spec import INT32_MAX, check_spec
from kvstack.apiserver.kinds.pods.tolerances import NO_TOLERANCES, Tolerances
from kvstack.apiserver.kinds.rules import Errors
from kvstack.apiserver.kinds.strategy import Context

_SPEC: Final = "spec"
_ANNOTATIONS: Final = "metadata.annotations"
_NODE_AFFINITY_TYPE: Final = "io.k8s.api.core.v1.NodeAffinity"
_TERM_TYPE: Final = "io.k8s.api.core.v1.NodeSelectorTerm"
_KNOWN: Final = KnownSpecs()
_IMMUTABLE: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def validate(pod: Object, context: Context) -> list[FieldError]:
    """Return the errors of a new pod."""
    scope = checked(pod, context, NO_TOLERANCES)
    spec, errors = scope.spec, scope.errors
    if spec.get("ephemeralContainers"):
        errors.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
    if spec.get("nodeName") and spec.get("schedulingGates"):
        message = "cannot be set until all schedulingGates have been cleared"
        errors.append(forbidden("spec.nodeName", message))
    annotations = pod["metadata"].get("annotations")
    if annotations:
        check_matching_profiles(scope, annotations)
    return errors


def validate_update(new: Object, old: Object, context: Context) -> list[FieldError]:
    """Return the errors of an update of a pod."""

    def check(tolerances: Tolerances) -> list[FieldError]:
        errors = checked_update(new, old, context, tolerances)
        _check_changes(errors, new["spec"], old["spec"], tolerances)
        return errors

    return check_forgiving(check, old)


def checked(pod: Object, context: Context, tolerances: Tolerances) -> SpecScope:
    """Return the scope of a pod with the errors of its annotations and spec."""
    scope = scope_of(pod, context, tolerances)
    spec, errors = scope.spec, scope.errors
    check_annotations(scope, annotations_of(pod), _ANNOTATIONS)
    _check_spec(scope)
    if not spec.get("serviceAccountName"):
        _check_no_tokens(spec, errors)
    grace = spec.get("terminationGracePeriodSeconds")
    if grace is not None and grace < 0:
        errors.append(invalid("spec.terminationGracePeriodSeconds", grace, NEGATIVE))
    for name in ("containers", "initContainers"):
        for position, container in enumerate(spec.get(name) or ()):
            check_image_spaces(errors, container, f"spec.{name}[{position}]")
    return scope


def _check_spec(scope: SpecScope) -> None:
    """Check the whole spec, unless an equal one was without fault."""
    if scope.tolerances != NO_TOLERANCES:
        check_spec(scope)
        return
    key = key_of_spec(scope.spec, scope.allow_privileged, scope.is_mirror)
    _KNOWN.check(key, scope.errors, lambda: check_spec(scope))


def checked_update(
    new: Object, old: Object, context: Context, tolerances: Tolerances
) -> list[FieldError]:
    """Return the errors of the new pod and of changes of its annotations."""
    scope = checked(new, context, tolerances)
    check_changed_annotations(scope, new, old)
    return scope.errors


def check_changed_annotations(scope: SpecScope, new: Object, old: Object) -> None:
    """Check the annotations of a pod after an update, and that immutable ones did not change."""
    annotations = annotations_of(new)
    check_annotation_changes(scope.errors, annotations, annotations_of(old), _ANNOTATIONS)
    check_annotations(scope, annotations, _ANNOTATIONS)


def check_forgiving(
    check: Callable[[Tolerances], list[FieldError]], old: Object
) -> list[FieldError]:
    """Return the errors of a check, without those that the stored pod already had.

    Most updates have no errors, so the faults of the stored pod are only computed if there are
    some.
    """
    errors = check(NO_TOLERANCES)
    if errors:
        tolerances = tolerances_of(old.get("spec") or {}, annotations_of(old))
        if tolerances != NO_TOLERANCES:
            return check(tolerances)
    return errors


def scope_of(pod: Object, context: Context, tolerances: Tolerances) -> SpecScope:
    """Return the scope of the spec of a pod."""
    metadata = pod["metadata"]
    return SpecScope(
        pod.get("spec") or {},
        _SPEC,
        [],
        tolerances,
        is_pod=True,
        allow_privileged=context.allow_privileged,
        pod_name=metadata.get("name", ""),
        is_mirror=MIRROR_ANNOTATION in annotations_of(pod),
    )


def annotations_of(pod: Object) -> Mapping[str, str]:
    """Return the annotations of an object, empty if it has none."""
    return pod["metadata"].get("annotations") or {}


def _check_no_tokens(spec: Object, errors: Errors) -> None:
    for position, volume in enumerate(spec.get("volumes") or ()):
        for number, source in enumerate((volume.get("projected") or {}).get("sources") or ()):
            if source.get("serviceAccountToken") is not None:
                path = f"spec.volumes[{position}].projected.sources[{number}].serviceAccountToken"
                message = "must not be specified when serviceAccountName is not set"
                errors.append(forbidden(path, message))


def _check_changes(errors: Errors, new: Object, old: Object, tolerances: Tolerances) -> None:
    for name in ("containers", "initContainers"):
        if not _check_images(errors, new, old, name):
            return
    if not _check_deadline(errors, new, old):
        return
    _check_tolerations(errors, new, old, tolerances)
    _check_gates(errors, new, old)
    if same(new, old, SPEC_TYPE):
        return
    rest = _without_changeable(new, old)
    if old.get("schedulingGates"):
        _check_node_selector(errors, rest, old)
        _check_node_affinity(errors, rest, old)
    if not same(rest, old, SPEC_TYPE):
        diff = internal_diff(old, rest, SPEC_TYPE)
        errors.append(forbidden(_SPEC, f"{_IMMUTABLE}\n{diff}"))


def _check_images(errors: Errors, new: Object, old: Object, name: str) -> bool:
    containers, path = new.get(name) or (), child(_SPEC, name)
    if len(containers) != len(old.get(name) or ()):
        errors.append(forbidden(path, "pod updates may not add or remove containers"))
        return False
    for position, container in enumerate(containers):
        if not container.get("image"):
            errors.append(required(child(index(path, position), "image")))
        check_image_spaces(errors, container, index(path, position))
    return True


def _check_deadline(errors: Errors, new: Object, old: Object) -> bool:
    path = "spec.activeDeadlineSeconds"
    deadline, before = new.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds")
    if deadline is None:
        if before is not None:
            message = "must not update from a positive integer to nil value"
            errors.append(invalid(path, None, message))
    elif not 0 <= deadline <= INT32_MAX:
        errors.append(invalid(path, deadline, between(0, INT32_MAX)))
        return False
    elif before is not None and before < deadline:
        message = "must be less than or equal to previous value"
        errors.append(invalid(path, deadline, message))
        return False
    return True


def _check_tolerations(errors: Errors, new: Object, old: Object, tolerances: Tolerances) -> None:
    path = "spec.tolerations"
    now = new.get("tolerations") or ()
    known = [_without_seconds(each) for each in now]
    for each in old.get("tolerations") or ():
        if _without_seconds(each) not in known:
            message = "existing toleration can not be modified except its tolerationSeconds"
            errors.append(forbidden(path, message))
            return
    allows = tolerances.comparing_tolerations
    check_toleration_list(errors, now, path, allows_comparing=allows)


def _without_seconds(toleration: Object) -> Object:
    return {name: value for name, value in toleration.items() if name != "tolerationSeconds"}


def _check_gates(errors: Errors, new: Object, old: Object) -> None:
    known = {each.get("name", "") for each in old.get("schedulingGates") or ()}
    added = {
        each.get("name", ""): position
        for position, each in enumerate(new.get("schedulingGates") or ())
        if each.get("name", "") not in known
    }
    for name, position in added.items():
        message = f"only deletion is allowed, but found new scheduling gate '{name}'"
        errors.append(forbidden(f"spec.schedulingGates[{position}].name", message))


def _without_changeable(new: Object, old: Object) -> Object:
    """Return the new spec with the old values of mutable fields."""
    rest = dict(new)
    for name in ("containers", "initContainers"):
        if new.get(name):
            rest[name] = [
                {**container, "image": before.get("image", "")}
                for container, before in zip(new[name], old[name], strict=True)
            ]
    for name in ("activeDeadlineSeconds", "schedulingGates", "tolerations"):
        _take(rest, old, name)
    before = old.get("terminationGracePeriodSeconds")
    if before is not None and before < 0 and rest.get("terminationGracePeriodSeconds") == 1:
        rest["terminationGracePeriodSeconds"] = before
    return rest


def _take(rest: Object, old: Object, name: str) -> None:
    if name in old:
        rest[name] = old[name]
    else:
        rest.pop(name, None)


def _check_node_selector(errors: Errors, rest: Object, old: Object) -> None:
    selector, before = rest.get("nodeSelector") or {}, old.get("nodeSelector") or {}
    if any(selector.get(name) != value for name, value in before.items()):
        message = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        shown = _sorted(selector) if "nodeSelector" in rest else None
        errors.append(invalid("spec.nodeSelector", shown, message))
    _take(rest, old, "nodeSelector")


def _check_node_affinity(errors: Errors, rest: Object, old: Object) -> None:
    """Check that node affinity was only narrowed, and set the old one in the rest."""
    affinity, before = rest.get("affinity"), old.get("affinity")
    mine = (affinity or {}).get("nodeAffinity")
    stored = (before or {}).get("nodeAffinity")
    if mine == stored or (mine and stored and same(mine, stored, _NODE_AFFINITY_TYPE)):
        return
    _check_narrowing(errors, mine or {}, stored or {})
    others = {name: value for name, value in (affinity or {}).items() if name != "nodeAffinity"}
    if stored is not None:
        rest["affinity"] = {"nodeAffinity": stored, **others}
    elif before is None and not others:
        rest.pop("affinity", None)
    else:
        rest["affinity"] = others


def _check_narrowing(errors: Errors, new: Object, old: Object) -> None:
    path = f"spec.affinity.nodeAffinity.{REQUIRED_TERMS}.nodeSelectorTerms"
    before = (old.get(REQUIRED_TERMS) or {}).get("nodeSelectorTerms") or []
    terms = (new.get(REQUIRED_TERMS) or {}).get("nodeSelectorTerms")
    if not before:
        return
    if len(before) != len(terms or ()):
        message = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        value = None if terms is None else internal_value(terms, _TERM_TYPE)
        errors.append(invalid(path, value, message))
        return
    for position, (term, stored) in enumerate(zip(terms or (), before, strict=True)):
        if not _has_only_additions(term, stored):
            message = "only additions are allowed (no mutations or deletions)"
            value = internal_value(term, _TERM_TYPE)
            errors.append(invalid(index(path, position), value, message))


def _has_only_additions(term: Object, stored: Object) -> bool:
    names = ("matchExpressions", "matchFields")
    if not any(stored.get(name) for name in names):
        return not any(term.get(name) for name in names)
    return all(
        (term.get(name) or [])[: len(stored.get(name) or ())] == (stored.get(name) or [])
        for name in names
    )


def _sorted(selector: Mapping[str, str]) -> dict[str, str]:
    return {name: selector[name] for name in sorted(selector)}
