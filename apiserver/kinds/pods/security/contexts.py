"""Validation of security contexts of containers and pods.

    securityContext = {"runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}

Seccomp and AppArmor profiles are fields; the annotations that preceded the fields are in
`annotations`.
"""

import re
from typing import Final

from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    duplicate,
    forbidden,
    index,
    invalid,
    not_supported,
    required,
    too_long,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import check_user_id, length
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apimachinery.schema.load import enum_values
from kvstack.apiserver.kinds.file_paths import check_descending
from kvstack.apiserver.kinds.internal_values import internal_value
from kvstack.apiserver.kinds.pods.scope import SpecScope
from kvstack.apiserver.kinds.pods.security.windows import check_windows_options
from kvstack.apiserver.kinds.rules import (
    Errors,
    add_invalid,
    all_of,
    numeric_id,
    one_of,
)

PROFILE_TYPES: Final = enum_values("io.k8s.api.core.v1.SeccompProfile", "type")
APP_ARMOR_PROFILE_MAX: Final = 4095
SYSCTL_NAME_MAX: Final = 253

_PROC_MOUNTS: Final = enum_values("io.k8s.api.core.v1.SecurityContext", "procMount")
_OWNERSHIP_CHANGES: Final = enum_values(
    "io.k8s.api.core.v1.PodSecurityContext", "fsGroupChangePolicy"
)
_GROUPS_POLICIES: Final = enum_values(
    "io.k8s.api.core.v1.PodSecurityContext", "supplementalGroupsPolicy"
)
_SYSCTL_PART: Final = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SYSCTL_FORM: Final = rf"^({_SYSCTL_PART}[\./])*{_SYSCTL_PART}$"
_SYSCTL: Final = re.compile(_SYSCTL_FORM.replace("$", r"\Z"))
_IPC_SYSCTLS: Final = frozenset({
    "kernel.sem", "kernel.shmall", "kernel.shmmax", "kernel.shmmni", "kernel.shm_rmid_forced",
    "kernel.shm", "kernel.msgmax", "kernel.msgmnb", "kernel.msgmni", "kernel.msg",
})  # fmt: skip
_SWAP_SEPARATORS: Final = str.maketrans("./", "/.")


def check_container_security(scope: SpecScope, container: Object, path: str) -> None:
    """Check the security context of a container, if present."""
    context = container.get("securityContext")
    if context is None:
        return
    errors = scope.errors
    context_path = child(path, "securityContext")
    if context.get("privileged") and not scope.allow_privileged:
        errors.append(forbidden(child(context_path, "privileged"), "disallowed by cluster policy"))
    _user_and_group(context, context_path, errors)
    _check_proc_mount(scope, context, child(context_path, "procMount"))
    check_seccomp(errors, context.get("seccompProfile"), child(context_path, "seccompProfile"))
    if context.get("allowPrivilegeEscalation") is False:
        _check_no_escalation(scope, context, context_path)
    _check_shared(context, context_path, errors)


def check_pod_security(scope: SpecScope) -> None:
    """Check the security context of the pod, if present."""
    context = scope.spec.get("securityContext")
    if not context:
        return
    errors = scope.errors
    path = child(scope.path, "securityContext")
    _group_user_group(context, path, errors)
    groups_path = child(path, "supplementalGroups")
    for position, group in enumerate(context.get("supplementalGroups") or ()):
        add_invalid(errors, index(groups_path, position), group, check_user_id(group))
    if context.get("sysctls"):
        _check_sysctls(scope, context["sysctls"], child(path, "sysctls"))
    _change_policy(context, path, errors)
    check_seccomp(errors, context.get("seccompProfile"), child(path, "seccompProfile"))
    _check_shared(context, path, errors)
    _group_policies(context, path, errors)


def check_seccomp(errors: Errors, profile: Object | None, path: str) -> None:
    """Check a seccomp profile, if present."""
    if profile is None:
        return
    kind, file = profile.get("type", ""), profile.get("localhostProfile")
    _check_profile_type(errors, kind, path, "seccompProfile")
    file_path = child(path, "localhostProfile")
    if kind == "Localhost":
        if file is None:
            errors.append(required(file_path, "must be set when seccomp type is Localhost"))
        else:
            check_descending(errors, file_path, file)
    elif file is not None:
        shown = internal_value(profile, "io.k8s.api.core.v1.SeccompProfile")
        message = "can only be set when seccomp type is Localhost"
        errors.append(invalid(file_path, shown, message))


def check_app_armor(errors: Errors, profile: Object | None, path: str) -> None:
    """Check an AppArmor profile, if present."""
    if profile is None:
        return
    kind, file = profile.get("type", ""), profile.get("localhostProfile")
    file_path = child(path, "localhostProfile")
    if kind == "Localhost":
        _check_app_armor_file(errors, file, file_path)
    elif kind in PROFILE_TYPES:
        if file is not None:
            message = "can only be set when AppArmor type is Localhost"
            errors.append(invalid(file_path, JsonText(file), message))
    else:
        _check_profile_type(errors, kind, path, "appArmorProfile")


def host_sysctl_error(name: str, spec: Object, path: str) -> FieldError | None:
    """Return the error of a sysctl of a namespace that the pod shares with its host."""
    namespace = _namespace_of_sysctl(name)
    if namespace == "net" and spec.get("hostNetwork"):
        return invalid(path, name, "may not be specified when 'hostNetwork' is true")
    if namespace == "ipc" and spec.get("hostIPC"):
        return invalid(path, name, "may not be specified when 'hostIPC' is true")
    return None


def _check_shared(context: Object, path: str, errors: Errors) -> None:
    check_windows_options(errors, context.get("windowsOptions"), child(path, "windowsOptions"))
    check_app_armor(errors, context.get("appArmorProfile"), child(path, "appArmorProfile"))


def _check_proc_mount(scope: SpecScope, context: Object, path: str) -> None:
    mount = context.get("procMount")
    if mount is None:
        return
    if mount not in _PROC_MOUNTS:
        scope.errors.append(not_supported(path, JsonText(mount), _PROC_MOUNTS))
    elif mount == "Unmasked" and scope.uses_host_users:
        message = "`hostUsers` must be false to use `Unmasked`"
        scope.errors.append(invalid(path, JsonText(mount), message))


def _check_no_escalation(scope: SpecScope, context: Object, path: str) -> None:
    conflicts: list[str] = []
    if context.get("privileged"):
        conflicts.append("`privileged` to true")
    if not scope.tolerances.sys_admin_without_escalation:
        added = (context.get("capabilities") or {}).get("add") or []
        conflicts.extend("`capabilities.Add` CAP_SYS_ADMIN" for _ in range(_sys_admins(added)))
    for conflict in conflicts:
        shown = internal_value(context, "io.k8s.api.core.v1.SecurityContext")
        message = f"cannot set `allowPrivilegeEscalation` to false and {conflict}"
        scope.errors.append(invalid(path, shown, message))


def _sys_admins(capabilities: list[str]) -> int:
    return sum(each == "CAP_SYS_ADMIN" for each in capabilities)


def _check_profile_type(errors: Errors, kind: str, path: str, field: str) -> None:
    if not kind:
        errors.append(required(child(path, "type"), f"type is required when {field} is set"))
    elif kind not in PROFILE_TYPES:
        errors.append(not_supported(child(path, "type"), JsonText(kind), PROFILE_TYPES))


def _check_app_armor_file(errors: Errors, file: str | None, path: str) -> None:
    if file is None:
        errors.append(required(path, "must be set when AppArmor type is Localhost"))
        return
    if file != file.strip():
        errors.append(invalid(path, file, "must not be padded with whitespace"))
    elif not file:
        errors.append(required(path, "must be set when AppArmor type is Localhost"))
    if length(file) > APP_ARMOR_PROFILE_MAX:
        errors.append(too_long(path, APP_ARMOR_PROFILE_MAX))


def _check_sysctls(scope: SpecScope, sysctls: list[Object], path: str) -> None:
    errors = scope.errors
    names: set[str] = set()
    for position, sysctl in enumerate(sysctls):
        name = sysctl.get("name", "")
        name_path = child(index(path, position), "name")
        if not name:
            errors.append(required(name_path))
        elif len(name) > SYSCTL_NAME_MAX or _SYSCTL.match(name) is None:
            message = f"must have at most {SYSCTL_NAME_MAX} characters and match regex"
            errors.append(invalid(name_path, name, f"{message} {_SYSCTL_FORM}"))
        elif name in names:
            errors.append(duplicate(name_path, name))
        if not scope.tolerances.host_sysctls:
            error = host_sysctl_error(name, scope.spec, name_path)
            if error is not None:
                errors.append(error)
        names.add(name)


def _namespace_of_sysctl(name: str) -> str:
    dot, slash = name.find("."), name.find("/")
    if slash >= 0 and (dot < 0 or slash < dot):
        name = name.translate(_SWAP_SEPARATORS)
    name = name.partition("*")[0]
    if name in _IPC_SYSCTLS or name.startswith("fs.mqueue."):
        return "ipc"
    return "net" if name.startswith("net.") else ""


_user_and_group: Final = all_of(numeric_id("runAsUser"), numeric_id("runAsGroup"))
_group_user_group: Final = all_of(numeric_id("fsGroup"), _user_and_group)
_change_policy: Final = one_of("fsGroupChangePolicy", _OWNERSHIP_CHANGES)
_group_policies: Final = all_of(
    one_of("supplementalGroupsPolicy", _GROUPS_POLICIES),
    one_of("seLinuxChangePolicy", ("MountOption", "Recursive")),
)
