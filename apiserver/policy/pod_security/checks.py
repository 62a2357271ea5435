"""The controls of the standards, each a function of a pod's metadata and spec.

    privileged(metadata, spec)
    → Finding("privileged", 'container "a" must not set securityContext.privileged=true')

A function returns None if the pod complies. `evaluation` has the functions of each level and
version.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from kvstack.apimachinery.objects.core.containers import all_containers
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apimachinery.well_known import SECCOMP_POD_ANNOTATION


class Finding(NamedTuple):
    """A violated control."""

    reason: str
    detail: str

    def describe(self) -> str:
        """Return the reason with its detail."""
        return f"{self.reason} ({self.detail})" if self.detail else self.reason


Check: TypeAlias = Callable[[Object, Object], Finding | None]

_APP_ARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"
_SECCOMP_OF_CONTAINER: Final = "container.seccomp.security.alpha.kubernetes.io/"
_PROFILES: Final = frozenset(("RuntimeDefault", "Localhost"))
_CAPABILITIES: Final = frozenset(
    (
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    )
)
_SELINUX_TYPES: Final = frozenset(("", "container_t", "container_init_t", "container_kvm_t"))
_SYSCTLS: Final = frozenset(
    (
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.ping_group_range",
        "net.ipv4.ip_unprivileged_port_start",
    )
)
_VOLUMES: Final = frozenset(
    (
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    )
)
_OTHER_VOLUMES: Final = (
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
)
_HOST_NAMESPACES: Final = ("hostNetwork", "hostPID", "hostIPC")
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_HANDLERS: Final = ("postStart", "preStop")
_HOSTED: Final = ("httpGet", "tcpSocket")


# Common parts of checks.


def except_windows(check: Check) -> Check:
    """Return a check that exempts Windows pods."""

    def checked(metadata: Object, spec: Object) -> Finding | None:
        is_windows = (spec.get("os") or {}).get("name") == "windows"
        return None if is_windows else check(metadata, spec)

    return checked


def except_user_namespaces(check: Check) -> Check:
    """Return a check that exempts pods with user namespaces."""

    def checked(metadata: Object, spec: Object) -> Finding | None:
        return None if spec.get("hostUsers") is False else check(metadata, spec)

    return checked


def _context(holder: Object) -> Object:
    context: Object = holder.get("securityContext") or {}
    return context


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{each}"' for each in names)


def _counted(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"


def _containers(names: Sequence[str]) -> str:
    return f"{_counted('container', len(names))} {_quoted(names)}"


def _setters(names: Sequence[str], *, is_pod: bool) -> str:
    """Return who sets a field: `pod`, `container "a"`, `pod and containers "a", "b"`."""
    found = ["pod"] if is_pod else []
    if names:
        found.append(_containers(names))
    return " and ".join(found)


def _names(spec: Object, is_bad: Callable[[Object], object]) -> list[str]:
    return [each.get("name", "") for each in all_containers(spec) if is_bad(each)]


# Baseline.


def app_armor(metadata: Object, spec: Object) -> Finding | None:
    """AppArmor is not disabled."""
    values: set[str] = set()

    def is_bad(holder: Object) -> bool:
        profile = _context(holder).get("appArmorProfile")
        if profile is None or profile.get("type", "") in _PROFILES:
            return False
        values.add(profile.get("type", ""))
        return True

    is_pod = is_bad(spec)
    setters = _setters(_names(spec, is_bad), is_pod=is_pod)
    annotations = sorted(
        f"{name}={quote(value)}"
        for name, value in (metadata.get("annotations") or {}).items()
        if name.startswith(_APP_ARMOR) and not _is_app_armor_allowed(value)
    )
    profiles = [*sorted(values), *annotations]
    if annotations:
        label = _counted("annotation", len(annotations))
        setters = f"{setters} and {label}" if setters else label
    if not setters:
        return None
    return Finding(
        _counted("forbidden AppArmor profile", len(profiles)),
        f"{setters} must not set AppArmor profile type to {_quoted(profiles)}",
    )


def _is_app_armor_allowed(profile: str) -> bool:
    return profile in {"", "runtime/default"} or profile.startswith("localhost/")


def added_capabilities(_metadata: Object, spec: Object) -> Finding | None:
    """No capabilities outside the default set are added."""
    capabilities: set[str] = set()

    def is_bad(container: Object) -> bool:
        added = (_context(container).get("capabilities") or {}).get("add") or ()
        others = set(added) - _CAPABILITIES
        capabilities.update(others)
        return bool(others)

    names = _names(spec, is_bad)
    if not names:
        return None
    return Finding(
        "non-default capabilities",
        f"{_containers(names)} must not include {_quoted(sorted(capabilities))} in"
        " securityContext.capabilities.add",
    )


def host_namespaces(_metadata: Object, spec: Object) -> Finding | None:
    """Host namespaces are not shared."""
    found = [f"{each}=true" for each in _HOST_NAMESPACES if spec.get(each)]
    return Finding("host namespaces", ", ".join(found)) if found else None


def host_paths(_metadata: Object, spec: Object) -> Finding | None:
    """No hostPath volumes."""
    volumes = spec.get("volumes") or ()
    names = [each.get("name", "") for each in volumes if each.get("hostPath") is not None]
    if not names:
        return None
    return Finding("hostPath volumes", f"{_counted('volume', len(names))} {_quoted(names)}")


def host_ports(_metadata: Object, spec: Object) -> Finding | None:
    """No host ports."""
    host_port_texts: set[str] = set()

    def is_bad(container: Object) -> bool:
        ports = (each.get("hostPort") for each in container.get("ports") or ())
        of_container = {str(each) for each in ports if each}
        host_port_texts.update(of_container)
        return bool(of_container)

    names = _names(spec, is_bad)
    if not names:
        return None
    uses = "uses" if len(names) == 1 else "use"
    ports = f"{_counted('hostPort', len(host_port_texts))} {', '.join(sorted(host_port_texts))}"
    return Finding("hostPort", f"{_containers(names)} {uses} {ports}")


def probed_hosts(_metadata: Object, spec: Object) -> Finding | None:
    """Probes and hooks have no host other than the pod."""
    hosts_found: set[str] = set()

    def is_bad(container: Object) -> bool:
        lifecycle = container.get("lifecycle") or {}
        handlers = [container.get(each) or {} for each in _PROBES]
        handlers += [lifecycle.get(each) or {} for each in _HANDLERS]
        hosts = ((each.get(kind) or {}).get("host") for each in handlers for kind in _HOSTED)
        of_container = {each for each in hosts if each}
        hosts_found.update(of_container)
        return bool(of_container)

    names = sorted(set(_names(spec, is_bad)))
    if not names:
        return None
    uses = "uses" if len(names) == 1 else "use"
    hosts = (
        f"{_counted('probe or lifecycle host', len(hosts_found))} {_quoted(sorted(hosts_found))}"
    )
    return Finding("probe or lifecycle host", f"{_containers(names)} {uses} {hosts}")


def privileged(_metadata: Object, spec: Object) -> Finding | None:
    """No container is privileged."""
    names = _names(spec, lambda container: _context(container).get("privileged"))
    if not names:
        return None
    message = f"{_containers(names)} must not set securityContext.privileged=true"
    return Finding("privileged", message)


def proc_mount(_metadata: Object, spec: Object) -> Finding | None:
    """The default proc mount is used."""
    mount_types: set[str] = set()

    def is_bad(container: Object) -> bool:
        mount = _context(container).get("procMount")
        if mount in {None, "Default"}:
            return False
        mount_types.add(mount)
        return True

    names = _names(spec, is_bad)
    if not names:
        return None
    return Finding(
        "procMount",
        f"{_containers(names)} must not set securityContext.procMount to "
        f"{_quoted(sorted(mount_types))}",
    )


def _selinux(types: frozenset[str], _metadata: Object, spec: Object) -> Finding | None:
    forbidden: set[str] = set()
    set_by_others: set[str] = set()

    def is_bad(holder: Object) -> bool:
        options = _context(holder).get("seLinuxOptions")
        if options is None:
            return False
        kind = options.get("type", "")
        others = {each for each in ("user", "role") if options.get(each)}
        set_by_others.update(others)
        if kind not in types:
            forbidden.add(kind)
        return kind not in types or bool(others)

    is_pod = is_bad(spec)
    setters = _setters(_names(spec, is_bad), is_pod=is_pod)
    if not setters:
        return None
    details = (
        [f"{_counted('type', len(forbidden))} {_quoted(sorted(forbidden))}"] if forbidden else []
    )
    details += [f"{each} may not be set" for each in ("user", "role") if each in set_by_others]
    return Finding(
        "seLinuxOptions",
        f"{setters} set forbidden securityContext.seLinuxOptions: {'; '.join(details)}",
    )


selinux: Final[Check] = partial(_selinux, _SELINUX_TYPES)
"""SELinux types are those of containers; user and role are not set."""
selinux_with_engine: Final[Check] = partial(_selinux, _SELINUX_TYPES | {"container_engine_t"})


def seccomp_annotations(metadata: Object, spec: Object) -> Finding | None:
    """Seccomp is not disabled by annotations, which preceded the fields."""
    annotations: Mapping[str, str] = metadata.get("annotations") or {}
    names = [f"{_SECCOMP_OF_CONTAINER}{each.get('name', '')}" for each in all_containers(spec)]
    annotation_names = sorted(
        {
            f"{name}={quote(annotations[name])}"
            for name in (SECCOMP_POD_ANNOTATION, *names)
            if name in annotations and not _is_seccomp_allowed(annotations[name])
        }
    )
    if not annotation_names:
        return None
    message = (
        f"forbidden {_counted('annotation', len(annotation_names))} {', '.join(annotation_names)}"
    )
    return Finding("seccompProfile", message)


def _is_seccomp_allowed(profile: str) -> bool:
    return profile in {"runtime/default", "docker/default"} or profile.startswith("localhost/")


def seccomp(_metadata: Object, spec: Object) -> Finding | None:
    """Seccomp is not disabled."""
    profiles: set[str] = set()

    def is_bad(holder: Object) -> bool:
        profile = _context(holder).get("seccompProfile")
        if profile is None or profile.get("type", "") in _PROFILES:
            return False
        profiles.add(profile.get("type", ""))
        return True

    is_pod = is_bad(spec)
    setters = _setters(_names(spec, is_bad), is_pod=is_pod)
    if not setters:
        return None
    return Finding(
        "seccompProfile",
        f"{setters} must not set securityContext.seccompProfile.type to "
        f"{_quoted(sorted(profiles))}",
    )


def _sysctls(allowed: frozenset[str], _metadata: Object, spec: Object) -> Finding | None:
    given = (each.get("name", "") for each in _context(spec).get("sysctls") or ())
    found = [each for each in given if each not in allowed]
    return Finding("forbidden sysctls", ", ".join(found)) if found else None


def sysctls(*added: str) -> Check:
    """Return the check that only safe sysctls are set."""
    return partial(_sysctls, _SYSCTLS.union(f"net.ipv4.{each}" for each in added))


def host_process(_metadata: Object, spec: Object) -> Finding | None:
    """No Windows HostProcess containers."""

    def is_bad(holder: Object) -> bool:
        return bool((_context(holder).get("windowsOptions") or {}).get("hostProcess"))

    setters = _setters(_names(spec, is_bad), is_pod=is_bad(spec))
    if not setters:
        return None
    message = f"{setters} must not set securityContext.windowsOptions.hostProcess=true"
    return Finding("hostProcess", message)


# Restricted.


def privilege_escalation(_metadata: Object, spec: Object) -> Finding | None:
    """Privilege escalation is not allowed."""
    names = _names(
        spec,
        lambda container: _context(container).get("allowPrivilegeEscalation") is not False,
    )
    if not names:
        return None
    message = f"{_containers(names)} must set securityContext.allowPrivilegeEscalation=false"
    return Finding("allowPrivilegeEscalation != false", message)


def dropped_capabilities(_metadata: Object, spec: Object) -> Finding | None:
    """All capabilities are dropped; only NET_BIND_SERVICE may be added."""
    added: set[str] = set()

    def lacks_drop(container: Object) -> bool:
        capabilities = _context(container).get("capabilities") or {}
        return "ALL" not in (capabilities.get("drop") or ())

    def adds(container: Object) -> bool:
        capabilities = _context(container).get("capabilities") or {}
        others = set(capabilities.get("add") or ()) - {"NET_BIND_SERVICE"}
        added.update(others)
        return bool(others)

    details: list[str] = []
    if names := _names(spec, lacks_drop):
        details.append(f'{_containers(names)} must set securityContext.capabilities.drop=["ALL"]')
    if names := _names(spec, adds):
        details.append(
            f"{_containers(names)} must not include {_quoted(sorted(added))} in"
            " securityContext.capabilities.add"
        )
    return Finding("unrestricted capabilities", "; ".join(details)) if details else None


def restricted_volumes(_metadata: Object, spec: Object) -> Finding | None:
    """Only volume types without host access, and claims."""
    names: list[str] = []
    kinds: set[str] = set()
    for volume in spec.get("volumes") or ():
        if any(volume.get(each) is not None for each in _VOLUMES):
            continue
        names.append(volume.get("name", ""))
        sources = (each for each in _OTHER_VOLUMES if volume.get(each) is not None)
        kinds.add(next(sources, "unknown"))
    if not names:
        return None
    uses = "uses" if len(names) == 1 else "use"
    return Finding(
        "restricted volume types",
        f"{_counted('volume', len(names))} {_quoted(names)} {uses}"
        f" {_counted('restricted volume type', len(kinds))} {_quoted(sorted(kinds))}",
    )


def non_root(_metadata: Object, spec: Object) -> Finding | None:
    """Containers set runAsNonRoot."""
    of_pod = _context(spec).get("runAsNonRoot")
    reason = "runAsNonRoot != true"
    denying = _names(spec, lambda each: _context(each).get("runAsNonRoot") is False)
    if setters := _setters(denying, is_pod=of_pod is False):
        return Finding(reason, f"{setters} must not set securityContext.runAsNonRoot=false")
    silent = _names(spec, lambda each: _context(each).get("runAsNonRoot") is None)
    if of_pod or not silent:
        return None
    message = f"pod or {_containers(silent)} must set securityContext.runAsNonRoot=true"
    return Finding(reason, message)


def root_user(_metadata: Object, spec: Object) -> Finding | None:
    """runAsUser is not 0."""

    def is_bad(holder: Object) -> bool:
        user = _context(holder).get("runAsUser")
        return user is not None and user == 0

    setters = _setters(_names(spec, is_bad), is_pod=is_bad(spec))
    return Finding("runAsUser=0", f"{setters} must not set runAsUser=0") if setters else None


def required_seccomp(metadata: Object, spec: Object) -> Finding | None:
    """Containers have a seccomp profile."""
    if found := seccomp(metadata, spec):
        return found
    if _context(spec).get("seccompProfile") is not None:
        return None
    silent = _names(spec, lambda each: _context(each).get("seccompProfile") is None)
    if not silent:
        return None
    return Finding(
        "seccompProfile",
        f"pod or {_containers(silent)} must set securityContext.seccompProfile.type to"
        ' "RuntimeDefault" or "Localhost"',
    )
