"""The checks of each standard, and their evaluation.

    findings(Standard("restricted", 30), metadata, spec)
    → [Finding("runAsNonRoot != true", 'pod or container "a" must set …'), …]

A check may have several versions; the newest one not above the standard's version counts.
`restricted` includes the checks of `baseline`, except those that it replaces by stricter ones.
"""

from functools import cache
from typing import Final, NamedTuple

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.policy.pod_security import checks
from kvstack.apiserver.policy.pod_security.checks import Check, Finding
from kvstack.apiserver.policy.pod_security.standards import (
    BASELINE,
    LATEST,
    PRIVILEGED,
    RESTRICTED,
    Standard,
)

NEWEST: Final = 37
"""The minor version of the newest check; later standards are the same."""


class Control(NamedTuple):
    """A check in all its versions."""

    id: str
    level: str
    versions: tuple[tuple[int, Check], ...]
    """(first minor version, check), the oldest first."""
    replaces: str = ""
    """The check of `baseline` that it replaces."""


_KEEPALIVE: Final = (
    "ip_local_reserved_ports",
    "tcp_keepalive_time",
    "tcp_fin_timeout",
    "tcp_keepalive_intvl",
    "tcp_keepalive_probes",
)
_BUFFERS: Final = (*_KEEPALIVE, "tcp_rmem", "tcp_wmem")

CONTROLS: Final = (
    Control("appArmorProfile", BASELINE, ((0, checks.app_armor),)),
    Control("capabilities_baseline", BASELINE, ((0, checks.added_capabilities),)),
    Control("hostNamespaces", BASELINE, ((0, checks.host_namespaces),)),
    Control("hostPathVolumes", BASELINE, ((0, checks.host_paths),)),
    Control("hostPorts", BASELINE, ((0, checks.host_ports),)),
    Control("hostProbesAndHostLifecycle", BASELINE, ((34, checks.probed_hosts),)),
    Control("privileged", BASELINE, ((0, checks.privileged),)),
    Control(
        "procMount",
        BASELINE,
        ((0, checks.proc_mount), (35, checks.except_user_namespaces(checks.proc_mount))),
    ),
    Control("seLinuxOptions", BASELINE, ((0, checks.selinux), (31, checks.selinux_with_engine))),
    Control(
        "seccompProfile_baseline",
        BASELINE,
        ((0, checks.seccomp_annotations), (19, checks.seccomp)),
    ),
    Control(
        "sysctls",
        BASELINE,
        (
            (0, checks.sysctls()),
            (27, checks.sysctls(*_KEEPALIVE[:1])),
            (29, checks.sysctls(*_KEEPALIVE)),
            (32, checks.sysctls(*_BUFFERS)),
            (37, checks.sysctls(*_BUFFERS, "tcp_slow_start_after_idle", "tcp_notsent_lowat")),
        ),
    ),
    Control("windowsHostProcess", BASELINE, ((0, checks.host_process),)),
    Control(
        "allowPrivilegeEscalation",
        RESTRICTED,
        (
            (8, checks.privilege_escalation),
            (25, checks.except_windows(checks.privilege_escalation)),
        ),
    ),
    Control(
        "capabilities_restricted",
        RESTRICTED,
        (
            (22, checks.dropped_capabilities),
            (25, checks.except_windows(checks.dropped_capabilities)),
        ),
        replaces="capabilities_baseline",
    ),
    Control("procMount_restricted", RESTRICTED, ((35, checks.proc_mount),), replaces="procMount"),
    Control(
        "restrictedVolumes",
        RESTRICTED,
        ((0, checks.restricted_volumes),),
        replaces="hostPathVolumes",
    ),
    Control(
        "runAsNonRoot",
        RESTRICTED,
        ((0, checks.non_root), (35, checks.except_user_namespaces(checks.non_root))),
    ),
    Control(
        "runAsUser",
        RESTRICTED,
        ((23, checks.root_user), (35, checks.except_user_namespaces(checks.root_user))),
    ),
    Control(
        "seccompProfile_restricted",
        RESTRICTED,
        ((19, checks.required_seccomp), (25, checks.except_windows(checks.required_seccomp))),
        replaces="seccompProfile_baseline",
    ),
)
"""All controls, in the order of findings: by level, then by id."""


def findings(standard: Standard, metadata: Object, spec: Object) -> list[Finding]:
    """Return the violations of a standard by a pod."""
    if standard.level == PRIVILEGED:
        return []
    minor = NEWEST if standard.minor == LATEST else min(standard.minor, NEWEST)
    found = (check(metadata, spec) for check in _checks(standard.level, minor))
    return [each for each in found if each is not None]


def findings_text(found: list[Finding]) -> str:
    """Return findings as one text."""
    return ", ".join(each.describe() for each in found)


@cache
def _checks(level: str, minor: int) -> tuple[Check, ...]:
    chosen: dict[str, Check] = {}
    for control in CONTROLS:
        if control.level == RESTRICTED and level == BASELINE:
            continue
        versions = [check for since, check in control.versions if since <= minor]
        if versions:
            chosen[control.id] = versions[-1]
            chosen.pop(control.replaces, None)
    return tuple(chosen.values())
