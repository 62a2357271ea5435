"""Validation of pod annotations, including those that preceded fields.

kubernetes.io/config.mirror                              the pod is a mirror pod
controller.kubernetes.io/pod-deletion-cost               the order of deletion in a set
container.apparmor.security.beta.kubernetes.io/<name>    now appArmorProfile
seccomp.security.alpha.kubernetes.io/pod                 now seccompProfile
container.seccomp.security.alpha.kubernetes.io/<name>    now seccompProfile
scheduler.alpha.kubernetes.io/tolerations                JSON; validated, without effect
"""

from collections.abc import Mapping
from typing import Final

from kvstack.apimachinery.objects.core.containers import all_containers
from kvstack.apimachinery.objects.field_errors import child, forbidden, invalid, key
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.go_numbers import NumberError, parse_int
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apimachinery.well_known import (
    DELETION_COST_ANNOTATION,
    MIRROR_ANNOTATION,
    SECCOMP_POD_ANNOTATION,
)
from kvstack.apiserver.kinds.file_paths import check_descending
from kvstack.apiserver.kinds.pods.annotated_tolerations import TOLERATIONS, check_tolerations
from kvstack.apiserver.kinds.pods.scope import SpecScope
from kvstack.apiserver.kinds.rules import Errors

Annotations = Mapping[str, str]

APP_ARMOR_PREFIX: Final = "container.apparmor.security.beta.kubernetes.io/"
SECCOMP_PREFIX: Final = "container.seccomp.security.alpha.kubernetes.io/"

_LOCALHOST: Final = "localhost/"
_SECCOMP: Final = {
    "unconfined": "Unconfined",
    "runtime/default": "RuntimeDefault",
    "docker/default": "RuntimeDefault",
}
"""Types of seccomp profiles by their names in annotations."""
_APP_ARMOR: Final = {"unconfined": "Unconfined", "runtime/default": "RuntimeDefault"}


def check_annotations(scope: SpecScope, annotations: Annotations, path: str) -> None:
    """Check the annotations of a pod or template; `path`: of the annotations."""
    if not annotations:
        return
    errors = scope.errors
    mirror = annotations.get(MIRROR_ANNOTATION)
    if mirror is not None and not scope.spec.get("nodeName"):
        message = "must set spec.nodeName if mirror pod annotation is set"
        errors.append(invalid(key(path, MIRROR_ANNOTATION), mirror, message))
    if annotations.get(TOLERATIONS):
        check_tolerations(errors, annotations[TOLERATIONS], path, scope.tolerances)
    cost = annotations.get(DELETION_COST_ANNOTATION)
    if cost is not None and not scope.tolerances.deletion_cost and not is_deletion_cost(cost):
        errors.append(invalid(key(path, DELETION_COST_ANNOTATION), cost, "must be a 32bit integer"))
    for name, value in annotations.items():
        if name == SECCOMP_POD_ANNOTATION or name.startswith(SECCOMP_PREFIX):
            _check_seccomp(errors, value, child(path, name))
    for name, value in annotations.items():
        if name.startswith(APP_ARMOR_PREFIX):
            _check_app_armor(scope, name, value, key(path, name))


def check_annotation_changes(errors: Errors, new: Annotations, old: Annotations, path: str) -> None:
    """Check that immutable annotations did not change."""
    for name, value in old.items():
        if new.get(name) != value:
            if name.startswith(APP_ARMOR_PREFIX):
                message = "may not remove or update AppArmor annotations"
                errors.append(forbidden(key(path, name), message))
            elif name == MIRROR_ANNOTATION:
                message = "may not remove or update mirror pod annotation"
                errors.append(forbidden(key(path, name), message))
    for name in new:
        if name not in old:
            if name.startswith(APP_ARMOR_PREFIX):
                errors.append(forbidden(key(path, name), "may not add AppArmor annotations"))
            elif name == MIRROR_ANNOTATION:
                message = "may not add mirror pod annotation"
                errors.append(forbidden(key(path, name), message))


def check_matching_profiles(scope: SpecScope, annotations: Annotations) -> None:
    """Check that profiles in annotations match those in fields, if both are given."""
    if not any(each.startswith((SECCOMP_POD_ANNOTATION, SECCOMP_PREFIX, APP_ARMOR_PREFIX))
               for each in annotations):  # fmt: skip
        return
    _check_seccomp_matches(scope, annotations)
    if scope.os != "windows":
        _check_app_armor_matches(scope, annotations)


def app_armor_profile(annotation: str) -> Object | None:
    """Return the profile that an annotation names; None if it names none."""
    kind = _APP_ARMOR.get(annotation)
    if kind is not None:
        return {"type": kind}
    file = annotation.removeprefix(_LOCALHOST)
    if file and file != annotation:
        return {"type": "Localhost", "localhostProfile": file}
    return None


def is_deletion_cost(text: str) -> bool:
    """Return whether the text is a 32-bit integer, as a deletion cost must be."""
    if text.startswith("+") or (text.startswith("0") and text != "0"):
        return False
    try:
        parse_int(text, 32)
    except NumberError:
        return False
    return True


def _check_seccomp(errors: Errors, value: str, path: str) -> None:
    if value in _SECCOMP:
        return
    if value.startswith(_LOCALHOST):
        check_descending(errors, path, value.removeprefix(_LOCALHOST))
    else:
        errors.append(invalid(path, value, "must be a valid seccomp profile"))


def _check_app_armor(scope: SpecScope, name: str, value: str, path: str) -> None:
    container = name.removeprefix(APP_ARMOR_PREFIX)
    if not any(each.get("name") == container for each in all_containers(scope.spec)):
        scope.errors.append(invalid(path, container, "container not found"))
    if value and value not in _APP_ARMOR and not value.startswith(_LOCALHOST):
        message = f"invalid AppArmor profile name: {quote(value)}"
        scope.errors.append(invalid(path, value, message))


def _check_seccomp_matches(scope: SpecScope, annotations: Annotations) -> None:
    context = scope.spec.get("securityContext") or {}
    holders = [(context, SECCOMP_POD_ANNOTATION, scope.path)]
    holders += [
        (container.get("securityContext") or {}, SECCOMP_PREFIX + container.get("name", ""), path)
        for container, path in scope.containers()
    ]
    for holder, name, path in holders:
        profile, annotation = holder.get("seccompProfile"), annotations.get(name)
        if profile is not None and annotation is not None:
            kind = _SECCOMP.get(annotation, "")
            profile_path = child(path, "securityContext", "seccompProfile")
            _check_match(scope.errors, profile, annotation, kind, profile_path, "seccomp")


def _check_app_armor_matches(scope: SpecScope, annotations: Annotations) -> None:
    of_pod = (scope.spec.get("securityContext") or {}).get("appArmorProfile")
    for container, path in scope.containers():
        profile = (container.get("securityContext") or {}).get("appArmorProfile") or of_pod
        annotation = annotations.get(APP_ARMOR_PREFIX + container.get("name", ""))
        if profile is not None and annotation is not None:
            kind = _APP_ARMOR.get(annotation, "")
            profile_path = child(path, "securityContext", "appArmorProfile")
            _check_match(scope.errors, profile, annotation, kind, profile_path, "apparmor")


def _check_match(
    errors: Errors, profile: Object, annotation: str, kind: str, path: str, what: str
) -> None:
    field_type = profile.get("type")
    message = f"{what} type in annotation and field must match"
    if field_type == "Localhost":
        if not annotation.startswith(_LOCALHOST):
            errors.append(forbidden(child(path, "type"), message))
        elif annotation.removeprefix(_LOCALHOST) != profile.get("localhostProfile"):
            message = f"{what} profile in annotation and field must match"
            errors.append(forbidden(child(path, "localhostProfile"), message))
    elif field_type in {"Unconfined", "RuntimeDefault"} and kind != field_type:
        errors.append(forbidden(child(path, "type"), message))
