"""Validation of Windows pods, and of fields that an operating system refuses.

securityContext.windowsOptions = {"runAsUserName": "NT AUTHORITY\\\\SYSTEM", "hostProcess": true}
"""

import re
from typing import Final

from kvstack.apimachinery.objects.field_errors import (
    child,
    forbidden,
    invalid,
    not_supported,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import check_dns_subdomain, length
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apiserver.kinds.pods.scope import SpecScope
from kvstack.apiserver.kinds.rules import Errors, add_invalid

CREDENTIAL_SPEC_KIB_MAX: Final = 64
DOMAIN_MAX: Final = 256
USER_MAX: Final = 104

_NOT_FOR_WINDOWS: Final = "cannot be set for a windows pod"
_POD_CONTEXT: Final = (
    "appArmorProfile", "seLinuxOptions", "seccompProfile", "fsGroup", "fsGroupChangePolicy",
    "sysctls", "runAsUser", "runAsGroup", "supplementalGroups", "supplementalGroupsPolicy",
    "seLinuxChangePolicy",
)  # fmt: skip
_SPEC: Final = ("hostUsers", "hostPID", "hostIPC", "shareProcessNamespace")
_UNLESS_EMPTY: Final = frozenset({"hostPID", "hostIPC", "sysctls"})
_CONTAINER_CONTEXT: Final = (
    "appArmorProfile", "seLinuxOptions", "seccompProfile", "capabilities",
    "readOnlyRootFilesystem", "privileged", "allowPrivilegeEscalation", "procMount", "runAsUser",
    "runAsGroup",
)  # fmt: skip
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_NET_BIOS: Final = re.compile(r'\A[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}\Z')
_DNS_LABEL: Final = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_DNS_DOMAIN: Final = re.compile(rf"\A{_DNS_LABEL}(?:\.{_DNS_LABEL})*\Z")
_BAD_USER_CHARACTERS: Final = frozenset('"/\\:;|=,+*?<>@[]')


def check_os(scope: SpecScope) -> None:
    """Check the operating system of the spec, and the fields that it refuses."""
    os = scope.spec.get("os")
    if os is None:
        return
    path = child(scope.path, "os")
    name = os.get("name", "")
    if not name:
        scope.errors.append(required(child(path, "name")))
    elif name == "linux":
        _check_linux(scope)
    elif name == "windows":
        _check_windows(scope)
    else:
        scope.errors.append(not_supported(path, JsonText(name), ("linux", "windows")))


def check_host_process(scope: SpecScope) -> None:
    """Check that HostProcess containers are not mixed with others."""
    errors = scope.errors
    of_pod = _host_process(scope.spec)
    total = in_host = 0
    for container, path in scope.containers():
        total += 1
        of_container = _host_process(container)
        if of_pod is not None and of_container is not None and of_pod != of_container:
            shown = "true" if of_pod else "false"
            message = f"pod hostProcess value must be identical if both are specified, was {shown}"
            option_path = child(path, "securityContext", "windowsOptions", "hostProcess")
            errors.append(invalid(option_path, of_container, message))
        in_host += bool(of_pod if of_container is None else of_container)
    if not in_host:
        return
    if in_host != total:
        message = (
            "If pod contains any hostProcess containers then all containers must be HostProcess"
            " containers"
        )
        errors.append(invalid(scope.path, "", message))
    if not scope.spec.get("hostNetwork"):
        message = "hostNetwork must be true if pod contains any hostProcess containers"
        errors.append(invalid(child(scope.path, "hostNetwork"), False, message))
    if not scope.allow_privileged:
        message = "hostProcess containers are disallowed by cluster policy"
        errors.append(forbidden(scope.path, message))


def check_windows_options(errors: Errors, options: Object | None, path: str) -> None:
    """Check the Windows options of a security context, if present."""
    if options is None:
        return
    name = options.get("gmsaCredentialSpecName")
    if name is not None:
        wrong = check_dns_subdomain(name)
        add_invalid(errors, child(path, "gmsaCredentialSpecName"), JsonText(name), wrong)
    spec = options.get("gmsaCredentialSpec")
    if spec is not None:
        message = ""
        if not spec:
            message = "gmsaCredentialSpec cannot be an empty string"
        elif length(spec) > CREDENTIAL_SPEC_KIB_MAX * 1024:
            message = f"gmsaCredentialSpec size must be under {CREDENTIAL_SPEC_KIB_MAX} KiB"
        if message:
            errors.append(invalid(child(path, "gmsaCredentialSpec"), JsonText(spec), message))
    user = options.get("runAsUserName")
    if user is not None:
        add_invalid(errors, child(path, "runAsUserName"), JsonText(user), check_user_name(user))


def check_user_name(name: str) -> list[str]:
    """Return the errors of a Windows user name: `DOMAIN\\user` or `user`."""
    parts = name.split("\\")
    problem = ""
    if not name:
        problem = "runAsUserName cannot be an empty string"
    elif _CONTROL.search(name):
        problem = "runAsUserName cannot contain control characters"
    elif len(parts) > 2:
        problem = "runAsUserName cannot contain more than one backslash"
    if problem:
        return [problem]
    domain_errors = _check_domain(parts[0]) if len(parts) == 2 else []
    return domain_errors + _check_user(parts[-1])


def _check_domain(domain: str) -> list[str]:
    errors: list[str] = []
    if length(domain) >= DOMAIN_MAX:
        errors.append(f"runAsUserName's Domain length must be under {DOMAIN_MAX} characters")
    if not (_NET_BIOS.match(domain) or _DNS_DOMAIN.match(domain)):
        errors.append("runAsUserName's Domain doesn't match the NetBios nor the DNS format")
    return errors


def _check_user(user: str) -> list[str]:
    errors: list[str] = []
    if not user:
        errors.append("runAsUserName's User cannot be empty")
    elif length(user) > USER_MAX:
        message = f"runAsUserName's User length must not be longer than {USER_MAX} characters"
        errors.append(message)
    if user and not user.strip(". "):
        errors.append("runAsUserName's User cannot contain only periods or spaces")
    if not _BAD_USER_CHARACTERS.isdisjoint(user):
        errors.append(
            "runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]"
        )
    return errors


def _check_linux(scope: SpecScope) -> None:
    message = "windows options cannot be set for a linux pod"
    holders = [(scope.spec, scope.path), *scope.containers()]
    scope.errors.extend(
        forbidden(child(path, "securityContext", "windowsOptions"), message)
        for holder, path in holders
        if (holder.get("securityContext") or {}).get("windowsOptions") is not None
    )


def _check_windows(scope: SpecScope) -> None:
    errors = scope.errors
    spec = scope.spec
    _refuse(errors, spec.get("securityContext"), _POD_CONTEXT, child(scope.path, "securityContext"))
    _refuse(errors, spec, _SPEC, scope.path)
    for container, path in scope.containers():
        context = container.get("securityContext")
        _refuse(errors, context, _CONTAINER_CONTEXT, child(path, "securityContext"))


def _refuse(errors: Errors, obj: Object | None, names: tuple[str, ...], path: str) -> None:
    if obj:
        errors.extend(
            forbidden(child(path, name), _NOT_FOR_WINDOWS)
            for name in names
            if (obj.get(name) if name in _UNLESS_EMPTY else obj.get(name) is not None)
        )


def _host_process(holder: Object) -> bool | None:
    options = (holder.get("securityContext") or {}).get("windowsOptions") or {}
    value: bool | None = options.get("hostProcess")
    return value
